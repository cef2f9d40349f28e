"""Known failures: the file, and what of it a run met."""

from pathlib import Path

import pytest

from inputmeta.conformance.campaign.known import MAX_FILE_BYTES, KnownFailures, KnownFailuresError, parse
from inputmeta.conformance.cases.files import case_id
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence
from inputmeta.conformance.check.verdicts import Finding, Verdict

CONFIG = Config(block_size=4, dense_ratios=(1,), window_size=2, swa_block_size=3, max_model_len=16)
CASE = Case(schema=SCHEMA, path="prompt", config=CONFIG, steps=((Sequence(seqlen_q=1, seqlen_k=1),),))
ID = case_id(CASE)
LATE = Finding(Verdict.MISMATCH, 0, "positions", "F-POS", "wrong value")
DIED = Finding(Verdict.CRASH, 0, None, "P-TABLE", "died", code="exit-3")


def known(tmp_path: Path, text: str) -> KnownFailures:
    file = tmp_path / "known.txt"
    file.write_text(text, encoding="utf-8")
    return KnownFailures.load(file)


@pytest.mark.parametrize("dash", ["–", "—", "-"])
def test_a_line_is_key_reason_issue(dash: str) -> None:
    (entry,) = parse(f"# comment\n\n  MISMATCH:F-POS:positions {dash} one - or two - rows late {dash} #12  \n")
    assert (entry.key, entry.reason, entry.issue) == ("MISMATCH:F-POS:positions", "one - or two - rows late", "#12")
    assert entry.line == 3
    assert not entry.is_case


def test_a_signature_with_a_code_and_a_case_id_are_keys() -> None:
    entries = list(parse(f"{DIED.signature} – dies – #1\r\n{ID} – all of it – -\n"))
    assert [entry.key for entry in entries] == ["CRASH:exit-3:P-TABLE", ID]
    assert [entry.is_case for entry in entries] == [False, True]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("MISMATCH:F-POS:positions – no issue", ":1: want `case id or signature – reason – issue`"),
        ("\nMISMATCH:F-POS:positions", ":2: want"),
        ("MISMATCH:F-*:positions* – a pattern? – x\nMISMATCH:F-*:positions* – a – b", "stands in line 1 already"),
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


def test_present_failures_are_written_in_a_stable_order_and_keep_their_reasons(tmp_path: Path) -> None:
    entries = known(tmp_path, "MISMATCH:F-POS:positions – late – #1\nMISMATCH:F-KS:ks – gone – #9\n")
    target = tmp_path / "new.txt"
    entries.rewritten([ID, "MISMATCH:F-POS:positions", "CRASH:exit-3:-", ID]).save(target)
    lines = target.read_text(encoding="utf-8").splitlines()
    assert lines[1:] == [
        "CRASH:exit-3:- – unknown – -",
        "MISMATCH:F-POS:positions – late – #1",
        f"{ID} – unknown – -",
    ]
    assert list(KnownFailures.load(target).entries) == ["CRASH:exit-3:-", "MISMATCH:F-POS:positions", ID]
    with pytest.raises(KnownFailuresError, match="No such file"):
        entries.save(tmp_path / "no" / "folder.txt")
