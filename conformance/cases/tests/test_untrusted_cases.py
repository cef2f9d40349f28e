"""Case files of strangers: one clear error each, nothing outside the folder, no more memory than said."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inputmeta.conformance.cases import budget
from inputmeta.conformance.cases.budget import LIMITS
from inputmeta.conformance.cases.corpus import add_case
from inputmeta.conformance.cases.files import (
    MAX_BRACKETS,
    CaseError,
    decode_case,
    load_case,
    save_case,
)
from inputmeta.conformance.cases.request import complete_case, store_case
from inputmeta.conformance.cases.tests.untrusted import BOUNDED, CASE, case_bytes, damaged, is_one_line, mangled, nested


def changed(**changes: object) -> bytes:
    return case_bytes(CASE | changes)


def read(data: bytes) -> None:
    """A case or one clear error; a case is one that the oracle has an answer to."""
    error = None
    try:
        case = decode_case(data)
    except CaseError as refused:
        error = str(refused)
    if error is None:
        complete_case(case)
    else:
        assert is_one_line(error), repr(error)


@BOUNDED
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    read(data)


@BOUNDED
@given(damaged(case_bytes(CASE)))
def test_a_damaged_file(data: bytes) -> None:
    read(data)


@BOUNDED
@given(mangled(CASE))
def test_a_mangled_case(document: object) -> None:
    read(case_bytes(document))


ESCAPE = "\x1b]0;owned\x07"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (changed(path="decode_zos").replace(b'"path"', b'"path": "prompt", "path"', 1), "`path` stands twice"),
        (changed().replace(b'"title"', b'"\\u0070ath": "prompt", "title"', 1), "`path` stands twice"),
        (changed().replace(b'"seqlen_q": 2', b'"seqlen_q": 2, "seqlen_q": 3'), "`seqlen_q` stands twice"),
        (changed(title=ESCAPE), "at $.title: holds a character"),
        (changed(id="a\nb"), "at $.id: holds a character"),
        (changed(tags=["\u202egnp"]), "at $.tags[0]: holds a character"),
        (changed(origin={"found_by": ESCAPE}), "at $.origin.found_by: holds"),
        (changed(**{ESCAPE: 1}), "unknown field `?]0;owned?`"),
        (changed(**{"k" * 100_000: 1}), "unknown field `kkk"),
        (changed(id="x" * 65), "length <= 64"),
        (changed(title="x" * 4001), "length <= 4000"),
        (changed(steps=nested(100_000)) if sys.getrecursionlimit() > 100_000 else b"[" * 100_000, "Expected `object`"),
        (changed().replace(b'"seed": 1', b'"seed": ' + b"9" * 100_000), "out of range"),
        (changed().replace(b'"seed": 1', b'"seed": NaN'), "not JSON"),
        (changed().replace(b'"seed": 1', b'"seed": 1e9'), "Expected `int | null`"),
        (changed().replace(b"two rows", b"\\ud800"), "not JSON"),
        (changed().replace(b"two rows", b"\xed\xa0\x80"), "not JSON"),
    ],
)
def test_a_hostile_value_is_named(data: bytes, what: str) -> None:
    with pytest.raises(CaseError) as caught:
        decode_case(data)
    assert what in str(caught.value)
    assert is_one_line(str(caught.value))


ROWS = {"runs": [[1, 500_000, 0]]}


def sequence(**changes: object) -> dict[str, object]:
    return CASE["steps"][0][0] | changes


BOMBS = {
    "rows times table columns": changed(
        gather=[], expected=[], steps=[[sequence(draft_tokens=[0] * 8000, seqlen_q=8001, block_table=[0] * 8000)]]
    ),
    "rows times the caller's columns": changed(
        gather=[], expected=[], max_num_blocks=2**20, steps=[[sequence(draft_tokens=[0] * 40, seqlen_q=41)]]
    ),
    "rows times ratios": changed(
        gather=[],
        expected=[],
        config=CASE["config"] | {"dense_ratios": list(range(1, 2000))},
        steps=[[sequence(draft_tokens=[0] * 4000, seqlen_q=4001)]],
    ),
    "steps of a wide table": changed(
        gather=[], expected=[], max_num_blocks=2**20, steps=[[sequence(draft_tokens=[0] * 30, seqlen_q=31)]] * 10
    ),
    "ranks times sequences": changed(
        path="prompt", gather=[], expected=[], config=CASE["config"] | {"cp_size": 2**16}, steps=[[sequence()] * 600]
    ),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_small_file_that_asks_for_much_is_refused(bomb: bytes) -> None:
    assert len(bomb) < 100_000
    with pytest.raises(CaseError, match=rf"at \$\.steps: its fields have about \d+ cells; .* {LIMITS.cells} "):
        decode_case(bomb)


@pytest.mark.parametrize(
    ("bomb", "says"),
    [
        (
            changed(gather=[], expected=[], steps=[[]] * (LIMITS.steps + 1)),
            "at $.steps: 4097 steps; a case has at most 4096 (--case-budget 2 allows it)",
        ),
        (
            changed(gather=[], expected=[], steps=[[{"seqlen_q": 0, "seqlen_k": 0}] * (LIMITS.sequences + 1)]),
            "at $.steps: 65537 sequences; a case has at most 65536 (--case-budget 2 allows it)",
        ),
        (
            changed(
                gather=[],
                expected=[],
                config=CASE["config"] | {"dense_ratios": [], "sparse_ratios": []},
                path="prompt",
                steps=[
                    [{"seqlen_q": 0, "seqlen_k": 0}] * 60_000
                    + [sequence(token_ids=ROWS, draft_tokens=[], seqlen_q=500_000)]
                ],
            ),
            "at $.steps: about 62 seconds of the oracle; a case has at most 60 (--case-budget 2 allows it)",
        ),
        (b"[" + b"[]," * MAX_BRACKETS + b"[]]", "arrays and objects; a case file has at most 1048576"),
    ],
    ids=["steps", "sequences", "seconds", "brackets"],
)
def test_a_case_has_one_budget(bomb: bytes, says: str) -> None:
    with pytest.raises(CaseError) as caught:
        decode_case(bomb)
    assert says in str(caught.value)


@pytest.fixture
def twice() -> Iterator[None]:
    """Every limit of a case doubled."""
    budget.allow(2)
    yield
    budget.allow(1)


@pytest.mark.usefixtures("twice")
def test_the_budget_is_what_the_caller_allows() -> None:
    def empty(steps: int) -> bytes:
        return changed(gather=[], expected=[], steps=[[]] * steps)

    assert len(decode_case(empty(2 * LIMITS.steps)).steps) == 2 * LIMITS.steps
    with pytest.raises(CaseError, match=r"8193 steps; a case has at most 8192 \(--case-budget 3 allows it\)"):
        decode_case(empty(2 * LIMITS.steps + 1))


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf")])
def test_a_budget_is_a_factor_above_0(factor: float) -> None:
    with pytest.raises(ValueError, match="no factor above 0"):
        budget.allow(factor)
    assert budget.options() == ""


def test_what_is_too_large_to_be_kept_is_not_written_out(tmp_path: Path) -> None:
    """One step within the budget; its expectation would be some hundred MB, most of it undefined."""
    steps = [[sequence(draft_tokens=[0] * 30, seqlen_q=31, seqlen_k=31)]]
    wide = decode_case(changed(gather=[], expected=[], title="t", max_num_blocks=2**20, steps=steps))
    with pytest.raises(CaseError, match=r"at \$\.expected: about \d+ cells; a case is kept with at most 4194304"):
        add_case(wide, tmp_path)
    assert files_under(tmp_path) == set()
    assert store_case(wide, tmp_path).stat().st_size < 2000


def test_many_keys_are_checked_in_linear_time() -> None:
    """A check that counts each key among all would take an hour."""
    array = '{"dtype":"int","shape":[],"data":0}'
    keys = ",".join(f'"k{index}":{array}' for index in [*range(200_000), 0])
    data = changed(gather=[], expected=[{"fields": {"here": 0}}]).replace(b'"here": 0', keys.encode())
    with pytest.raises(CaseError, match="key `k0` stands twice"):
        decode_case(data)


def test_a_length_alone_asks_for_nothing() -> None:
    case = decode_case(changed(gather=[], expected=[], steps=[[sequence(seqlen_q=2**62, seqlen_k=2**62)]]))
    assert [refusal.condition for refusal in complete_case(case).expected[0].refused][:1] == ["P-LEN"]


MEASURE = """
import resource, sys
from pathlib import Path
from inputmeta.conformance.cases.files import CaseError, load_case
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load_case(Path(sys.argv[1]))
    print("read")
