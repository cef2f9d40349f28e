"""Known failures: the file, and what of it a run met."""

import dataclasses
import os
from pathlib import Path

import pytest

from inputmeta.conformance.campaign import known_file
from inputmeta.conformance.campaign.known import KnownFailures, KnownFailuresError
from inputmeta.conformance.campaign.known_file import MAX_FILE_BYTES, text_entries
from inputmeta.conformance.cases.files import case_id
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence
from inputmeta.conformance.check.verdicts import Finding, Verdict

CONFIG = Config(block_size=4, dense_ratios=(1,), window_size=2, swa_block_size=3, max_model_len=16)
CASE = Case(schema=SCHEMA, path="prompt", config=CONFIG, steps=((Sequence(seqlen_q=1, seqlen_k=1),),))
ID = case_id(CASE)
LATE = Finding(Verdict.MISMATCH, 0, "positions", "F-POS", "wrong value", kind="value", path="prompt")
EMPTY = dataclasses.replace(LATE, kind="shape", detail="shape [0], want [1]")
DIED = Finding(Verdict.CRASH, 0, None, "P-TABLE", "died", code="exit-3", path="prompt")
SHIFTED = """# ours
[[known]]
signature = "MISMATCH:prompt:F-POS:positions:value"
reason = "rows of a chunk start one late"
issue = "ENGINE-812"
"""


def known(tmp_path: Path, text: str) -> KnownFailures:
    file = tmp_path / "known.txt"
    file.write_text(text, encoding="utf-8")
    return KnownFailures.load(file)


@pytest.mark.parametrize("dash", ["–", "—", "-"])
def test_a_line_is_key_reason_issue(dash: str) -> None:
    (entry,) = text_entries(f"# comment\n\n  MISMATCH:F-POS:positions {dash} one - or two - rows late {dash} #12  \n")
    assert (entry.key, entry.reason, entry.issue) == ("MISMATCH:F-POS:positions", "one - or two - rows late", "#12")
    assert entry.place == ":3"
    assert not entry.is_case


def test_a_signature_with_a_code_and_a_case_id_are_keys() -> None:
    entries = list(text_entries(f"{DIED.identity.short} – dies – #1\r\n{ID} – all of it – -\n"))
    assert [entry.key for entry in entries] == ["CRASH:exit-3:P-TABLE", ID]
    assert [entry.is_case for entry in entries] == [False, True]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("MISMATCH:F-POS:positions – no issue", ":1: want `case id or signature – reason – issue`"),
        ("\nMISMATCH:F-POS:positions", ":2: want"),
        ("MISMATCH:F-*:positions* – a pattern? – x\nMISMATCH:F-*:positions* – a – b", "stands at 1 already"),
        ("0123 – short id – x", ":1: 0123 is no case id and no signature"),
        ("PASS:F-POS:positions – passes – x", "is no case id and no signature"),
        ("WRONG:F-POS:positions – no verdict – x", "is no case id and no signature"),
        ("MISMATCH – verdict only – x", "is no case id and no signature"),
        ("MISMATCH:F-POS:positions – \x1b[2J – x", "not printable"),
        (f"MISMATCH:F-POS:positions – {'x' * 2000} – x", "longer than 2000"),
    ],
)
def test_what_is_no_entry_is_named_by_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(KnownFailuresError) as caught:
        known(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'known.txt'}:")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for name, data, says in (("binary", b"\xff\xfe", "not UTF-8"), ("large", b"#" * (MAX_FILE_BYTES + 1), "at most")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(KnownFailuresError, match=says):
            KnownFailures.load(tmp_path / name)
    with pytest.raises(KnownFailuresError, match="No such file"):
        KnownFailures.load(tmp_path / "absent")


def test_matching_is_exact_and_the_case_comes_first(tmp_path: Path) -> None:
    entries = known(tmp_path, f"MISMATCH:F-POS:positions – late – #1\n{ID} – the case – #2\n")
    found = entries.match(LATE, CASE)
    assert found is not None
    assert found.issue == "#2"
    assert entries.unused() == []  # the signature was met as well
    assert known(tmp_path, "MISMATCH:F-POS:position – x – #1").match(LATE, CASE) is None
    assert known(tmp_path, "UNWRITTEN:F-POS:positions – x – #1").match(LATE, CASE) is None
    assert KnownFailures().match(LATE, CASE) is None


