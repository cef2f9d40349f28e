"""What a campaign wants generated: which paths, options and kinds of batches its subject claims."""

from __future__ import annotations

from dataclasses import dataclass

from inputmeta import oracle
from inputmeta.conformance.cases.allocated import Allocates
from inputmeta.conformance.cases.conditions import ANY, Conditions
from inputmeta.conformance.cases.model import Case, Path, Sequence
from inputmeta.conformance.cases.request import affordable_expansions

INT32_MAX = 2**31 - 1
PATHS: tuple[Path, ...] = ("prompt", "decode", "decode_zos")
YOCO_MODES = ("off", "mask", "compact")
REFUSALS = tuple(oracle.PRECONDITIONS)
TIERS = ("small", "real", "many")
"""``small``: constants scaled down, so that few rows reach every border. ``real``: block, window 128; 128 K. ``many``:
as small, but more sequences than a warp has lanes, with more rows than a block of threads."""


@dataclass(frozen=True)
class Profile:
    """Limits of the batches to draw. Order inside a tuple does not matter: draws go from simple to complex.

    Raises:
        ValueError: an unknown or no path, mode or tier; an unknown precondition; ``max_cp_size`` < 1; ``invalid``
            outside [0, 1].
    """

    paths: tuple[str, ...] = PATHS
    max_cp_size: int = 8
    """Largest context parallel group to draw; 1 means none."""
    yoco_modes: tuple[str, ...] = YOCO_MODES
    invalid: float = 0.25
    """Share of batches with exactly one precondition broken; ``True`` means all, 0 stands if there is none to break."""
    refusals: tuple[str, ...] = REFUSALS
    """Preconditions that may be broken."""
    tiers: tuple[str, ...] = TIERS
    varlen: bool = True
    """Draw some ZOS steps with drafts of variable length."""
    read_only: bool = True
    """Draw read-only buffers, which are to be refused."""
    multi_step: bool = True
    """Draw some cases of several steps on one set of buffers."""
    wide_windows: bool = True
    """Draw some prompts of windows up to the int32 bound: their expansions, of terabytes, may not be asked for."""
    conditions: Conditions = ANY
    """What every batch is to be."""
    fields: frozenset[tuple[str, str]] | None = None
    """Path and declared name of the fields that are compared, for coverage; None: all."""
    max_total_q: int | None = None
    """Most query rows of a step; None: no limit but the tier's. So are the two below."""
    max_num_reqs: int | None = None
    """Most sequences of a step."""
    max_table_columns: int | None = None
    """Most entries of a block table, and columns of the caller's ``block_tables``."""
    allocates: Allocates | None = None
    """Draw histories of requests, of whose tables a subject with these claims gives its own; None: tables are given."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", _in_order("paths", self.paths, PATHS))
        object.__setattr__(self, "yoco_modes", _in_order("yoco_modes", self.yoco_modes, YOCO_MODES))
        object.__setattr__(self, "tiers", _in_order("tiers", self.tiers, TIERS))
        object.__setattr__(self, "refusals", _in_order("refusals", self.refusals, REFUSALS) if self.refusals else ())
        if self.max_cp_size < 1:
            raise ValueError(f"max_cp_size must be at least 1, not {self.max_cp_size}")
        if not 0 <= self.invalid <= 1:
            raise ValueError(f"invalid must be a share in [0, 1], not {self.invalid}")
        if not self.refusals:
            object.__setattr__(self, "invalid", 0.0)

    def takes(self, case: Case) -> bool:
        """Whether every step of a case is within the conditions and sizes."""
        return not self.limited or all(self._takes_step(case, step) for step in case.steps)

    def _takes_step(self, case: Case, step: tuple[Sequence, ...]) -> bool:
        expand = affordable_expansions(case.config, step)
        if self.conditions.beyond(case.path, case.config, step, expand) is not None:
            return False
        columns = max((len(sequence.block_table) for sequence in step), default=0)
        sizes = (
            (sum(max(0, sequence.seqlen_q) for sequence in step), self.max_total_q),
            (len(step), self.max_num_reqs),
            (max(columns, case.max_num_blocks or 0), self.max_table_columns),
        )
        return all(limit is None or size <= limit for size, limit in sizes)

    @property
    def limited(self) -> bool:
        """Whether there are conditions or sizes at all."""
        return (self.conditions, self.max_total_q, self.max_num_reqs, self.max_table_columns) != (ANY, None, None, None)

    @property
    def most_sequences(self) -> int:
        """Most sequences of a step, by sizes and by the ids of states, with a row each."""
        states = None if self.conditions.largest_state is None else self.conditions.largest_state + 1
        limits = (self.max_num_reqs, self.max_total_q, states)
        return min((limit for limit in limits if limit is not None), default=INT32_MAX)

    def cp_sizes(self, path: str) -> list[int]:
        """Numbers of ranks that the conditions leave, ascending; a decode ignores its group (I-15)."""
        sizes = range(1, self.max_cp_size + 1)
        if path != "prompt":
            return list(sizes)
        claimed = self.conditions
        limits = [claimed.most_seqlen_q, claimed.most_seqlen_k, self.max_total_q]
        most = min((limit for limit in limits if limit is not None), default=INT32_MAX)
        fits = (size for size in sizes if size >= claimed.least_cp_size)
        return [size for size in fits if max(claimed.fewest_rows(path, size), claimed.row_unit(path, size)) <= most]

    @property
    def shortest_context(self) -> int:
        """Tokens that the shortest sequence with rows may need, at least 1."""
        groups = [(path, max(self.cp_sizes(path), default=1)) for path in self.paths]
        claimed = self.conditions
        return max(1, *(max(claimed.fewest_rows(*group), claimed.row_unit(*group)) for group in groups))


def _in_order(name: str, chosen: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """The chosen names in the order of ``known``, each once."""
    unknown = sorted(set(chosen) - set(known))
    if unknown or not chosen:
        raise ValueError(f"{name} must be some of {', '.join(known)}, not {', '.join(unknown) or 'none'}")
    return tuple(value for value in known if value in chosen)
