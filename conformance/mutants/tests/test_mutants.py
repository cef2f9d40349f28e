"""Every mutant gets the verdict that is declared for it, by cases of the corpus; a few of each kind by fuzzing too."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.corpus import BUG_CLASSES, bundled_corpus, load_corpus
from inputmeta.conformance.cases.files import case_size
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.verdicts import RELATIONS, Verdict
from inputmeta.conformance.mutants import MUTANTS, Mutant
from inputmeta.conformance.mutants.mutant import Wrong
from inputmeta.conformance.mutants.runs import lacks_a_device, opened, put_to_check, run
from inputmeta.conformance.subjects import SubjectError, load_subject

LIVE = (
    "ALLOCATION",
    "ALIAS",
    "CONTAINER",
    "FORM",
    "HISTORY",
    "OUT",
    "OUT_OF_BOUNDS",
    "REFUSAL",
    "STALE",
    "UNWRITTEN",
    *BUG_CLASSES,
)
"""Kinds of mutants that leave the process whole."""
NAMED_BY_THE_ISSUE = (
    "segfault-at-one-length",
    "hangs-at-one-ratio",
    "illegal-access",
    "every-7th-call",
    "answer-for-the-previous-case",
    "mutates-its-input",
    "returns-int64",
    "leaves-the-last-row",
    "writes-one-past-the-end",
)
FUZZED = (
    "leaked-block",
    "freed-while-it-waits",
    "stale-row-after-a-swap",
    "slots-outlive-a-reset",
    "prefix-counted-twice",
    "wraps-before-it-checks",
    "wrong-after-a-refusal",
    "aborts-at-a-placeholder",
    "frame-of-nonsense",
    "wrong-by-luck",
    "sleeps-once",
    "wrong-in-every-second-process",
)
"""What a campaign adds to single cases: generated batches, spent time, replays. The command runs all mutants so."""


@cache
def corpus() -> tuple[Case, ...]:
    return tuple(sorted((case for _, case in load_corpus(bundled_corpus())), key=case_size))


def cases_for(mutant: Mutant) -> list[Case]:
    """The corpus in the order in which a mutant shows soonest: one plain case, then those of the formulas and
    preconditions that its name or its verdict has, then placeholders'.

    One that passes sees some cases of each.
    """
    mine = [case for case in corpus() if case.path in mutant.paths]
    padded = [case for case in mine if any(s.is_placeholder for step in case.steps for s in step)]
    plain = next(case for case in mine if case not in padded)
    if mutant.declared == Verdict.PASS:
        return [plain, *padded[:5], *mine[:5]]
    named = {mutant.formula, *re.split(r":| or ", mutant.declared)}
    tagged = [case for case in mine if named.intersection(case.tags)]
    return [plain, *tagged, *padded, *mine]


def signatures(session: Session, cases: list[Case]) -> tuple[set[str], int]:
    """Signatures on the first case that fails, relations left out, and how many passed before it."""
    for passed, case in enumerate(cases):
        found = {finding.signature for finding in session.run(case).findings if finding.formula not in RELATIONS}
        if found:
            return found, passed
    return set(), len(cases)


def in_this_process(mutant: Mutant) -> Mutant:
    """The mutant, in this process if that survives it."""
    lives = mutant.kind in LIVE or mutant.declared.startswith("CRASH:raised")
    return dataclasses.replace(mutant, in_process=lives)


SHOWN = {name: in_this_process(mutant) for name, mutant in MUTANTS.items() if mutant.label != "flaky"}
WAITS = {
    *("takes-all-memory", "hangs-at-one-ratio", "hangs-and-will-not-end", "leaks-memory", "closes-stdout"),
    "stops-in-the-middle",
}
"""Mutants whose verdict takes seconds of waiting; `deadlocks` shows a hang within ci/test."""


@pytest.mark.parametrize(
    "mutant", [pytest.param(m, id=name, marks=[pytest.mark.slow] if name in WAITS else []) for name, m in SHOWN.items()]
)
def test_the_corpus_shows_it_by_the_declared_verdict(mutant: Mutant) -> None:
    if lacks_a_device(mutant):
        pytest.skip("no CUDA device")
    cases = cases_for(mutant)
    with opened(mutant) as session:
        found, passed = signatures(session, cases)
    if mutant.declared == Verdict.PASS:
        assert found == set()
        return
    assert found, "no case shows it"
    assert [signature for signature in found if not mutant.fits(signature)] == []
    if mutant.make is None:  # a program may be wrong for another reason: it is right until it spoils an answer
        assert passed > 0
    if mutant.in_process and mutant.label == "deterministic":  # alone, by another subject of that name
        with opened(mutant) as session:
            assert signatures(session, [cases[passed]]) == (found, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUZZED)
def test_fuzzing_shows_it_by_the_declared_verdict(name: str) -> None:
    mutant = MUTANTS[name]
    result = run(mutant, shrink_seconds=0, examine=mutant.label == "flaky")
    assert result.right, result


SHRUNK = {"leaves-the-last-row": (1, 1), "grows-at-a-repeat": (1, 1)}
"""At most so many steps and sequences in the minimal case."""


@pytest.mark.parametrize(("name", "size"), SHRUNK.items(), ids=SHRUNK.keys())
def test_its_case_is_small(name: str, size: tuple[int, int]) -> None:
    result = run(dataclasses.replace(MUTANTS[name], in_process=True), shrink_seconds=8)
    assert result.right, result
    assert (result.steps, result.sequences) <= size
    assert result.size < 700


@pytest.mark.parametrize("name", ["prefix-counted-twice", "memo-by-shape"])
def test_a_run_is_the_same_every_time(name: str) -> None:
    mutant = dataclasses.replace(MUTANTS[name], in_process=True)
    once, again = (run(mutant, shrink_seconds=0, examine=False) for _ in range(2))
    assert once == msgspec.structs.replace(again, seconds=once.seconds)


@pytest.mark.parametrize("declared", ["MISMATCH:F-POS:position_ids", "UNWRITTEN:F-POS:positions", "PASS"])
def test_a_verdict_that_is_not_the_declared_one_is_wrong(declared: str) -> None:
    mutant = dataclasses.replace(MUTANTS["returns-int64"], in_process=True)
    assert run(mutant, shrink_seconds=0).right
    assert not run(dataclasses.replace(mutant, declared=declared), shrink_seconds=0, examine=False).right
    assert not run(dataclasses.replace(mutant, label="flaky"), shrink_seconds=0).right


def test_a_mutant_that_does_nothing_wrong_is_noticed() -> None:
    quiet = MUTANTS["prints-to-stdout"]
    tame = dataclasses.replace(quiet, declared="MISMATCH", paths=("decode",))
    result = run(tame, seconds=0.5, shrink_seconds=0, examine=False)
    assert not result.right
    assert [msgspec.structs.replace(result, check=check).missed for check in (None, True, False)] == [
        False,
        False,
        True,
    ]


@pytest.mark.slow
def test_check_catches_a_changed_line_by_the_corpus_and_says_by_how_many_cases() -> None:
    mutant = MUTANTS["P-RATIO.ring-unchecked"]
    result = run(mutant, shrink_seconds=0, examine=False)
    put_to_check(mutant, result)
    assert (result.check, result.missed) == (True, False)
    assert result.corpus_cases is not None
    assert 0 < result.corpus_cases < len(corpus()) // 10


def test_the_mutants_are_what_they_should_be() -> None:
    kinds = {mutant.kind for mutant in MUTANTS.values()}
    assert len(MUTANTS) >= 140
    assert set(BUG_CLASSES) <= kinds
    assert {"CRASH", "HANG", "MEMORY", "WIRE", "DEVICE_ERROR", "FLAKY", "REFUSAL"} <= kinds
    assert set(NAMED_BY_THE_ISSUE) <= MUTANTS.keys()
    assert all(mutant.stands_for and mutant.declared for mutant in MUTANTS.values())
    assert {mutant.declared.partition(":")[0] for mutant in MUTANTS.values()} >= {
        *(verdict for verdict in Verdict if verdict not in (Verdict.UNSUPPORTED, Verdict.KNOWN, Verdict.SUITE))
    }
    assert MUTANTS.keys() - SHOWN.keys() <= set(FUZZED)


def test_it_is_a_subject_by_name() -> None:
    assert isinstance(load_subject("mutant:returns-int64"), Wrong)
    assert load_subject("mutant:F-POS.one-late").name == "mutant:F-POS.one-late"
    with pytest.raises(SubjectError, match=r"mutant copy-share: none of the \d+ mutants; near to it: copy-shares"):
        load_subject("mutant:copy-share")
    assert load_subject("mutant:sequence-in-uint8").name == "mutant:sequence-in-uint8"
    with pytest.raises(
        SubjectError, match=r"a program, --subject-command 'python -m inputmeta\.conformance\.mutants\.programs answers"
    ):
        load_subject("mutant:answers-twice")


def command_of_the_suite(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from inputmeta.conformance.commands.main import main; main()"
    command = [sys.executable, "-c", code, *arguments, "--subject", "mutant:raises-in-escapes"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_nothing_that_a_subject_says_reaches_the_terminal_or_a_file(tmp_path: Path) -> None:
    options = ("--path", "decode", "--seed", "1", "--seconds", "20", "--save-dir", str(tmp_path), "--in-process")
    fuzzed = command_of_the_suite("fuzz", *options)
    files = sorted(tmp_path.glob("*.json"))
    assert files != []
    replayed = command_of_the_suite("replay", str(files[0]))
    texts = [path.read_text(encoding="utf-8") for path in files]
    for done in (fuzzed, replayed):
        assert done.returncode == exits.DIFFERS, done.stderr
        assert "raised ValueError: ?]0;owned??[2J?gnp" in done.stdout
        texts += [done.stdout, done.stderr]
    assert all(line.isprintable() for text in texts for line in text.split("\n"))


def test_its_workers_start_without_the_large_packages() -> None:
    code = (
        "import sys, inputmeta.conformance.mutants, inputmeta.conformance.protocol.serve;"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'hypothesis', 'rich', 'typer'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
