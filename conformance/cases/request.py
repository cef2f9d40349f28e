"""Between case files and batches in memory: conversion, expectation, which expansions a case builds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Literal

import msgspec
import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.allocated import with_tables
from inputmeta.conformance.cases.budget import case_cells
from inputmeta.conformance.cases.conditions import SPARE_COLUMNS, Config, Rows
from inputmeta.conformance.cases.files import MAX_EXPECTED_CELLS, CaseError, case_id, load_case, save_case
from inputmeta.conformance.cases.inputs import Filled, Inputs
from inputmeta.conformance.cases.model import (
    Array,
    Case,
    Cell,
    Gather,
    OutFault,
    Path,
    Refusal,
    StepExpected,
    oracle_config,
    oracle_sequences,
)

MAX_EXPANDED_CELLS = 2**16
"""Largest expansion, in cells, that a case builds: 32,768 rows at ratio 1 and 128 K of context would be 16 GiB."""


@dataclass(frozen=True)
class StepAllocation:
    """What a subject that allocates is told of one step (SPEC.md chapter 14)."""

    num_blocks: int
    """Blocks that requests can have, the subject's reserved ones not counted; the same at all steps. So is the next."""
    num_states: int
    """State slots."""
    requests: tuple[int, ...]
    """[n_seq] the request of each sequence, the same over steps; -1 for a placeholder."""
    ended: tuple[int, ...] = ()
    """Requests that ended since the last step: what they had is free before this step takes anything."""


@dataclass(frozen=True)
class Request:
    """One batch as a subject gets it.

    With an ``allocation`` the sequences that are no placeholders have no ``block_table``, and state 0: the subject
    gives both, in its answer.
    """

    path: Path
    config: oracle.MetadataConfig
    sequences: Sequence[oracle.SequenceMetadata]
    gather: Gather | None = None
    max_num_blocks: int | None = None
    """Columns of the caller's ``block_tables`` (I-4); None: as many as the batch needs."""
    expand: frozenset[str] = field(default_factory=lambda: frozenset(oracle.EXPANSIONS))
    """Names of the expansions to build."""
    out: dict[str, np.ndarray] | None = None
    """Arrays to fill in place, one for every tensor the path writes and every expansion in ``expand``."""
    out_fault: OutFault | None = None
    """What is to be wrong with ``out``; who offers the arrays sees to it, the subject is not told."""
    allocation: StepAllocation | None = None
    """What the subject is to give tables by; None: they are given."""

    def bare(self) -> Request:
        """Without the tables and states that the subject is to give."""
        if self.allocation is None:
            return self
        pairs = zip(self.sequences, self.allocation.requests, strict=True)
        bare = [s if r == oracle.NO_REQUEST else replace(s, block_table=(), state_id=0) for s, r in pairs]
        return replace(self, sequences=bare)

    inputs: Inputs | None = field(default=None, compare=False, repr=False)
    """The objects that it comes in, where they are those of the batch before, refilled; None: they are its own."""

    @property
    def refill(self) -> int | None:
        """Its place among the batches that come in the same objects; None: it comes in objects of its own."""
        return None if self.inputs is None else self.inputs.place

    def handed(self, inputs: Inputs) -> Request:
        """The same batch in objects of the batches before."""
        return replace(self, sequences=inputs.hand(self.sequences), inputs=inputs)

    def refilled(self, name: str, fresh: Filled) -> Filled:
        """An array of a subject's own making as its engine is to get it: ``fresh``, or an earlier one filled with it.

        A capturing engine's inputs lie in the same tensors at each step. Who hands its engine arrays says so by
        ``request.refilled("lengths", torch.tensor(lengths))``: where batches refill, it is the same tensor again.
        ``name``: of the array; ``fresh``: any array that has a shape and a dtype and takes ``array[...] = values``.
        """
        return fresh if self.inputs is None else self.inputs.filled(name, fresh)

    def violations(self) -> list[oracle.PreconditionError]:
        """The preconditions that this batch breaks, by the oracle."""
        broken = oracle.violations(self.path, self.config, self.sequences, self.max_num_blocks)
        if self.out_fault is None or (broken and broken[0].condition != "P-OUT"):
            return broken
        fault = self.out_fault
        return [*broken, oracle.OutError(None, fault.key, 0, "what the batch needs", f"in `out` is {fault.fault}")]

    def expected(self, rows: Sequence[int] | None = None, *, is_valid: bool = False) -> dict[str, oracle.ExpectedField]:
        """The oracle's fields; ``rows`` and ``is_valid`` as in :func:`oracle.expected_fields`."""
        return oracle.expected_fields(
            self.path,
            self.config,
            self.sequences,
            rows=rows,
            expand=self.expand,
            gather=self.gather,
            max_num_blocks=self.max_num_blocks,
            is_valid=is_valid,
        )

    def visible_keys(self) -> dict[str, list[oracle.VisibleKey]]:
        """The oracle's key sets of a valid batch; see :func:`oracle.visible_keys`."""
        return oracle.visible_keys(self.path, self.config, self.sequences, gather=self.gather)


