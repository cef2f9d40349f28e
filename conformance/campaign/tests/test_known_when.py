"""Conditions of known failures, and what of a file's [[unsupported]] a run may grow to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from inputmeta.conformance.campaign.failures import Failure, seen_on
from inputmeta.conformance.campaign.known import KnownFailures, KnownFailuresError
from inputmeta.conformance.campaign.known_counts import Seen
from inputmeta.conformance.campaign.reducing import reduce_roots
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.files import case_id
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence, oracle_config
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.subjects.oracle import OracleSubject

CONFIG = Config(block_size=4, dense_ratios=(1, 4), window_size=2, swa_block_size=3, max_model_len=16, cp_size=2)
CASE = Case(schema=SCHEMA, path="prompt", config=CONFIG, steps=((Sequence(seqlen_q=1, seqlen_k=1),),))
LATE = Finding(Verdict.MISMATCH, 0, "positions", "F-POS", "wrong value", kind="value", path="prompt")
ENTRY = f'[[known]]\nsignature = "{LATE.signature}"\nreason = "late"\nissue = "#1"\n'


def known(tmp_path: Path, text: str, version: str = "") -> KnownFailures:
    file = tmp_path / "known.toml"
    file.write_text(text, encoding="utf-8")
    found = KnownFailures.load(file)
    found.version = version
    return found


@pytest.mark.parametrize(
    ("version", "holds"),
    [
        ("4.57", True), ("5.15.1", True), ("5.16", False), ("4.56.9", False), ("5.0rc1", True), ("", False),
        ("x-1", False),
    ],
)  # fmt: skip
def test_an_entry_may_hold_for_some_versions_alone(tmp_path: Path, version: str, holds: bool) -> None:
    entries = known(tmp_path, ENTRY + '[known.when]\nversion = ">=4.57,<5.16"\n', version)
    assert (entries.match(LATE, CASE) is not None) is holds
    # Of another version nothing is said: that it is not seen is as it should be.
    assert entries.unused() == []


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("block_size = 4", True),
        ("block_size = 8", False),
        ("dense_ratios = { contains = 1 }", True),
        ("dense_ratios = { contains = 2 }", False),
        ("dense_ratios = [1, 4]", True),
        ("dense_ratios = [4, 1]", False),
        ("cp_size = { at_least = 2 }", True),
        ("cp_size = { at_least = 3 }", False),
        ("cp_size = { at_most = 1 }", False),
        ("cp_size = { at_least = 1, at_most = 2 }", True),
        ('yoco_mode = "off"', True),
        ('yoco_mode = "mask"', False),
        ("force_load_balance = false", True),
        ("image_sentinel = { at_least = 0 }", False),
        ("block_size = 4\ncp_size = 1", False),
    ],
)
def test_an_entry_may_hold_for_some_configurations_alone(tmp_path: Path, condition: str, holds: bool) -> None:
    entries = known(tmp_path, f"{ENTRY}[known.when.config]\n{condition}\n")
    assert (entries.match(LATE, CASE) is not None) is holds
    assert [entry.name for entry in entries.unused()] == ([] if holds else list(entries.entries))


@pytest.mark.parametrize(
    ("when", "says"),
    [
        ("[known.when]\n", "key when: has neither `version` nor `config`"),
        ('[known.when]\nversion = "5.x to 6"\n', "key when.version: '5.x to 6' is no range"),
        ('[known.when]\nversion = " "\n', "key when.version: is empty"),
        ("[known.when]\nversion = 5\n", "Expected `str | null`, got `int` - at `$.when.version`"),
        ('[known.when]\nplatform = "x"\n', "unknown field `platform` - at `$.when`"),
        ("[known.when.config]\nblock = 4\n", "key when.config.block: there is none; there are block_size, "),
        ("[known.when.config]\nblock_size = 4.0\n", "got `float` - at `$.when.config[...]`"),
        ("[known.when.config]\nblock_size = true\n", "key when.config.block_size: want a whole number or at_least"),
        ("[known.when.config]\nblock_size = '4 or 1'\n", "key when.config.block_size: want a whole number"),
        ("[known.when.config]\nblock_size = { contains = 4 }\n", "key when.config.block_size: want a whole number"),
        ("[known.when.config]\nblock_size = { above = 4 }\n", "unknown field `above`"),
        ("[known.when.config]\nblock_size = {}\n", "key when.config.block_size: want a whole number"),
        ("[known.when.config]\ndense_ratios = { at_least = 4 }\n", "dense_ratios: want an array or contains"),
        ("[known.when.config]\ndense_ratios = 4\n", "dense_ratios: want an array or contains"),
        ("[known.when.config]\nyoco_mode = { at_least = 1 }\n", "yoco_mode: want a text"),
        ("[known.when.config]\nforce_load_balance = 1\n", "force_load_balance: want a bool"),
    ],
)
def test_what_is_no_condition_is_one_line(tmp_path: Path, when: str, says: str) -> None:
    with pytest.raises(KnownFailuresError) as caught:
        known(tmp_path, ENTRY + when)
    assert str(caught.value).startswith(f"{tmp_path / 'known.toml'}: entry 1: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_signature_may_have_several_entries_with_conditions_of_their_own(tmp_path: Path) -> None:
    two = (
        ENTRY + "[known.when.config]\ncp_size = 1\n" + ENTRY.replace("#1", "#2") + "[known.when.config]\ncp_size = 2\n"
    )
    found = known(tmp_path, two).match(LATE, CASE)
    assert found is not None
    assert found.issue == "#2"
    with pytest.raises(KnownFailuresError, match=r"entry 3: .* when cp_size 1 stands at entry 1 already"):
        known(tmp_path, two + ENTRY + "[known.when.config]\ncp_size = 1\n")


def test_conditions_survive_being_written(tmp_path: Path) -> None:
    text = ENTRY + '[known.when]\nversion = ">1"\nconfig = { block_size = 4, dense_ratios = { contains = 1 } }\n'
    other = ENTRY.replace("#1", "#9") + '[known.when]\nversion = "<1"\n'
    entries = known(tmp_path, text + other, "2.0")
    assert entries.match(LATE, CASE) is not None
    entries.write({LATE.signature: set()}, tmp_path / "new.toml")
    again = KnownFailures.load(tmp_path / "new.toml")
    assert set(again.entries) == set(entries.entries)
    assert [entry.issue for entry in again.entries.values()] == ["#9", "#1"]  # the other version's stays


def test_what_no_condition_covered_is_written_beside(tmp_path: Path) -> None:
    entries = known(tmp_path, ENTRY + "[known.when.config]\ncp_size = 2\n")
    alone = msgspec.structs.replace(CASE, config=msgspec.structs.replace(CONFIG, cp_size=1))
    assert entries.match(LATE, CASE) is not None
    assert entries.match(LATE, alone) is None
    entries.write({LATE.signature: set()}, tmp_path / "new.toml")
    again = KnownFailures.load(tmp_path / "new.toml")
    assert set(again.entries) == {LATE.signature, f"{LATE.signature} when cp_size 2"}
    assert again.entries[LATE.signature].reason == "unknown"


def test_a_batch_without_an_id_is_matched_by_its_configuration(tmp_path: Path) -> None:
    entries = known(tmp_path, ENTRY + "[known.when.config]\nblock_size = 4\n")
    assert entries.covering(LATE, None)
    assert entries.match(LATE, None, oracle_config(CONFIG)) is not None
    assert entries.match(LATE, None, oracle_config(msgspec.structs.replace(CONFIG, block_size=8))) is None


class Late(OracleSubject):
    """Positions are one late, whatever the configuration."""

    def build(self, request):
        result = dict(super().build(request))
        result["positions"] = result["positions"] + 1
        if request.out is not None:
            request.out["positions"][...] = result["positions"]
        return result


def test_a_new_failure_is_not_reduced_to_a_known_one(tmp_path: Path) -> None:
    """Small ranks are known: the reducer, which takes ranks away, has to stay above them."""
    config = msgspec.structs.replace(CONFIG, cp_size=5, dense_ratios=(1,))
    rows = Sequence(seqlen_q=3, seqlen_k=3, block_table=(7,), state_id=1, token_ids=(1, 2, 3))
    case = msgspec.structs.replace(CASE, config=config, steps=((rows,),))
    session = Session(Late())
    failures = [f for f in seen_on(case, session.run(case).findings, session.mark())
                if f.finding.signature == LATE.signature]  # fmt: skip
    assert failures
    free: list[Failure] = reduce_roots(session, failures, 5.0)
    assert free[0].case.config.cp_size == 1
    entries = known(tmp_path, ENTRY + "[known.when.config]\ncp_size = { at_most = 3 }\n")
    kept = reduce_roots(session, failures, 5.0, is_known=lambda finding, case: bool(entries.covering(finding, case)))
    assert kept[0].case.config.cp_size == 4
    assert case_id(kept[0].case) != case_id(case)


RECORDED = """
[[unsupported]]
reason = "klen: ratio 3"
part = "generated"
cases = 4
of = 100
seed = 1