def test_entries_that_are_not_met_are_told_apart(tmp_path: Path) -> None:
    other, third = "0" * 16, "1" * 16
    text = f"MISMATCH:F-POS:positions – late – #1\n{ID} – passes – #2\n{other} – nowhere – #3\n"
    entries = known(tmp_path, text)
    entries.saw(CASE)
    assert [entry.issue for entry in entries.unused()] == ["#1", "#2", "#3"]
    assert [entry.issue for entry in entries.passing()] == ["#2"]
    says = [entries.complaint(entry) for entry in entries.unused()]
    assert says[0].endswith("known.txt:1: MISMATCH:F-POS:positions: not seen; remove the entry (late – #1)")
    assert ": the case passes; " in says[1]
    assert ": no case of this run; " in says[2]
    left_out = known(tmp_path, f"{ID} – other path – #2\n{third} – x – y")
    left_out.saw(CASE, ran=False)
    assert [entry.key for entry in left_out.unused()] == [third]


def toml(tmp_path: Path, text: str, name: str = "known.toml") -> KnownFailures:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return KnownFailures.load(tmp_path / name)


@pytest.mark.parametrize("name", ["known.toml", "known.txt"])
def test_toml_is_told_by_its_name_or_its_content(tmp_path: Path, name: str) -> None:
    entries = toml(tmp_path, f"{SHIFTED}[[known]]\ncase = '{ID}'\nreason = 'r'\nissue = '-'\n", name)
    assert list(entries.entries) == [LATE.signature, ID]
    found = entries.match(LATE, CASE)
    assert found is not None
    assert found.is_case
    assert entries.complaint(entries.entries[LATE.signature]).startswith(
        f"{tmp_path / name}: entry 1: MISMATCH:prompt:"
    )


def test_a_signature_of_toml_has_one_path_and_one_kind(tmp_path: Path) -> None:
    entries = toml(tmp_path, SHIFTED)
    assert entries.match(LATE, CASE) is not None
    for other in (
        EMPTY,
        LATE.on_path("decode"),
        dataclasses.replace(LATE, verdict=Verdict.UNWRITTEN, kind=""),
        dataclasses.replace(LATE, key="ks.4"),
        dataclasses.replace(LATE, formula="F-KS"),
    ):
        assert entries.match(other, CASE) is None, other


def test_a_signature_of_the_old_lines_means_what_it_meant(tmp_path: Path) -> None:
    """On every path; cells of whatever verdict it says; a form only where it says so."""
    values = known(tmp_path, "MISMATCH:F-POS:positions – late – #1\n")
    assert values.match(LATE, CASE) is not None
    assert values.match(LATE.on_path("decode"), CASE) is not None
    assert values.match(EMPTY, CASE) is None
    shapes = known(tmp_path, "MISMATCH:F-POS:positions:shape – empty – #1\n")
    assert shapes.match(EMPTY, CASE) is not None
    assert shapes.match(LATE, CASE) is None
    deaths = known(tmp_path, "CRASH:exit-3:P-TABLE – dies – #1\nUNWRITTEN:F-POS:positions – x – #2\n")
    assert deaths.match(DIED, CASE) is not None
    assert deaths.match(dataclasses.replace(LATE, verdict=Verdict.UNWRITTEN, kind=""), CASE) is not None
    assert deaths.match(dataclasses.replace(DIED, formula="-"), CASE) is None


