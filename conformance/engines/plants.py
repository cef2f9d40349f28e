"""Faults that are planted in the sources of engines: how one is told, and a copy of a release that has it.

Each engine has a file of its own, ``plants_NAME.py`` with ``PLANTS: tuple[Plant, ...]``: short pieces that find a
place in the engine's source, never a body of its code. ``ci/engines`` plants each and demands that the suite sees it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path


class PlantError(ValueError):
    """A plant whose place is not in the source: it names the file and the text."""


@dataclass(frozen=True)
class Plant:
    """One fault: in ``file``, behind the first place of ``after``, the first ``old`` becomes ``new``."""

    name: str
    """What is wrong then, in lower-case words joined by hyphens."""
    subject: str
    """The entry point of the subject that has to show it."""
    file: str
    """Path below the release's folder: ``vllm/v1/worker/block_table.py``."""
    old: str
    new: str
    after: str = ""
    """A piece of text that stands before the place: the ``def`` line of its function. Empty: the file's beginning."""
    wide: bool = False
    """Shows on batches of production size alone: it is fuzzed for as long as the wide tier needs."""


def planted_text(plant: Plant, text: str) -> str:
    """A source with the fault.

    Raises:
        PlantError: the source has not the place.

    >>> planted_text(Plant("one-more", "s", "f.py", "+ 1", "+ 2", after="def g"), "def f(): x + 1; def g(): x + 1")
    'def f(): x + 1; def g(): x + 2'
    """
    start = text.find(plant.after)
    at = text.find(plant.old, start + len(plant.after)) if start >= 0 else -1
    if at < 0:
        raise PlantError(f"{plant.file}: has no {plant.old!r} behind {plant.after!r}")
    return text[:at] + plant.new + text[at + len(plant.old) :]


def planted_folder(plant: Plant, release: Path, target: Path) -> None:
    """A release with the fault, as a folder of links: only the changed file, and the folders above it, are its own.

    ``target`` must not be there. Compiled files are taken along, but that of the changed source.

    Raises:
        PlantError: the release has no such file, or not the place in it.
        OSError: it cannot be read or written.
    """
    source = release / plant.file
    if not source.is_file():
        raise PlantError(f"{plant.file}: is not in {release.name}")
    text = planted_text(plant, source.read_text(encoding="utf-8"))
    target.mkdir(parents=True)
    here, there = release, target
    for part in Path(plant.file).parts:
        for entry in here.iterdir():
            if entry.name == part:
                continue
            if entry.name == "__pycache__":
                stale = shutil.ignore_patterns(f"{source.stem}.*") if part == source.name else None
                shutil.copytree(entry, there / entry.name, ignore=stale)
            else:
                (there / entry.name).symlink_to(entry)
        here, there = here / part, there / part
        if here.is_dir():
            there.mkdir()
    there.write_text(text, encoding="utf-8")