def affordable_key_sets(request: Request) -> frozenset[str]:
    """Flat keys of the key sets (I-50) that may have at most ``MAX_EXPANDED_CELLS`` pairs: those asked for.

    A rule of the batch alone: ``seqlen_q`` times the most keys that a row of the sequence sees, summed up.
    """
    config = request.config
    widths = {"visible_swa": (1, config.window_size)}
    widths |= {oracle.flat_key("visible_ca", ratio): (ratio, config.max_model_len) for ratio in config.ca_ratios}
    return frozenset(
        key
        for key, (ratio, most) in widths.items()
        if sum(s.seqlen_q * min(most, s.seqlen_k // ratio) for s in request.sequences) <= MAX_EXPANDED_CELLS
    )


def step_request(case: Case, index: int, *, in_place: bool = True) -> Request:
    """One step of a case as a batch in memory; the width of the caller's tables counts only if it is to be filled.

    Of a case with an allocation it has tables of first fit: a subject gets it as :meth:`Request.bare`.
    """
    return step_requests(case, in_place=in_place)[index] if case.allocation else _request(case, index, in_place)


def step_requests(case: Case, *, in_place: bool = True) -> list[Request]:
    """The steps of a case as batches, each as of :func:`step_request`."""
    tabled = with_tables(case)
    requests = [_request(tabled, index, in_place) for index in range(len(case.steps))]
    plan = case.allocation
    if plan is None:
        return requests
    steps = (StepAllocation(plan.num_blocks, plan.num_states, step.requests, step.ended) for step in plan.steps)
    return [replace(request, allocation=step) for request, step in zip(requests, steps, strict=True)]


def _request(case: Case, index: int, in_place: bool) -> Request:
    config, sequences = oracle_config(case.config), oracle_sequences(case.steps[index])
    return Request(
        path=case.path,
        config=config,
        sequences=sequences,
        gather=case.gather[index] if case.gather else None,
        max_num_blocks=case.max_num_blocks if in_place else None,
        expand=affordable_expansions(config, sequences),
        out_fault=case.out_fault if in_place else None,
    )


def affordable_expansions(
    config: Config, sequences: Sequence[Rows], most_cells: int = MAX_EXPANDED_CELLS
) -> frozenset[str]:
    """The expansions that stay within ``most_cells`` each: a rule of the case alone, so that a case replays."""
    rows = max(1, sum(sequence.seqlen_q for sequence in sequences))
    names = set()
    if rows * config.window_size <= most_cells:
        names |= {"kv_swa_full_index", "kv_swa_index"}
    if rows * (config.max_model_len // max(1, min(config.dense_ratios, default=1)) + SPARE_COLUMNS) <= most_cells:
        names.add("kv_ca_index")
    return frozenset(names)


class WantsError(CaseError):
    """A case that says it is valid and breaks a precondition, or the reverse."""


def broken_by(case: Case) -> list[tuple[int, oracle.PreconditionError]]:
    """The preconditions that the steps of a case break, each with the index of its step."""
    return [(index, error) for index, request in enumerate(step_requests(case)) for error in request.violations()]


def wants_of(case: Case) -> Literal["valid", "refused"]:
    """What a case is to say it wants."""
    return "refused" if broken_by(case) else "valid"


def require_wanted(case: Case) -> None:
    """Refuse a case that says what it wants and is not so.

    Raises:
        WantsError: names the step, the precondition, the value and the rule.
    """
    if case.wants is None:
        return
    broken = broken_by(case)
    if case.wants == "valid" and broken:
        step, error = broken[0]
        raise WantsError(f"at $.wants: says valid, but step {step} breaks a precondition: {error}")
    if case.wants == "refused" and not broken:
        raise WantsError("at $.wants: says refused, but no step breaks a precondition")


def load_wanted(path: FilePath) -> Case:
    """Read a case that is to be run.

    Raises:
        CaseError: the file cannot be used.
        WantsError: it contradicts what it says it wants.
    """
    case = load_case(path)
    try:
        require_wanted(case)
    except WantsError as error:
        raise WantsError(f"{path}: {error}") from error
    return case


def complete_case(case: Case) -> Case:
    """The case with the id that its content has and the expectation that the oracle gives.

    Raises:
        CaseError: the expectation has more than MAX_EXPECTED_CELLS cells.
    """
    cells = case_cells(case)
    if cells > MAX_EXPECTED_CELLS:
        raise CaseError(f"at $.expected: about {cells} cells; a case is kept with at most {MAX_EXPECTED_CELLS}")
    expected = tuple(map(expectation, step_requests(case)))
    return msgspec.structs.replace(case, id=case_id(case), expected=expected)


def store_case(case: Case, folder: FilePath) -> FilePath:
    """Complete a case and write it under its id; returns the file. Raises CaseError if it cannot be written.

    It says what it wants. An expectation that is too large to be kept is left out.
    """
    case = msgspec.structs.replace(case, wants=wants_of(case))
    if case_cells(case) > MAX_EXPECTED_CELLS:  # the case alone means the same
        stored = msgspec.structs.replace(case, id=case_id(case), expected=())
    else:
        stored = complete_case(case)
    path = folder / f"{stored.id}.json"
    save_case(stored, path)
    return path


def expectation(request: Request) -> StepExpected:
    """What the oracle says of one step of a case, in the form of a case file."""
    broken = request.violations()
    if broken:
        refused = (Refusal(condition=e.condition, sequence=e.sequence, field=e.field) for e in broken)
        return StepExpected(refused=tuple(refused))
    return StepExpected(fields={key: field_array(field) for key, field in request.expected().items()})


def field_array(field: oracle.ExpectedField) -> Array:
    """An expected field as a case-file array: cells nested by shape, ``None`` where not defined."""
    cells: tuple[Cell, ...] = tuple(field.cells)
    if not field.shape:
        return Array(dtype=field.dtype, shape=(), data=cells[0])
    if len(field.shape) == 1:
        return Array(dtype=field.dtype, shape=field.shape, data=cells)
    width = field.shape[1]
    rows = tuple(cells[start : start + width] for start in range(0, len(cells), width))
    return Array(dtype=field.dtype, shape=field.shape, data=rows)
