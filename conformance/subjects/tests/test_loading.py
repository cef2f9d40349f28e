"""From names to subjects: bundled ones, attributes, factories, bare callables, entry points; and what is none."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from inputmeta import oracle
from inputmeta.conformance.subjects import Capabilities, Conditions, Rejection, Request, SubjectError, load_subject
from inputmeta.conformance.subjects.callables import CONFIG, CallableSubject, probe
from inputmeta.conformance.subjects.entry_points import installed
from inputmeta.conformance.subjects.loading import claims_problem
from inputmeta.conformance.subjects.oracle import OracleSubject


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module that can be imported by the name it is given."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


BODY = """
from inputmeta.conformance.subjects.oracle import OracleSubject
class Mine(OracleSubject):
    def __init__(self, name="mine"):
        super().__init__(name=name)
instance = Mine("instance")
def factory():
    return Mine("made")
def optional(name="default", **rest):
    return Mine(name)
class Space:
    inner = Mine("inner")
class Call:
    def __call__(self, request):
        return Mine().build(request)
bare = Call()
def function(request):
    return Mine().build(request)
nothing = 3
def broken():
    raise KeyError("no device")
"""


@pytest.mark.parametrize(
    ("attribute", "name"),
    [
        ("Mine", "mine"),
        ("instance", "instance"),
        ("factory", "made"),
        ("optional", "default"),
        ("Space.inner", "inner"),
        ("Call", "door_a:Call"),
        ("bare", "door_a:bare"),
        ("function", "door_a:function"),
    ],
)
def test_whatever_gives_a_subject_is_one(module, attribute, name):
    module("door_a", BODY)
    subject = load_subject(f"door_a:{attribute}")
    assert subject.name == name
    assert subject.build(probe("decode"))["total_q"] == 4


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("door_b:nothing", "has no attribute build and is no callable"),
        ("door_b:missing", "module door_b has no attribute missing"),
        ("door_b:broken", "KeyError: 'no device'"),
        ("door_c:x", "ModuleNotFoundError: No module named 'door_c'"),
        (
            "unheard-of",
            "none of engine, engine-cuda, oracle, oracle-paged, reference, mutant:NAME, package.module:name",
        ),
        (":x", "none of engine"),
        ("x:", "none of engine"),
        ("mutant:none", "mutant none: none of the "),
        ("mutant:answers-twice", "a program"),
    ],
)
def test_what_is_no_subject_is_one_clear_line(module, name, text):
    module("door_b", BODY)
    with pytest.raises(SubjectError) as caught:
        load_subject(name)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ({"paths": ["decode"]}, "capabilities.paths is not a set of names"),
        ({"fields": frozenset({1})}, "capabilities.fields is not a set of names"),
        ({"in_place": "yes"}, "capabilities.in_place is not a bool"),
        ({"max_cp_size": 0}, "capabilities.max_cp_size is not a number"),
        ({"max_total_q": 1.5}, "capabilities.max_total_q is not a number or None"),
        ({"devices": "cpu"}, "capabilities.devices is not a set of names"),
        ({"fields_on": {"decode": ["klen"]}}, "capabilities.fields_on is not a mapping of paths to sets of names"),
        ({"fields_on": {"decoding": frozenset()}}, "capabilities.fields_on: there is no path 'decoding'"),
        ({"fields_on": {"decode": frozenset({"q"})}}, "capabilities.fields_on: 'q' is not among capabilities.fields"),
        ({"conditions": {"least_keep": 1}}, "capabilities.conditions is not inputmeta.conformance.subjects.Conditions"),
        ({"conditions": Conditions(history=2)}, "capabilities.conditions: history is not a bool"),
    ],
)
def test_claims_of_a_wrong_type_are_refused(claims, text):
    subject = OracleSubject()
    assert claims_problem(subject) is None
    subject.capabilities = dataclasses.replace(subject.capabilities, **claims)
    assert claims_problem(subject) == text


def test_nothing_of_the_mutants_is_imported_before_one_is_asked_for():
    code = (
        "import sys; from inputmeta.conformance.subjects import load_subject; load_subject('oracle')\n"
        "mutants = 'inputmeta.conformance.mutants'\n"
        "print(mutants in sys.modules); load_subject('mutant:raises'); print(mutants in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_claims_must_be_capabilities():
    subject = OracleSubject()
    subject.capabilities = {"paths": ["decode"]}
    assert claims_problem(subject).startswith("capabilities is dict")


def test_the_probes_are_valid_and_have_every_field():
    for path in oracle.PATHS:
        assert probe(path).violations() == []
        assert probe(path).expected().keys() == set(oracle.keys_of(path, CONFIG))


def answering(**answers):
    """A callable that answers the fields of a path, or raises what it is given for it."""

    def build(request: Request):
        answer = answers[request.path]
        if isinstance(answer, Exception):
            raise answer
        return {key: value for key, value in OracleSubject().build(request).items() if key.partition(".")[0] in answer}

    return build


def test_a_callable_claims_what_its_probes_hold_on_every_path_that_has_it():
    build = answering(
        prompt=NotImplementedError(),
        decode={"positions", "klen", "cu_seqlens_k"},
        decode_zos={"positions", "context_lens"},
    )
    claims = CallableSubject(build, "x").capabilities
    assert claims.paths == {"decode", "decode_zos"}
    assert claims.fields == {"positions", "cu_seqlens_k"}
    assert (claims.in_place, claims.max_cp_size, claims.yoco_modes) == (False, 1, {"off"})


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (KeyError("klen"), "x: raised on its probe of path decode: KeyError: 'klen'"),
        (Rejection("P-LEN", 0, "seqlen_q", "no"), "x: raised on its probe of path decode: Rejection: no"),
    ],
)
def test_a_callable_that_raises_on_a_probe_is_told_and_claims_nothing(answer, text):
    build = answering(prompt={"positions"}, decode=answer, decode_zos=NotImplementedError())
    with pytest.raises(SubjectError, match=f"^subject {text}.*raises NotImplementedError; one with capabilities"):
        CallableSubject(build, "x")


def test_a_callable_that_gives_no_mapping_on_a_probe_is_told():
    with pytest.raises(SubjectError, match="subject x: gave list, no mapping, on its probe of path prompt"):
        CallableSubject(lambda request: [], "x")


def test_what_raises_while_it_is_loaded_says_where(module, tmp_path):
    module("door_f", BODY + "def build(request):\n    return {}['klen']\n1 // len('')\n")
    with pytest.raises(SubjectError) as caught:
        load_subject("door_f:build")
    file = tmp_path / "door_f.py"
    where = f"(at {file}:{len(BODY.splitlines()) + 3} in <module>: 1 // len(''))"
    assert str(caught.value).startswith("subject door_f:build: ZeroDivisionError: integer")
    assert str(caught.value).endswith(where)
    module("door_f", BODY + "def build(request):\n    return {}['klen']\n")
    with pytest.raises(SubjectError, match=r"path prompt: KeyError: 'klen' \(at .*door_f\.py:\d+ in build: ret"):
        load_subject("door_f:build")


def test_a_callable_may_bring_its_claims():
    build = answering(decode={"positions"})
    build.capabilities = Capabilities(paths=frozenset({"decode"}), fields=frozenset({"positions"}))
    assert CallableSubject(build, "x").capabilities is build.capabilities


def test_sizes_beyond_the_claims_are_unsupported():
    request = probe("decode")
    claims = OracleSubject().capabilities
    lacks = [
        dataclasses.replace(claims, **limit).lacks(dataclasses.replace(request, max_num_blocks=columns))
        for limit, columns in (
            ({"max_total_q": 3}, None),
            ({"max_total_q": 4}, None),
            ({"max_num_reqs": 1}, None),
            ({"max_num_reqs": 2}, None),
            ({"max_table_columns": 1}, None),
            ({"max_table_columns": 2}, None),
            ({"max_table_columns": 2}, 3),
        )
    ]
    assert lacks == [
        "total_q above 3", None, "num_reqs above 1", None, "table columns above 1", None, "table columns above 2",
    ]  # fmt: skip


def install(folder, distribution: str, name: str, value: str) -> None:
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[inputmeta.subjects]\n{name} = {value}\n")


def test_an_installed_package_brings_its_subject_by_name(module, tmp_path):
    module("door_d", BODY)
    install(tmp_path, "one", "their-engine", "door_d:Mine")
    assert load_subject("their-engine").name == "mine"
    assert [point.name for point in installed() if point.value == "door_d:Mine"] == ["their-engine"]
    install(tmp_path, "two", "their-engine", "door_d:instance")
    with pytest.raises(SubjectError, match="several packages bring it: door_d:Mine, door_d:instance"):
        load_subject("their-engine")


def test_a_broken_entry_point_is_one_line(module, tmp_path):
    install(tmp_path, "three", "broken-engine", "door_e:Mine")
    with pytest.raises(SubjectError, match="subject broken-engine: ModuleNotFoundError: No module named 'door_e'"):
        load_subject("broken-engine")
