"""F-GATHER, F-STACK and what several steps on one set of buffers show."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from inputmeta.conformance.cases.model import Case, Gather, Sequence

from .facts import Step
from .feature import DECODE, OF_SEQUENCES, PROMPT, SMALL, ZOS, Conditions, Feature, holding

_order = partial(Feature, multi_step=True)

FEATURES = (
    Feature("F-GATHER:fresh", "a sequence that reads fresh_input_ids", ("SPEC",), ZOS),
    Feature("F-GATHER:continues", "a sequence that reads the last step's sample", ("SPEC",), ZOS),
    Feature("F-GATHER:mixed", "fresh and continuing sequences in one step", ("SPEC", "CU"), ZOS),
    Feature("F-GATHER:permuted", "sequences that changed places since the last step", ("SPEC", "STALE"), ZOS),
    Feature("F-GATHER:drafts", "a continuing sequence with drafts", ("SPEC",), ZOS),
    Feature("F-GATHER:wide", "more predictions than any sequence takes", ("SPEC", "BT"), ZOS),
    Feature("F-GATHER:unequal", "continuing sequences of unequal length", ("SPEC", "CU"), ZOS),
    Feature("F-GATHER:no-last-step", "nothing sampled before: prev_sampled is empty", ("ZERO",), ZOS),
    Feature("F-GATHER:other-negative", "a remap below -1", ("SENT",), ZOS),
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
        "F-GATHER:no-last-step": not inputs.prev_sampled,
        "F-GATHER:other-negative": min(inputs.remap, default=0) < -1,
    }
