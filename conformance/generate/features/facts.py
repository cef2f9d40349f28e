"""The numbers of a step that features are computed from."""

from __future__ import annotations

from dataclasses import dataclass

from inputmeta.conformance.cases.model import Case, Config, Path, Sequence

from ..int32 import block_count, ca_ratios


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of a valid step. Lengths in tokens."""

    sequence: Sequence
    index: int
    q: int
    k: int
    start: int
    blocks: int
    """F-BLOCKS num_blocks."""

    @property
    def stores(self) -> bool:
        """Whether its rows write to the cache."""
        return self.q > 0 and not self.sequence.is_placeholder


@dataclass(frozen=True, slots=True)
class Step:
    """One valid step of a case."""

    path: Path
    config: Config
    rows: tuple[Row, ...]
    total_q: int
    ratios: tuple[int, ...]
    """All compression ratios, ascending."""
    width: int
    """max_num_blocks (I-4)."""

    @property
    def is_prompt(self) -> bool:
        """Whether the step is a prompt."""
        return self.path == "prompt"


def step_facts(case: Case, sequences: tuple[Sequence, ...]) -> Step:
    """Facts of one step that keeps P-RATIO to P-NGRAM."""
    config = case.config
    rows = tuple(
        Row(s, index, s.seqlen_q, s.seqlen_k, s.seqlen_k - s.seqlen_q, block_count(config, s.seqlen_k))
        for index, s in enumerate(sequences)
    )
    needed = max(1, *(row.blocks for row in rows)) if rows else 1
    width = max(needed, case.max_num_blocks or 1)
    total_q = sum(row.q for row in rows)
    return Step(case.path, config, rows, total_q, tuple(ca_ratios(config)), width)
