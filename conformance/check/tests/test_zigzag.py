"""What must hold of every zigzag flavour, and faults of each relation that are seen."""

import dataclasses

import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance.cases.model import SCHEMA, Case, case_config, case_sequences
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.compare import compare_fields
from inputmeta.conformance.check.relations import RelationError
from inputmeta.conformance.check.runner import ValidStep, contradictions, run_case, wanted_fields
from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.check.zigzag import flavour_is_kept, held_to_relations, spread_holds
from inputmeta.conformance.dialects import BALANCED, CEIL, ROUND_ROBIN, Flavour, rank_rows, reverse_of
from inputmeta.conformance.dialects.flavours import FLAVOURS as FLAVOURS_BY_DIALECT
from inputmeta.conformance.subjects.base import Result
from inputmeta.conformance.subjects.oracle import OracleSubject

LENGTHS = [9, 0, 17, 1, 8]
FLAVOURS = (CEIL, BALANCED, ROUND_ROBIN)


@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda flavour: flavour.name)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_flavour_holds_on_any_lengths(flavour: Flavour, ranks: int) -> None:
    for lengths in (LENGTHS, [0], [1], [2 * ranks], [2 * ranks + 1, 4 * ranks - 1], [3, 2, 40]):
        held = rank_rows(lengths, ranks, flavour)
        spread_holds(held, reverse_of(held, sum(lengths)), lengths, flavour)


CONFIG = oracle.MetadataConfig(
    block_size=4, window_size=2, swa_block_size=4, max_model_len=64, dense_ratios=(2,), sparse_ratios=(4,), cp_size=2
)
CHUNKS = [
    oracle.SequenceMetadata(seqlen_q=9, seqlen_k=k, block_table=(0, 1, 2, 3), token_ids=tuple(range(16)), state_id=k)
    for k in (9, 12)
]


class Flavoured:
    """The oracle with its mirror in another flavour, as an engine would build it."""

    def __init__(self, flavour: Flavour, name: str) -> None:
        self.flavour, self.name = flavour, f"mirror in {flavour.name}"
        fields = frozenset(oracle.FIELDS) - {"gate_force_random_cp"}
        self.capabilities = dataclasses.replace(
            OracleSubject().capabilities, in_place=False, dialects=frozenset({name}), fields=fields,
            yoco_modes=frozenset({"off"}),
        )  # fmt: skip

    def build(self, request: Request) -> Result:
        fields = dict(OracleSubject().build(request))
        config = request.config
        if request.path != "prompt" or config.cp_size == 1:
            return fields
        plain = dataclasses.replace(request, config=dataclasses.replace(config, cp_size=1, cp_rank=0))
        full = OracleSubject().build(plain)
        held = rank_rows([s.seqlen_q for s in request.sequences], config.cp_size, self.flavour)
        total = int(full["total_q"])
        index = held[config.cp_rank].astype(np.int32)
        index = index if len(index) else np.array([-1], dtype=np.int32)
        fields |= {
            "mirror_cp_index": index,
            "mirror_cp_reverse_index": reverse_of(held, max(1, total)).astype(np.int32),
            "cp_mirror_len": len(held[0]),
        }
        for key in fields:
            field = oracle.FIELDS[key.partition(".")[0]]
            if field.mirrored:
                rows = np.asarray(full[key])[np.maximum(index, 0)]
                rows[index < 0] = field.neutral_cell(config)
                fields[key] = rows
        return self.spoilt(request, fields)

    def spoilt(self, request: Request, fields: dict) -> dict:
        """For the faults below."""
        return fields


def details(subject: Flavoured, **changes: object) -> list[str]:
    """What running prompts of it finds."""
    config = dataclasses.replace(CONFIG, **changes)
    found = []
    for rank in range(config.cp_size):
        request = Request("prompt", dataclasses.replace(config, cp_rank=rank), CHUNKS)
        found += [found.detail for found in run_requests(subject, request)]
    return found


def run_requests(subject: Flavoured, request: Request) -> list[Finding]:
    """Comparison and relations of one valid batch."""
    wanted, _ = wanted_fields(request, subject)
    step = ValidStep(0, request, wanted)
    findings = compare_fields(wanted, subject.build(request))
    return findings or list(contradictions(subject, step))


@pytest.mark.parametrize("name", FLAVOURS_BY_DIALECT)
def test_a_subject_of_another_flavour_conforms_under_its_dialect(name: str) -> None:
    flavour = FLAVOURS_BY_DIALECT[name]
    for ranks in (1, 2, 3):
        assert not details(Flavoured(flavour, name), cp_size=ranks)
    other = "zigzag-balanced" if name == "zigzag-round-robin" else "zigzag-round-robin"
    assert details(Flavoured(flavour, other))
    assert details(Flavoured(flavour, "its-own"))


def test_a_row_that_is_gathered_wrongly_is_seen_in_a_flavour() -> None:
    class Wrong(Flavoured):
        def spoilt(self, request: Request, fields: dict) -> dict:
            fields["ke.4"][1] += request.config.cp_rank
            return fields

    (first, *_) = details(Wrong(BALANCED, "zigzag-balanced"))
    assert first == "rank 1: ke.4[1], of query row 4, is 2, not 1"

    class Shorter(Flavoured):
        def spoilt(self, request: Request, fields: dict) -> dict:
            return fields | {"cp_mirror_len": fields["cp_mirror_len"] - 1}

    (first, *_) = details(Shorter(BALANCED, "zigzag-balanced"))
    assert first == "rank 0: cp_mirror_len is 9, its index has 10 rows"


