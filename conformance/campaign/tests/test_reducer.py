"""The reducer: what it ends with fails in the same way, is valid, and no single step further still fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from inputmeta.conformance.campaign.columns import COLUMNS, in_small_blocks
from inputmeta.conformance.campaign.generated import generated_cases, profile_of
from inputmeta.conformance.campaign.parts import Parts, without_unread
from inputmeta.conformance.campaign.reducer import Reducer, TimeUp, reduce_case
from inputmeta.conformance.cases.files import CaseError, check_case
from inputmeta.conformance.cases.model import SCHEMA, Allocation, AllocationStep, Case, Config, Gather, Sequence, Varlen
from inputmeta.conformance.cases.request import broken_by
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.interrupts import Interrupted
from inputmeta.conformance.subjects.paged import PagedSubject
from inputmeta.oracle import PATHS, most_needed

FOUND = Finding(Verdict.MISMATCH, 0, None, "-", "", path="decode")
CONFIG = Config(
    block_size=128, dense_ratios=(1,), sparse_ratios=(4,), window_size=128, swa_block_size=256, max_model_len=4096
)


def decode(index: int) -> Sequence:
    length = 297 + index % 64
    table = tuple(range(index * 4, index * 4 + 4))
    return Sequence(
        seqlen_q=4,
        seqlen_k=length + 3,
        block_table=table,
        state_id=index,
        token_ids=tuple(range(length)),
        draft_tokens=(1, 2, 3),
    )


def prompt(index: int) -> Sequence:
    sequence = decode(index)
    return msgspec.structs.replace(sequence, draft_tokens=(), token_ids=tuple(range(sequence.seqlen_k)))


DECODE = Case(schema=SCHEMA, path="decode", config=CONFIG, steps=(tuple(map(decode, range(48))),) * 3)
PROMPT = Case(schema=SCHEMA, path="prompt", config=CONFIG, steps=(tuple(map(prompt, range(80))),))
ZOS = msgspec.structs.replace(
    DECODE,
    path="decode_zos",
    steps=DECODE.steps[:1],
    gather=(
        Gather(
            fresh_input_ids=tuple(range(192)),
            prev_sampled=tuple(range(64)),
            prev_predict=((5, 6, 7, 8),) * 64,
            remap=tuple(range(48)),
        ),
    ),
)

VARLEN = msgspec.structs.replace(
    ZOS,
    gather=(
        msgspec.structs.replace(
            ZOS.gather[0],
            remap=tuple(range(63, 15, -1)),
            varlen=Varlen(
                seqlens_q=tuple(1 + index % 4 for index in range(48)),
                prev_seqlens_q=tuple(1 + row % 7 + row % 3 for row in range(64)),
                prev_num_accepted_tokens=tuple(row % 3 for row in range(64)),
            ),
        ),
    ),
)

Fault = Callable[[Case], bool]


def every(case: Case) -> list[Sequence]:
    return [sequence for step in case.steps for sequence in step]


def lengths(case: Case) -> list[tuple[Sequence, int, int]]:
    """Of steps of variable length: each sequence, the rows that are left out of it, the drafts that it lost."""
    found = []
    for step, gather in zip(case.steps, case.gather, strict=False):
        varlen = None if gather is None else gather.varlen
        if varlen is not None:
            for sequence, rows, place in zip(step, varlen.seqlens_q, gather.remap, strict=True):
                lost = varlen.prev_seqlens_q[place] - 1 - varlen.prev_num_accepted_tokens[place] if place >= 0 else 0
                found.append((sequence, sequence.seqlen_q - rows, lost))
    return found


FAULTS: dict[str, tuple[Case, Fault, str]] = {
    "one state": (DECODE, lambda case: any(s.state_id == 33 for s in every(case)), "state_id of sequence 0: 33 fails"),
    "row 256": (
        PROMPT,
        lambda case: any(sum(s.seqlen_q for s in step) > 256 for step in case.steps),
        "from row 256 of a chunk on: 257 query rows of sequence 0 fail, 256 pass",
    ),
    "sequence 16": (PROMPT, lambda case: len(case.steps[0]) > 16, "17 sequences fail, one fewer passes"),
    "two steps": (DECODE, lambda case: len(case.steps) > 1, "2 steps fail, one fewer passes"),
    "position": (
        PROMPT,
        lambda case: any(s.seqlen_k > 290 and s.seqlen_q > 1 for s in every(case)),
        "tokens of context of sequence 0: 289 fails, 288 passes",
    ),
    "block id": (
        DECODE,
        lambda case: any(max(s.block_table, default=0) >= 100 for s in every(case)),
        "entries of block_table of sequence 0: 100 fails, 99 passes",
    ),
    "ring": (DECODE, lambda case: case.config.swa_block_size > 200, "swa_block_size: 201 fails, 200 passes"),
    "two of a kind": (DECODE, lambda case: len({s.state_id for s in every(case)}) > 4, "state_id of sequence 4"),
    "one of three": (
        DECODE,
        lambda case: len(every(case)) > 2 and any(s.state_id >= 30 for s in every(case)),
        "30 fails, 29 passes; 3 sequences fail, one fewer passes",
    ),
    "gathered": (
        ZOS,
        lambda case: any(gather is not None and max(gather.remap, default=0) >= 20 for gather in case.gather),
        "remap + 1 of sequence 0: 21 fails, 20 passes",
    ),
    "rejected": (
        VARLEN,
        lambda case: any(s.state_id == 33 and lost > 1 for s, _, lost in lengths(case)),
        "rejected drafts of the last step: 2 fails, 1 passes",
    ),
    "left out": (
        VARLEN,
        lambda case: any(left > 1 for _, left, _ in lengths(case)),
        "rows left out by F-VARLEN of sequence 0: 2 fails, 1 passes",
    ),
}


def probe_of(fault: Fault, seen: list[Case] | None = None) -> Callable[[Case], Finding | None]:
    def probe(case: Case) -> Finding | None:
        if seen is not None:
            seen.append(case)
        return FOUND if fault(case) else None

    return probe


def allowed(case: Case) -> bool:
    try:
        check_case(case)
    except CaseError:
        return False
    return bool(case.steps) and not broken_by(case)


def problems(case: Case, fault: Fault) -> list[str]:
    """What is wrong with a case that a reducer ended with: it passes, or a single step further still fails."""
    parts = Parts.of(case)
    further = {"a sequence less": [parts.only([p for p in parts.places if p != one]) for one in parts.places]}
    for column in COLUMNS:
        further[column.name] = [
            column.cut(parts, {place: value})
            for place, now in column.above(parts).items()
            for value in (now - 1, column.least)
        ]
    found = [] if fault(case) else ["it passes"]
    for what, made in further.items():
        smaller = [each.case() for each in made]
        found += [what for each in smaller if allowed(each) and each != parts.case() and fault(each)]
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_reduced_to_its_threshold(name: str) -> None:
    case, fault, threshold = FAULTS[name]
    seen: list[Case] = []
    reduced = reduce_case(case, FOUND, probe_of(fault, seen))
    assert problems(reduced.case, fault) == []
    assert threshold in str(reduced), str(reduced)
    assert str(reduced).startswith("reduced until no single step further fails")
    assert all(allowed(each) for each in seen)
    again: list[Case] = []
    assert reduce_case(case, FOUND, probe_of(fault, again)) == reduced
    assert again == seen
    assert len(seen) < 400


class Hasty(Reducer):
    """Leaves out what every sequence has apart."""

    def _places(self) -> None:
        pass


class Coarse(Reducer):
    """Halves, and nothing finer."""

    def _least(self, high: int, make: Callable[[int], Parts], *, least: int) -> None:
        while high // 2 > least and self._fails(make(high // 2)):
            high //= 2


class Careless(Reducer):
    """Ends with the last case that it tried, whether that failed or not."""

    last: Case

    def _fails(self, parts: Parts) -> bool:
        if self._allowed(parts.case()):
            self.last = parts.case()
        return super()._fails(parts)

    def run(self) -> str:
        ended = super().run()
        self.case = self.last
        return ended


class Random(Reducer):
    """Goes through its moves in an order of its own."""

    def _fewer_at_once(self) -> None:
        chosen = random.sample(self.parts.places, 40)
        self._keep(sorted(chosen))


@pytest.mark.parametrize("planted", [Hasty, Coarse, Careless])
def test_a_reducer_that_is_wrong_is_seen(planted: type[Reducer]) -> None:
    found = []
    for name in ("one of three", "ring"):
        case, fault, _ = FAULTS[name]
        reducer = planted(case, FOUND, probe_of(fault))
        reducer.run()
        found += problems(reducer.case, fault)
    assert found


def test_a_reducer_that_draws_is_seen() -> None:
    case, fault, _ = FAULTS["one state"]
    orders = []
    for _ in range(4):
        seen: list[Case] = []
        Random(case, FOUND, probe_of(fault, seen)).run()
        orders.append(seen)
    assert any(each != orders[0] for each in orders)


@pytest.mark.parametrize("ends", [TimeUp("time was up"), Interrupted("interrupted (SIGTERM)", 143)])
def test_what_ends_a_search_leaves_the_best_so_far(ends: BaseException) -> None:
    case, fault, _ = FAULTS["row 256"]
    runs = 0

    def probe(candidate: Case) -> Finding | None:
        nonlocal runs
        runs += 1
        if runs == 20:
            raise ends
        return FOUND if fault(candidate) else None

    reduced = reduce_case(case, FOUND, probe)
    assert fault(reduced.case)
    assert len(every(reduced.case)) < len(every(case))
    assert str(reduced).startswith(f"not fully reduced: {ends} (20 cases run)")


GENERATED = generated_cases(Profile(paths=("prompt", "decode", "decode_zos"), max_cp_size=4), 5, 60)


def test_whatever_is_generated_is_reduced_and_stays_what_it_was() -> None:
    for case in GENERATED:
        broken = {error.condition for _, error in broken_by(case)}
        if broken:  # a subject that takes it

            def fault(each: Case, broken: set[str] = broken) -> bool:
                return {error.condition for _, error in broken_by(each)} == broken

            reduced = reduce_case(case, FOUND, probe_of(fault)).case
            assert fault(reduced)
            if "P-INT32:window-total" in case.tags:  # n_seq * W: with the W that was drawn, every one is needed
                assert "a sequence less" not in problems(reduced, fault)
            else:
                assert len(every(reduced)) <= max(1, len(broken))
            continue
        rows = max(sum(s.seqlen_q for s in step) for step in case.steps)

        def deep(each: Case, rows: int = rows) -> bool:
            return max(sum(s.seqlen_q for s in step) for step in each.steps) >= rows

        reduced = reduce_case(case, FOUND, probe_of(deep)).case
        assert problems(reduced, deep) == []


def test_all_that_belongs_together_is_cut_together() -> None:
    parts = Parts.of(ZOS)
    assert parts.case() == ZOS
    fewer = parts.only([(0, 2), (0, 5)]).case()
    assert fewer.gather[0] == msgspec.structs.replace(
        ZOS.gather[0], fresh_input_ids=tuple(range(8, 12)) + tuple(range(20, 24)), remap=(2, 5)
    )
    check_case(fewer)
    assert replace(parts, steps=parts.steps[:1]).case() == ZOS


def test_sequences_are_dropped_from_all_that_a_step_of_variable_length_has() -> None:
    parts = Parts.of(VARLEN)
    assert parts.case() == VARLEN
    fewer = parts.only([(0, 2), (0, 5)])
    varlen = VARLEN.gather[0].varlen
    assert fewer.case().gather[0].varlen == msgspec.structs.replace(varlen, seqlens_q=(3, 2))
    read = without_unread(fewer).case()
    assert read.gather == (
        Gather(
            fresh_input_ids=tuple(range(8, 12)) + tuple(range(20, 24)),
            prev_sampled=(58, 61),
            prev_predict=((5, 6, 7, 8),) * 2,
            remap=(1, 0),
            varlen=Varlen(seqlens_q=(3, 2), prev_seqlens_q=(4, 7), prev_num_accepted_tokens=(1, 1)),
        ),
    )
    check_case(read)
    reduced = reduce_case(VARLEN, FOUND, probe_of(FAULTS["rejected"][1])).case
    assert reduced.gather == (
        Gather(
            fresh_input_ids=(0,),
            prev_sampled=(0,),
            prev_predict=((),),
            remap=(0,),
            varlen=Varlen(seqlens_q=(1,), prev_seqlens_q=(3,), prev_num_accepted_tokens=(0,)),
        ),
    )


def test_a_broken_step_whose_lengths_do_not_fit_it_is_reduced() -> None:
    """What is refused for a precondition need not fit: there is nothing to take apart by sequences."""
    sequences = (*VARLEN.steps[0][:8], msgspec.structs.replace(VARLEN.steps[0][8], block_table=()))
    gather = msgspec.structs.replace(VARLEN.gather[0], fresh_input_ids=(0,) * 36, remap=(-1,) * 9)
    case = msgspec.structs.replace(VARLEN, steps=(sequences,), gather=(gather,))
    check_case(case)
    assert Parts.of(case).case() == case
    reduced = reduce_case(case, FOUND, lambda each: FOUND if broken_by(each) else None).case
    assert (len(every(reduced)), reduced.gather) == (1, ())


def test_generated_cases_are_taken_apart_and_put_together() -> None:
    varying = 0
    for case in generated_cases(Profile(paths=("decode_zos",)), 3, 60):
        again = Parts.of(case).case()
        assert (again.steps, again.gather) == (case.steps, case.gather if any(case.gather) else ())
        varying += any(gather is not None and gather.varlen is not None for gather in case.gather)
    assert varying > 5


def test_in_small_blocks_a_valid_case_stays_valid_and_has_as_many_of_them() -> None:
    smaller = 0
    for case in generated_cases(Profile(), 11, 100):
        if broken_by(case) or case.max_num_blocks is not None or case.gather:
            continue
        small = in_small_blocks(Parts.of(case)).case()
        assert allowed(small), broken_by(small)
        before, after = every(case), every(small)
        assert all(len(one.block_table) <= len(two.block_table) for one, two in zip(before, after, strict=True))
        assert [sequence.seqlen_q for sequence in before] == [sequence.seqlen_q for sequence in after]
        smaller += sum(sequence.seqlen_k for sequence in after) < sum(sequence.seqlen_k for sequence in before)
    assert smaller > 10


HISTORIES = profile_of(PagedSubject().capabilities, PATHS)


def test_histories_are_taken_apart_and_put_together_and_stay_histories() -> None:
    smaller = 0
    for case in generated_cases(HISTORIES, 3, 25):
        parts = Parts.of(case)
        assert parts.case() == case
        assert parts.mended().case() == case
        some = [place for place in parts.places if sum(place) % 2]
        for fewer in (parts.only(some or parts.places), parts.with_ends(()), parts.renumbered()):
            check_case(fewer.mended().case())
        smaller += parts.only(some).mended().case().allocation.num_blocks < case.allocation.num_blocks
    assert smaller > 8


def test_a_request_that_loses_a_step_goes_on_where_it_was_and_its_pool_shrinks() -> None:
    """Requests 7 and 9 grow by a block a step; 9 ends before the last one. A block more than is needed stays."""
    sequences = tuple(decode_at(begin) for begin in (0, 4, 8))
    case = Case(
        schema=SCHEMA,
        path="decode",
        config=msgspec.structs.replace(CONFIG, block_size=4, window_size=2, swa_block_size=2),
        steps=((sequences[0], sequences[0]), (sequences[1], sequences[1]), (sequences[2],)),
        allocation=Allocation(
            num_blocks=5,
            num_states=2,
            steps=(
                AllocationStep(requests=(7, 9)),
                AllocationStep(requests=(9, 7)),
                AllocationStep(requests=(7,), ended=(9,)),
            ),
        ),
    )
    check_case(case)
    fewer = Parts.of(case).only([(0, 0), (2, 0)]).mended().renumbered().case()
    check_case(fewer)
    assert [(s.seqlen_q, s.seqlen_k) for s in every(fewer)] == [(4, 4), (4, 8)]
    assert fewer.allocation == Allocation(
        num_blocks=3,
        num_states=1,
        steps=(AllocationStep(requests=(0,)), AllocationStep(requests=(0,))),
    )

    def grows(each: Case) -> bool:
        return most_needed(each.steps, each.allocation, each.config.block_size).blocks > 1

    reduced = reduce_case(case, FOUND, probe_of(grows)).case
    assert problems(reduced, grows) == []
    assert (reduced.config.block_size, [(s.seqlen_q, s.seqlen_k) for s in every(reduced)]) == (1, [(2, 2)])


def decode_at(begin: int) -> Sequence:
    return Sequence(seqlen_q=4, seqlen_k=begin + 4, token_ids=tuple(range(begin + 1)), draft_tokens=(0, 0, 0))
