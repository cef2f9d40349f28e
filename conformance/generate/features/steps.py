"""F-GATHER, F-STACK and what several steps on one set of buffers show."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from inputmeta.conformance.cases.model import Case, Gather, Sequence, Varlen

from ..int32 import block_count
from .facts import Step
from .feature import DECODE, OF_SEQUENCES, PROMPT, SMALL, ZOS, Conditions, Feature, holding

_order = partial(Feature, multi_step=True)
_varlen = partial(Feature, paths=ZOS, varlen=True)

FEATURES = (
    Feature("F-GATHER:fresh", "a sequence that reads fresh_input_ids", ("SPEC",), ZOS),
    Feature("F-GATHER:continues", "a sequence that reads the last step's sample", ("SPEC",), ZOS),
    Feature("F-GATHER:mixed", "fresh and continuing sequences in one step", ("SPEC", "CU"), ZOS),
    Feature("F-GATHER:permuted", "sequences that changed places since the last step", ("SPEC", "STALE"), ZOS),
    Feature("F-GATHER:drafts", "a continuing sequence with drafts", ("SPEC",), ZOS),
    Feature("F-GATHER:wide", "more predictions than any sequence takes", ("SPEC", "BT"), ZOS),
    Feature("F-GATHER:unequal", "continuing sequences of unequal length", ("SPEC", "CU"), ZOS),
    Feature("F-GATHER:one-row", "two sequences that continue from one row", ("SPEC",), ZOS),
    Feature("F-GATHER:no-last-step", "nothing sampled before: prev_sampled is empty", ("ZERO",), ZOS),
    Feature("F-GATHER:other-negative", "a remap below -1", ("SENT",), ZOS),
    _varlen("F-VARLEN:fewer-rows", "a sequence with fewer rows than extracted", ("SPEC", "CU")),
    _varlen("F-VARLEN:rows-move", "a row behind a shortened sequence: its extracted row is another", ("SPEC", "CU")),
    _varlen("F-VARLEN:fresh-moves", "fresh_input_ids are read behind a shortened sequence", ("SPEC", "CU")),
    _varlen("F-VARLEN:as-extracted", "variable length, and every sequence has all its rows", ("SPEC",)),
    _varlen("F-REMAP:rejected", "a sequence with rejected drafts", ("SPEC", "WIN")),
    _varlen("F-REMAP:accepted", "every draft of a continuing sequence was accepted", ("SPEC",)),
    _varlen("F-REMAP:permuted", "rejected counts that differ, of sequences that changed places", ("SPEC", "STALE")),
    _varlen("F-REMAP:to-the-start", "rejected drafts bring a sequence back to position 0", ("SPEC", "ZERO")),
    _varlen("F-REMAP:block-lost", "rejected drafts and left out rows take a block off a table", ("SPEC", "BT")),
    _varlen("F-TAIL:several", "several rows past the shorter sum", ("STALE", "SENT")),
    Feature(
        "F-TAIL:after-a-fuller-step",
        "a tail where the step before stored",
        ("STALE", "SENT"),
        ZOS,
        varlen=True,
        multi_step=True,
    ),
    Feature("F-STACK:several-ratios", "several ratios share one buffer", (), ZOS),
    Feature("F-STACK:smaller-replay", "a step smaller than the first one", ("STALE",), ZOS, multi_step=True),
    _order("STEPS:grow", "a step with more rows than the one before", ("STALE",)),
    _order("STEPS:shrink", "a step with fewer rows than the one before", ("STALE", "SPEC")),
    _order("STEPS:fewer-sequences", "a step with fewer sequences than the one before", ("STALE",)),
    _order("STEPS:fewer-blocks", "tables narrower than in the step before", ("STALE", "BT"), DECODE),
    _order("STEPS:no-rows-between", "a step without rows between two with some", ("STALE", "ZERO"), PROMPT, SMALL),
    _order("STEPS:idle-between", "a step that stores nothing between two", ("STALE", "RANK"), tiers=SMALL),
    _order("STEPS:drafts-end", "no drafts after a step with some", ("SPEC", "STALE"), DECODE),
    _order("STEPS:refused-between", "a valid step after a refused one", ("STALE",), conditions=OF_SEQUENCES),
)


def of_case(case: Case, valid: list[Step | None]) -> set[str]:
    """Features of the order of steps; ``None`` stands for a step that is refused."""
    found: set[str] = set()
    for before, after in pairwise(valid):
        if before is None and after is not None:
            found.add("STEPS:refused-between")
        if before is not None and after is not None:
            found |= holding(_change(before, after))
    steps = [step for step in valid if step is not None]
    for before, middle, after in zip(steps, steps[1:], steps[2:], strict=False):
        found |= holding(_between(before, middle, after))
    if case.path == "decode_zos" and steps:
        found |= holding(_stack(steps))
    for step, inputs in zip(case.steps, case.gather, strict=False):
        if inputs is not None:
            found |= holding(_gather(inputs, step))
            if inputs.varlen is not None:
                found |= holding(_shortened(case, inputs, inputs.varlen, step))
    if any(map(_tail_after_a_fuller_step, case.gather[1:], case.steps[1:], case.steps)):
        found.add("F-TAIL:after-a-fuller-step")
    return found


def _change(before: Step, after: Step) -> Conditions:
    decode = not after.is_prompt
    blocks = [max(row.blocks for row in step.rows) for step in (before, after)]
    return {
        "STEPS:grow": after.total_q > before.total_q,
        "STEPS:shrink": after.total_q < before.total_q,
        "STEPS:fewer-sequences": len(after.rows) < len(before.rows),
        "STEPS:fewer-blocks": decode and blocks[1] < blocks[0],
        "STEPS:drafts-end": decode and before.total_q > len(before.rows) and after.total_q == len(after.rows),
    }


def _between(before: Step, middle: Step, after: Step) -> Conditions:
    return {
        "STEPS:no-rows-between": middle.total_q == 0 < min(before.total_q, after.total_q),
        "STEPS:idle-between": _works(before) and not _works(middle) and _works(after),
    }


def _works(step: Step) -> bool:
    return any(row.stores for row in step.rows)


def _stack(steps: list[Step]) -> Conditions:
    first = steps[0]
    return {
        "F-STACK:several-ratios": len(first.ratios) > 1,
        "F-STACK:smaller-replay": any(step.total_q < first.total_q for step in steps),
    }


def _gather(inputs: Gather, sequences: tuple[Sequence, ...]) -> Conditions:
    rows = [row for row in inputs.remap if row >= 0]
    lengths = {s.seqlen_q for s, row in zip(sequences, inputs.remap, strict=False) if row >= 0}
    width = len(inputs.prev_predict[0]) if inputs.prev_predict else 0
    widest = max((s.seqlen_q for s in sequences), default=1)
    return {
        "F-GATHER:fresh": len(rows) < len(inputs.remap),
        "F-GATHER:continues": bool(rows),
        "F-GATHER:mixed": 0 < len(rows) < len(inputs.remap),
        "F-GATHER:permuted": rows != sorted(rows),
        "F-GATHER:drafts": max(lengths, default=1) > 1,
        "F-GATHER:wide": width > widest - 1,
        "F-GATHER:unequal": len(lengths) > 1,
        "F-GATHER:one-row": len(set(rows)) < len(rows),
        "F-GATHER:no-last-step": not inputs.prev_sampled,
        "F-GATHER:other-negative": min(inputs.remap, default=0) < -1,
    }


def _shortened(case: Case, inputs: Gather, varlen: Varlen, sequences: tuple[Sequence, ...]) -> Conditions:
    left_out = [s.seqlen_q - rows for s, rows in zip(sequences, varlen.seqlens_q, strict=True)]
    continuing = [place for place in inputs.remap if place >= 0]
    lost = [varlen.prev_seqlens_q[place] - 1 - varlen.prev_num_accepted_tokens[place] for place in continuing]
    rejected = [0 if place < 0 else lost[continuing.index(place)] for place in inputs.remap]
    first = next((index for index, rows in enumerate(left_out) if rows > 0), len(left_out))
    keys = [s.seqlen_k - rows - back for s, rows, back in zip(sequences, left_out, rejected, strict=True)]
    starts = [k - rows for k, rows in zip(keys, varlen.seqlens_q, strict=True)]
    blocks = [
        (block_count(case.config, s.seqlen_k), block_count(case.config, k))
        for s, k in zip(sequences, keys, strict=True)
    ]
    return {
        "F-VARLEN:fewer-rows": any(left_out),
        "F-VARLEN:rows-move": first < len(left_out) - 1,
        "F-VARLEN:fresh-moves": any(place < 0 for place in inputs.remap[first + 1 :]),
        "F-VARLEN:as-extracted": not any(left_out),
        "F-REMAP:rejected": any(lost),
        "F-REMAP:accepted": any(
            back == 0 and varlen.prev_seqlens_q[p] > 1 for back, p in zip(lost, continuing, strict=True)
        ),
        "F-REMAP:permuted": continuing != sorted(continuing) and len(set(lost)) > 1,
        "F-REMAP:to-the-start": any(back > 0 and start == 0 for back, start in zip(rejected, starts, strict=True)),
        "F-REMAP:block-lost": any(before > after for before, after in blocks),
        "F-TAIL:several": sum(left_out) > 1,
    }


def _tail_after_a_fuller_step(
    inputs: Gather | None, sequences: tuple[Sequence, ...], before: tuple[Sequence, ...]
) -> bool:
    if inputs is None or inputs.varlen is None:
        return False
    filled = sum(inputs.varlen.seqlens_q)
    return filled < min(sum(s.seqlen_q for s in sequences), sum(s.seqlen_q for s in before))