def test_what_relations_hold_is_not_said_to_be_left_out() -> None:
    subject = Flavoured(BALANCED, "zigzag-balanced")
    request = Request("prompt", CONFIG, CHUNKS)
    assert wanted_fields(request, subject)[1] == {"gate_force_random_cp"}
    able = subject.capabilities
    subject.capabilities = dataclasses.replace(able, fields=able.fields - {"mirror_cp_index"})
    assert {"mirror_cp_index", "positions", "ke"} <= wanted_fields(request, subject)[1]


def test_fields_that_relations_hold_are_counted() -> None:
    case = Case(schema=SCHEMA, path="prompt", config=case_config(CONFIG), steps=(case_sequences(CHUNKS),))
    subject = Flavoured(BALANCED, "zigzag-balanced")
    outcome = run_case(case, subject, containers=False)
    held = held_to_relations(subject.capabilities, Request("prompt", CONFIG, CHUNKS))
    assert (outcome.findings, outcome.related) == ([], len(held))
    assert held
    assert run_case(case, OracleSubject(), containers=False).related == 0
    assert run_case(case, Flavoured(BALANCED, "zigzag-round-robin"), containers=False).related == 0


def test_the_oracle_keeps_the_specifications_flavour_and_no_other() -> None:
    request = Request("prompt", CONFIG, CHUNKS[:1])
    flavour_is_kept(OracleSubject(), request, CEIL)
    with pytest.raises(RelationError, match="sequence 0, rank 0: 3 rows, want 4 to 5 of 9"):
        flavour_is_kept(OracleSubject(), request, BALANCED)


def test_the_reported_cut_of_9_rows_on_2_ranks() -> None:
    assert [len(rows[rows >= 0]) for rows in rank_rows([9], 2, BALANCED)] == [5, 4]
    assert [len(rows[rows >= 0]) for rows in rank_rows([9], 2, CEIL)] == [3, 6]


def swapped(held: list[np.ndarray], rank: int, a: int, b: int) -> list[np.ndarray]:
    """The ranks' rows with two of one rank exchanged."""
    rows = held[rank].copy()
    rows[[a, b]] = rows[[b, a]]
    return [*held[:rank], rows, *held[rank + 1 :]]


def test_each_relation_is_seen_to_break() -> None:
    held = rank_rows([16], 2, BALANCED)  # rank 0: 0-3 and 12-15, rank 1: 4-11
    reverse = reverse_of(held, 16)
    twice = [held[0], np.where(held[1] == 5, 4, held[1])]
    with pytest.raises(RelationError, match="not each of 16 once"):
        spread_holds(twice, reverse, [16], BALANCED)
    with pytest.raises(RelationError, match=r"mirror_cp_reverse_index\[\[0\]\] leads to row"):
        spread_holds(held, np.roll(reverse, 1), [16], BALANCED)
    with pytest.raises(RelationError, match="has 15 rows, not 16"):
        spread_holds(held, reverse[:15], [16], BALANCED)
    wrong = swapped(held, 0, 1, 2)
    with pytest.raises(RelationError, match=r"sequence 0, rank 0: rows \[0, 2, 1, .*do not ascend"):
        spread_holds(wrong, reverse_of(wrong, 16), [16], BALANCED)
    wrong = [np.array([*range(0, 3), *range(12, 16), -1, -1]), np.arange(3, 12)]
    with pytest.raises(RelationError, match="rank 0: 7 rows, want 8 to 8 of 16"):
        spread_holds(wrong, reverse_of(wrong, 16), [16], BALANCED)
    wrong = [np.array([*range(0, 4), *range(8, 12)]), np.array([*range(4, 8), *range(12, 16)])]
    with pytest.raises(RelationError, match=r"begin at \[0, 4\] and end at \[11, 15\]: no zigzag"):
        spread_holds(wrong, reverse_of(wrong, 16), [16], BALANCED)
    wrong = [np.arange(8), np.arange(8, 16)]
    with pytest.raises(RelationError, match="are not 2 apart"):
        spread_holds(wrong, reverse_of(wrong, 16), [16], ROUND_ROBIN)
    with pytest.raises(RelationError, match="not all the same"):
        spread_holds([np.arange(3), np.array([3])], reverse, [4], CEIL)


def test_sequences_in_the_wrong_order_are_seen() -> None:
    held = rank_rows([4, 4, 4], 1, ROUND_ROBIN)
    wrong = [np.roll(held[0], 4)]
    with pytest.raises(RelationError, match="descend 1 times, at most 0"):
        spread_holds(wrong, reverse_of(wrong, 12), [4, 4, 4], ROUND_ROBIN)
    thrice = [np.array([8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3])]
    with pytest.raises(RelationError, match="descend 2 times, at most 1"):
        spread_holds(thrice, reverse_of(thrice, 12), [4, 4, 4], BALANCED)