except CaseError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    "part",
    [
        '{"seqlen_q":0,"seqlen_k":0}',
        '{{"seqlen_q":0,"seqlen_k":0,"token_ids":[{}]}}'.format(",".join(["999"] * 1000)),
        '{{"seqlen_q":0,"seqlen_k":0,"token_ids":[{}]}}'.format(",".join(["0"] * 1000)),
    ],
    ids=["sequences", "integers", "digits"],
)
def test_reading_takes_at_most_16_bytes_a_byte(tmp_path: Path, part: str) -> None:
    size = 8 * 2**20
    head = json.dumps({k: v for k, v in CASE.items() if k not in ("steps", "gather", "expected")})[:-1]
    path = tmp_path / "large.json"
    path.write_text(f'{head},"steps":[[{",".join([part] * (size // len(part)))}]]}}')
    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    result, kib = done.stdout.splitlines()
    assert result == "read" or "a case has at most" in result
    assert int(kib) * 1024 < 16 * size


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/stdin", "/proc/self/mem"])
def test_a_device_is_not_read(name: str) -> None:
    with pytest.raises(CaseError):
        load_case(Path(name))


def test_a_pipe_a_folder_and_a_dead_link_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "link.json").symlink_to("link.json")
    for name, what in (("pipe", "regular file"), ("folder", "regular file"), ("link", "symbolic links")):
        with pytest.raises(CaseError, match=what):
            load_case(tmp_path / f"{name}.json")


