"""What a case may cost: its steps, sequences, cells, and the seconds that the oracle takes for them.

A case file is untrusted, and a small one can ask for much. What a case costs is estimated from its lengths, before any
of it is done; over the budget it is refused, and the refusal names the limit and :data:`OPTION`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from inputmeta.conformance.cases.model import Case, Sequence

OPTION = "--case-budget"
"""Of the command: every limit, so many times."""


@dataclass(frozen=True)
class Cost:
    """Of a case, over its steps."""

    steps: float
    sequences: float
    cells: float
    """That its fields have, about, defined or not."""
    seconds: float
    """That the oracle takes for it and for comparing one build of it, about, on one core."""


LIMITS = Cost(steps=2**12, sequences=2**16, cells=2**25, seconds=60.0)
"""What a case may cost unless :func:`allow` says more."""
SECONDS = Cost(steps=2.5e-3, sequences=1.5e-4, cells=1e-6, seconds=0.0)
SECONDS_A_ROW = 4e-5
"""Of each, the most that a path takes: `python -m inputmeta.conformance.benchmarks.case_cost` measures them."""

_allowed, _option = 1.0, OPTION


def allow(factor: float, option: str = OPTION) -> None:
    """Let the cases of this process cost ``factor`` times :data:`LIMITS`, which is what ``option`` says.

    Raises:
        ValueError: the factor is not finite, or not above 0.
    """
    global _allowed, _option
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"{factor:g} is no factor above 0")
    _allowed, _option = factor, option


def options() -> str:
    """The option of the command that allows what this process allows, with a space behind; empty by default."""
    return "" if _allowed == 1 else f"{OPTION} {_allowed:g} "


def excess(case: Case) -> str | None:
    """What a case costs too much, and which option allows it; None if it is within the budget."""
    cost = case_cost(case)
    most = {limit.name: getattr(cost, limit.name) / getattr(LIMITS, limit.name) for limit in fields(Cost)}
    worst = max(most, key=lambda name: most[name])
    if most[worst] <= _allowed:
        return None
    takes, limit = math.ceil(getattr(cost, worst)), getattr(LIMITS, worst) * _allowed
    what = {"cells": "its fields have about {} cells", "seconds": "about {} seconds of the oracle"}
    text = what.get(worst, f"{{}} {worst}").format(takes)
    return f"{text}; a case has at most {limit:.10g} ({_option} {math.ceil(most[worst])} allows it)"


def case_cost(case: Case) -> Cost:
    """What a case costs, about, from its lengths alone."""
    steps, sequences, cells = len(case.steps), sum(map(len, case.steps)), case_cells(case)
    rows = sum(rows_of(case, sequence) for step in case.steps for sequence in step)
    seconds = steps * SECONDS.steps + sequences * SECONDS.sequences + cells * SECONDS.cells + rows * SECONDS_A_ROW
    return Cost(steps, sequences, cells, seconds)


def case_cells(case: Case) -> int:
    """Cells that the fields of a case have, about, over its steps."""
    return sum(step_cells(case, step) for step in case.steps)


def step_cells(case: Case, step: tuple[Sequence, ...]) -> int:
    """Cells that the fields of a step have, about."""
    config = case.config
    ratios = len({*config.dense_ratios, *config.sparse_ratios})
    cells = sum(rows_of(case, sequence) for sequence in step) * (64 + 8 * ratios + config.max_ngram_size)
    blocks = [len(sequence.block_table) for sequence in step]
    if case.allocation is not None:  # the subject gives the tables
        blocks = [max(0, sequence.seqlen_k) // max(1, config.block_size) + 1 for sequence in step]
    cells += 4 * ratios * sum(blocks)
    if case.path != "prompt":
        cells += sum(rows_of(case, s) for s in step) * max([case.max_num_blocks or 0, *blocks])
    if config.cp_size > 1:
        cells += config.cp_size * len(step)
    return cells


def rows_of(case: Case, sequence: Sequence) -> int:
    """Query rows that a sequence has, if it is valid: no more than the tokens it comes with."""
    tokens = len(sequence.token_ids) if case.path == "prompt" else 1 + len(sequence.draft_tokens)
    return min(max(0, sequence.seqlen_q), tokens)
