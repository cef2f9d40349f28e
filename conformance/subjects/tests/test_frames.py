"""Where a subject raised: its own last frames, bounded and safe to print, whatever the code is named."""

import os
import sys

from inputmeta.conformance.subjects.base import Capabilities
from inputmeta.conformance.subjects.callables import CallableSubject
from inputmeta.conformance.subjects.frames import MOST_CHARACTERS, MOST_FRAMES, error_text, frames_of, is_suite


def raised(action):
    """What an action raises."""
    try:
        action()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def compiled(source, file):
    names = {}
    exec(compile(source, file, "exec"), names)
    return names["act"]


def test_a_frame_is_file_line_function_and_source(tmp_path):
    file = tmp_path / "builder.py"
    source = "def inner(rows):\n    return rows[3]\ndef act():\n    return inner([])\n"
    file.write_text(source)
    frames = frames_of(raised(compiled(source, str(file))))
    assert frames == (f"{file}:4 in act: return inner([])", f"{file}:2 in inner: return rows[3]")


def test_frames_of_the_suite_are_left_out():
    def act(request):
        raise KeyError("klen")

    act.capabilities = Capabilities(paths=frozenset({"decode"}), fields=frozenset())
    frames = frames_of(raised(lambda: CallableSubject(act, "x").build(None)))
    assert len(frames) == 0  # this file is the suite's as well
    frames = frames_of(raised(lambda: CallableSubject(compiled_with_claims(), "x").build(None)))
    assert frames == ("<builder>:2 in act",)


def compiled_with_claims():
    act = compiled("def act(request=None):\n    raise KeyError('klen')\n", "<builder>")
    act.capabilities = Capabilities(paths=frozenset({"decode"}), fields=frozenset())
    return act


def test_bundled_subjects_are_no_suite():
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    assert is_suite(os.path.join(here, "protocol", "serve.py"))
    assert is_suite(os.path.join(here, "subjects", "callables.py"))
    for name in ("mutants/classes.py", "examples/numpy_builder.py", "subjects/engine.py", "subjects/oracle.py"):
        assert not is_suite(os.path.join(here, name))
    assert not is_suite(here + "_of_mine/builder.py")


def test_frames_are_few_and_short_and_plain(tmp_path):
    name = str(tmp_path / f"evil\x1b[2J\n{'x' * 150}.py")
    frames = frames_of(raised(compiled("def act(n=40):\n    return act(n - 1) if n else 1 // 0\n", name)))
    assert len(frames) == MOST_FRAMES
    assert all(len(frame) <= MOST_CHARACTERS and frame.isprintable() for frame in frames)
    deep = frames_of(raised(compiled("def act():\n    return act()\n", "deep.py")))
    assert deep == ("deep.py:2 in act",) * MOST_FRAMES


def test_a_source_is_only_read_where_it_is_a_file_of_reasonable_size(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    large = tmp_path / "large.py"
    large.write_bytes(b"x = 1\n" * 2**20)
    for file in ("/dev/zero", str(fifo), str(large), "<string>"):
        assert frames_of(raised(compiled("def act():\n    1 // 0\n", file)))[0].endswith(":2 in act")


def test_an_exception_whose_text_raises_is_told():
    class EvilError(Exception):
        def __str__(self):
            raise RuntimeError

    assert error_text(EvilError()) == "EvilError: its text cannot be had"
    assert error_text(KeyError("a\n b")) == r"KeyError: 'a\n b'"
    assert sys.exception() is None