[[unsupported]]
reason = "no rows"
part = "corpus"
cases = 2
of = 50
"""


@pytest.mark.parametrize(
    ("seen", "lines"),
    [
        (Seen("generated", 100, Counter({"klen: ratio 3": 4}), 1), []),
        (Seen("generated", 100, Counter({"klen: ratio 3": 3}), 1), []),
        (Seen("generated", 100, Counter({"klen: ratio 3": 5}), 1),
         ["generated: klen: ratio 3: 5 of 100 cases, recorded are 4 of 100"]),
        (Seen("generated", 100, Counter({"klen: ratio 3": 10}), 2), []),
        (Seen("generated", 100, Counter({"klen: ratio 3": 11}), 2),
         ["generated: klen: ratio 3: 11 of 100 cases, recorded are 4 of 100"]),
        (Seen("corpus", 50, Counter({"no rows": 2})), []),
        (Seen("corpus", 50, Counter({"no rows": 3})), ["corpus: no rows: 3 of 50 cases, recorded are 2 of 50"]),
        (Seen("corpus", 50, Counter({"klen: ratio 3": 1})), ["corpus: klen: ratio 3: 1 of 50 cases, not recorded"]),
    ],
)  # fmt: skip
def test_a_reason_that_grows_is_told(tmp_path: Path, seen: Seen, lines: list[str]) -> None:
    entries = known(tmp_path, RECORDED)
    entries.seen.append(seen)
    assert entries.grown() == [f"{tmp_path / 'known.toml'}: not built, {line}" for line in lines]
    without = known(tmp_path, ENTRY)
    without.seen.append(seen)
    assert without.grown() == []


def test_what_is_not_built_is_written_and_other_parts_stay(tmp_path: Path) -> None:
    entries = known(tmp_path, RECORDED)
    entries.seen.append(Seen("generated", 200, Counter({"no rows": 7, "x" * 400: 1}), 3))
    entries.write({}, tmp_path / "known.toml")
    again = KnownFailures.load(tmp_path / "known.toml")
    assert [(each.part, each.reason, each.cases, each.of, each.seed) for each in again.recorded] == [
        ("corpus", "no rows", 2, 50, None),
        ("generated", "no rows", 7, 200, 3),
        ("generated", "x" * 300, 1, 200, 3),
    ]
    again.seen = entries.seen
    assert again.grown() == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("cases = 4", "cases = 0"), "unsupported 1: Expected `int` >= 1 - at `$.cases`"),
        (("cases = 4", "cases = 101"), "unsupported 1: key cases: 101 of 100"),
        (("seed = 1", ""), "unsupported 1: key seed: generated cases have one, a corpus has none"),
        (("seed = 1", "seed = 1\nshare = 0.1"), "unsupported 1: Object contains unknown field `share`"),
        (('part = "corpus"', 'part = "trace"'), "unsupported 2: Invalid enum value 'trace' - at `$.part`"),
        (("no rows", "no\\u001b rows"), "unsupported 2: key reason: must be printable, on one line"),
        (("[[unsupported]]", "[[unsupportet]]"), "key unsupportet: there is none but `known` and `unsupported`"),
    ],
)
def test_what_is_no_record_is_one_line(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    with pytest.raises(KnownFailuresError) as caught:
        known(tmp_path, RECORDED.replace(*change, 1))
    assert says in str(caught.value)
    with pytest.raises(KnownFailuresError, match="unsupported 3: corpus, no rows stands twice"):
        known(tmp_path, RECORDED + '[[unsupported]]\nreason = "no rows"\npart = "corpus"\ncases = 1\nof = 1\n')
