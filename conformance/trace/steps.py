"""One step's batch: as the scheduler hands it out, and as a case file keeps it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case, Origin, Path, case_config, case_sequences
from inputmeta.conformance.trace.options import TraceOptions

PLACEHOLDER = -1
"""Stands for a request's number in :attr:`Step.requests`."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step's batch. Valid until the next step is asked for: its arrays grow in place."""

    index: int
    path: Path
    clock_ms: float
    """Simulated start of the step."""
    sequences: list[oracle.SequenceMetadata]
    requests: tuple[int, ...]
    """Number in the trace of each sequence's request, or ``PLACEHOLDER``."""
    accepted: tuple[int, ...]
    """Drafts of each sequence that the step will accept; 0 in prompt steps."""

    @property
    def total_q(self) -> int:
        """Query rows."""
        return sum(sequence.seqlen_q for sequence in self.sequences)


def placeholder(options: TraceOptions) -> oracle.SequenceMetadata:
    """A sequence of a rank without a request: as long as a full decode row.

    It names state slot 0 and block 0 on purpose, which belong to somebody: an engine that lets a placeholder write is
    seen to destroy live tokens.
    """
    drafts = min(options.drafts, options.max_model_len - 1)
    return oracle.SequenceMetadata(
        seqlen_q=1 + drafts,
        seqlen_k=1 + drafts,
        block_table=array("i", [0] * -(-(1 + drafts) // options.block_size)),
        is_placeholder=True,
        token_ids=array("i", [0]),
        draft_tokens=array("i", [0] * drafts),
        recent_tokens=array("i", [0] * (1 + drafts)),
    )


def step_case(step: Step, config: oracle.MetadataConfig, seed: int | None = None) -> Case:
    """The step as a case: values alone, nothing of the schedule that led to it. Copies every token of the batch.

    ``id`` and ``expected`` are left to :func:`inputmeta.conformance.cases.request.complete_case`.
    """
    return Case(
        schema="inputmeta-case/1",
        title=f"step {step.index} of a trace replay, {len(step.sequences)} sequences, {step.total_q} rows",
        path=step.path,
        config=case_config(config),
        steps=(case_sequences(step.sequences),),
        tags=("trace",),
        origin=Origin(found_by="trace", seed=seed),
    )
