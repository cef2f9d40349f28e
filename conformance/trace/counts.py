"""What a replay counts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Counts:
    """Running totals of a scheduler; tokens and rows are query tokens of steps."""

    requests: int = 0
    """Read from the trace."""
    finished: int = 0
    """Reached their last output token."""
    refused: dict[str, int] = field(default_factory=dict)
    """Never run, by reason."""
    truncated: int = 0
    """Run with fewer output tokens than the trace says, because the context ends."""

    prompt_steps: int = 0
    decode_steps: int = 0
    """Decode steps of at least one real sequence."""
    idle_steps: int = 0
    """Decode steps of placeholders alone."""
    prompt_rows: int = 0
    decode_rows: int = 0
    """Placeholder rows included."""

    hits: int = 0
    """Admissions that found a cached prefix worth using."""
    hit_tokens: int = 0
    """Tokens of those prefixes."""
    replayed_tokens: int = 0
    """Tokens of those prefixes that were computed again to fill the ring."""
    evictions: int = 0
    """Cached hash blocks given up for their blocks."""
    preemptions: int = 0
    placeholders: int = 0
    """Placeholder sequences."""
    drafts: int = 0
    drafts_rejected: int = 0

    @property
    def steps(self) -> int:
        """Steps of all kinds."""
        return self.prompt_steps + self.decode_steps + self.idle_steps

    @property
    def rows(self) -> int:
        """Query rows of all steps."""
        return self.prompt_rows + self.decode_rows

    def refuse(self, reason: str) -> None:
        """Count a request that is never run."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