REST = "reason = 'r'\nissue = 'i'\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[known]\n", ": not TOML: "),
        ("[[known]]\nreason = 'r'\nreason = 's'\n", "(at line 3, column 13)"),
        ("x = " + "[" * 5000, ": not TOML: nested too deep"),
        (f"{SHIFTED}[known2]\n", ": key known2: there is none but `known`"),
        ("known = 3\n", ": key known: must be tables [[known]]"),
        ("known = [3]\n", ": entry 1: Expected `object`, got `int`"),
        (f"{SHIFTED}[[known]]\ncase = '{ID}'\nisue = 'x'\n{REST}", ": entry 2: Object contains unknown field `isue`"),
        (f"[[known]]\ncase = 7\n{REST}", ": entry 1: Expected `str | null`, got `int` - at `$.case`"),
        (f"[[known]]\ncase = '{ID}'\nissue = 'x'\n", ": entry 1: Object missing required field `reason`"),
        (
            f"[[known]]\ncase = '{ID}'\nreason = \"a\\u001b[2J\"\nissue = 'x'\n",
            ": entry 1: key reason: must be printable",
        ),
        (f"[[known]]\ncase = '{ID}'\nreason = '{'x' * 2001}'\nissue = 'x'\n", "length <= 2000 - at `$.reason`"),
        (f"[[known]]\n{REST}", ": entry 1: want either `signature` or `case`"),
        (f"[[known]]\ncase = '{ID}'\nsignature = '{LATE.signature}'\n{REST}", ": entry 1: want either"),
        (f"[[known]]\ncase = '0123'\n{REST}", ": entry 1: key case: want 16 hexadecimal digits"),
        (
            f"[[known]]\nsignature = 'MISMATCH:F-POS:positions'\n{REST}",
            "key signature: want VERDICT:PATH:FORMULA:FIELD",
        ),
        (f"[[known]]\nsignature = 'PASS:prompt:F-POS:positions:value'\n{REST}", "PASS is no verdict on a failure"),
        (f"[[known]]\nsignature = 'MISMATCH:prefill:F-POS:positions:value'\n{REST}", "there is no path prefill"),
        (f"[[known]]\nsignature = 'MISMATCH:prompt:F-P:positions:value'\n{REST}", "there is no formula F-P"),
        (f"[[known]]\nsignature = 'MISMATCH:prompt:F-POS:position:value'\n{REST}", "there is no field position"),
        (f"[[known]]\nsignature = 'MISMATCH:prompt:F-POS:positions:*'\n{REST}", "kind * is none of value, "),
        (f"{SHIFTED}{SHIFTED}", f": entry 2: {LATE.signature} stands at entry 1 already"),
    ],
)
def test_what_is_no_toml_entry_is_one_line_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(KnownFailuresError) as caught:
        toml(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'known.toml'}: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


PRESENT: dict[str, set[str]] = {
    key: set() for key in (ID, LATE.signature, LATE.on_path("decode").signature, DIED.signature)
}
WRITTEN = f"""{known_file.HEADER}
[[known]]
signature = "CRASH:prompt:P-TABLE:-:exit-3"
reason = "unknown"
issue = "-"

[[known]]
signature = "MISMATCH:decode:F-POS:positions:value"
reason = "late"
issue = "#1"

[[known]]
signature = "MISMATCH:prompt:F-POS:positions:value"
reason = "late"
issue = "#1"

[[known]]
case = "{ID}"
reason = "unknown"
issue = "-"
"""


def test_present_failures_are_written_as_toml_and_keep_the_reasons_of_old_lines(tmp_path: Path) -> None:
    target = tmp_path / "known.txt"
    entries = known(tmp_path, "MISMATCH:F-POS:positions – late – #1\nMISMATCH:F-KS:ks – gone – #9\n")
    entries.write(PRESENT, target)
    assert target.read_text(encoding="utf-8") == WRITTEN
    entries.write(PRESENT, tmp_path / "new.toml")
    assert (tmp_path / "new.toml").read_text(encoding="utf-8") == WRITTEN
    assert sorted(path.name for path in tmp_path.iterdir()) == ["known.txt", "new.toml"]
    KnownFailures().write({}, target)
    assert target.read_text(encoding="utf-8") == known_file.HEADER
    assert not KnownFailures.load(target)


def test_reasons_that_stand_in_the_target_stay(tmp_path: Path) -> None:
    """Although the run was told of none, or of others; quotes and backslashes too."""
    reason = 'says "no" – at C:\\\\temp'
    target = tmp_path / "known.toml"
    target.write_text(SHIFTED.replace("rows of a chunk start one late", reason.replace('"', '\\"')), encoding="utf-8")
    target.chmod(0o640)
    told = KnownFailures.load(target).entries[LATE.signature].reason
    for run in (KnownFailures(), toml(tmp_path, SHIFTED, "other.toml")):
        run.write({LATE.signature: set(), ID: set()}, target)
        entries = KnownFailures.load(target).entries
        assert (entries[LATE.signature].reason, entries[LATE.signature].issue) == (told, "ENGINE-812")
    assert target.stat().st_mode & 0o777 == 0o640


