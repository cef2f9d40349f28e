"""What is expected of the engines, and who is compared with whom: ``ci/engines`` holds them to it.

A subject with an entry point here passes, but for what its file in ``known/`` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from inputmeta.conformance.subjects.entry_points import installed

ENGINES = "inputmeta.conformance.engines."
KNOWN = Path(__file__).parent / "known"
PASSES = "passes"


@dataclass(frozen=True)
class Expectation:
    """What a subject is to give on the corpus and on generated cases."""

    subject: str
    """As ``--subject`` names it: with a version where it is not the first pinned one."""
    fails: tuple[str, ...] = ()
    """Formulas that it is known to have wrong, each of which has to show; none: it passes."""
    cases: tuple[str, ...] = ()
    """How the names of the corpus files begin that it has wrong, and that it has to fail."""

    @property
    def says(self) -> str:
        """In words: ``passes``, ``fails F-RING``."""
        return f"fails {' '.join(self.fails)}" if self.fails else PASSES

    @property
    def known(self) -> Path | None:
        """Its file of known failures, if it has one."""
        file = KNOWN / f"{self.subject.partition('==')[0]}.toml"
        return file if file.is_file() else None


DIFFERENT: tuple[Expectation, ...] = (
    Expectation("fla-index", cases=("f-qidx-rows-behind-an-empty-sequence",)),
    Expectation("fla-index-refilled", fails=("F-POS",)),
    Expectation("verl-zigzag-thd", cases=("cp-padding-rows-of-a-first-block",)),
    Expectation(
        "transformers-ring==5.14.0",
        fails=("F-RING", "F-SWADEC", "F-SWAPLAN"),
        cases=(
            "win-a-decode-row-behind-w-cached-keys-reads-the-newest-of-them",
            "ring-a-prompt-longer-than-its-ring-stores-each-of-the-last-b-rows",
        ),
    ),
    Expectation("transformers-ring==5.16.1"),
    Expectation(
        "verl-zigzag==0.7.1",
        fails=("CRASH",),
        cases=("cp-a-prompt-of-1-row-on-4-ranks-gives-rank-1-padding",),
    ),
)
"""Subjects that differ, then releases beside the first pinned ones. One that dies names no formula: ``CRASH``."""

GROUPS = {
    "sglang-decode": ("sglang-decode", "sglang-decode-torch"),
    "sglang-prompt": ("sglang-prompt", "sglang-prompt-torch"),
    "zigzag": ("torch-zigzag", "torch-zigzag-headtail", "verl-zigzag", "tpu-pcp"),
    "windows and keys of decode": ("vllm-decode", "sglang-decode-torch", "lmdeploy-decode", "transformers-ring"),
    "cu_seqlens and positions": ("transformers-steps", "xformers-masks"),
}
"""Subjects of different engines that build one field, in pairs and more."""


def subjects() -> list[str]:
    """Names of the engines' subjects, from the entry points; nothing is imported."""
    return [point.name for point in installed() if point.value.startswith(ENGINES)]


def expectations() -> list[Expectation]:
    """Of every subject, releases beside the first ones behind them."""
    told = {each.subject for each in DIFFERENT}
    return [Expectation(name) for name in subjects() if name not in told] + list(DIFFERENT)
