"""What a campaign wants generated: which paths, options and kinds of batches its subject claims."""

from __future__ import annotations

from dataclasses import dataclass

from inputmeta import oracle
from inputmeta.conformance.cases.model import Path

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


def _in_order(name: str, chosen: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """The chosen names in the order of ``known``, each once."""
    unknown = sorted(set(chosen) - set(known))
    if unknown or not chosen:
        raise ValueError(f"{name} must be some of {', '.join(known)}, not {', '.join(unknown) or 'none'}")
    return tuple(value for value in known if value in chosen)