def test_entries_of_cases_that_were_left_out_stay(tmp_path: Path) -> None:
    entries = toml(tmp_path, f"[[known]]\ncase = '{ID}'\nreason = 'other path'\nissue = '#2'\n{SHIFTED}")
    entries.saw(CASE, ran=False)
    entries.write({}, tmp_path / "known.toml")
    assert [entry.reason for entry in KnownFailures.load(tmp_path / "known.toml").entries.values()] == ["other path"]


def test_a_file_that_cannot_be_written_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = toml(tmp_path, SHIFTED)
    with pytest.raises(KnownFailuresError, match="No such file"):
        entries.write(PRESENT, tmp_path / "no" / "folder.toml")
    (tmp_path / "notes.md").write_text("# Notes\nnothing of ours\n")
    with pytest.raises(KnownFailuresError, match=r"notes.md:2: want `case id"):
        entries.write(PRESENT, tmp_path / "notes.md")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KnownFailuresError, match=r"known\.toml: No space left on device"):
        entries.write(PRESENT, tmp_path / "known.toml")
    assert (tmp_path / "known.toml").read_text() == SHIFTED
    assert sorted(path.name for path in tmp_path.iterdir()) == ["known.toml", "notes.md"]


def test_a_file_is_on_the_disk_before_it_replaces_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("fsync"), fsync(file)))
    monkeypatch.setattr(Path, "replace", lambda old, new: (done.append("replace"), replace(old, new))[1])
    KnownFailures().write({ID: set()}, tmp_path / "known.toml")
    assert done == ["fsync", "replace", "fsync"]


def of_case(*signatures: str) -> str:
    return f"[[known]]\ncase = '{ID}'\nsignatures = {list(signatures)}\nreason = 'r'\nissue = '-'\n"


def test_an_entry_of_a_case_with_signatures_hides_nothing_else_on_it(tmp_path: Path) -> None:
    entries = toml(tmp_path, of_case(LATE.signature))
    entries.saw(CASE)
    assert entries.match(LATE, CASE) is not None
    assert entries.match(EMPTY, CASE) is None
    assert entries.match(DIED, CASE) is None
    assert entries.unused() == []


def test_a_signature_that_the_case_no_longer_shows_is_said(tmp_path: Path) -> None:
    entries = toml(tmp_path, of_case(LATE.signature, EMPTY.signature))
    assert entries.match(LATE, CASE) is not None
    assert entries.unused() == []  # not before the case has run to its end
    entries.saw(CASE)
    (entry,) = entries.passing()
    assert f"does not show {EMPTY.signature}; remove it" in entries.complaint(entry)


def test_what_a_case_shows_is_written_with_it(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    KnownFailures().write({ID: {LATE.signature, EMPTY.signature}, DIED.signature: set()}, path)
    again = KnownFailures.load(path)
    assert again.entries[ID].signatures == {LATE.signature, EMPTY.signature}
    assert again.entries[DIED.signature].signatures == frozenset()
    again.left_out.add(ID)
    again.write({}, path)
    assert KnownFailures.load(path).entries[ID].signatures == {LATE.signature, EMPTY.signature}


@pytest.mark.parametrize(
    ("signatures", "says"),
    [((), "at least|length >= 1"), (("MISMATCH",), "key signatures: ")],
)
def test_signatures_of_a_case_are_checked(tmp_path: Path, signatures: tuple[str, ...], says: str) -> None:
    with pytest.raises(KnownFailuresError, match=says):
        toml(tmp_path, of_case(*signatures))
    mixed = SHIFTED.replace("reason", f"signatures = ['{LATE.signature}']\nreason", 1)
    with pytest.raises(KnownFailuresError, match="key signatures: belongs to `case`"):
        toml(tmp_path, mixed)