def files_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize(
    "name", ["../../evil", "/etc/evil", "..", ".", "a/b", "C:\\evil", "~/evil", "$(touch evil)", "🙈", "-rf"]
)
def test_no_name_in_a_case_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    case = decode_case(changed(id=name, title=name, tags=[name], origin={"found_by": name}))
    inner = tmp_path / "a" / "b"
    (inner / "corpus").mkdir(parents=True)
    stored, added = store_case(case, inner), add_case(case, inner / "corpus")
    assert (stored.parent, added.parent) == (inner, inner / "corpus")
    assert files_under(tmp_path) == {str(path.relative_to(tmp_path)) for path in (stored, added)}
    assert stored.stem == complete_case(case).id
    assert added.name[0].isalnum()


def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "out"
    folder.mkdir()
    case = complete_case(decode_case(changed()))
    for name in (f"{case.id}.json", f"{case.id}.json.tmp"):
        (folder / name).symlink_to(victim)
    path = store_case(case, folder)
    assert victim.read_text() == "mine"
    assert not path.is_symlink()
    assert load_case(path) == msgspec.structs.replace(case, wants="valid")


def test_a_folder_that_is_a_link_is_the_users_own_choice(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    store_case(decode_case(changed()), tmp_path / "link")
    assert len(files_under(tmp_path / "real")) == 1


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken.json").mkdir()
    with pytest.raises(CaseError, match=r"taken\.json: Is a directory"):
        save_case(decode_case(changed()), tmp_path / "taken.json")
    assert files_under(tmp_path) == set()


def test_nothing_is_evaluated(tmp_path: Path) -> None:
    """No reader of the package can run what it reads."""
    package = Path(__file__).parents[2]
    # Not what a name ends with or a file is called: cloudpickle, which an engine needs, config.yaml.
    banned = re.compile(r"(?<![\w.])(pickle|marshal|shelve|yaml|eval\(|np\.load\(|torch\.load\()")
    for path in sorted(package.rglob("*.py")):
        if "tests" not in path.parts and "mutants" not in path.parts:
            text = path.read_text(encoding="utf-8")
            assert not banned.findall(text), path
