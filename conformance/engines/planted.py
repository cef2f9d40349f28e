"""A fault in this process: its engine is imported with it, and the suite looks for it in generated cases.

Nothing is shrunk: what counts is that it shows, and after how many cases. Failures that are known do not count.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution
from importlib.util import spec_from_file_location
from itertools import islice
from pathlib import Path
from types import ModuleType

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.generated import claimed_paths, profile_for
from inputmeta.conformance.campaign.known import KnownFailures
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.verdicts import NO_FAILURES, Finding
from inputmeta.conformance.console import say
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.expectations import Expectation
from inputmeta.conformance.engines.plants import Plant, PlantError, planted_folder, planted_text
from inputmeta.conformance.generate.rounds import random_cases
from inputmeta.conformance.subjects.loading import load_subject

SEED, ROUND = 1, 1
"""Of the cases: a random round of a seed."""
LEAST_CASES, MOST_CASES, MOST_SECONDS = 20, 500, 30.0
"""Cases that are run before a fault counts as unseen: the more, unless so many seconds are over before."""


class PlantedFinder(MetaPathFinder):
    """Has one module imported from another file."""

    def __init__(self, name: str, file: Path) -> None:
        self.name, self.file = name, file

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Its place, if it is this module."""
        return spec_from_file_location(fullname, self.file) if fullname == self.name else None


def plant_here(plant: Plant, root: Path) -> None:
    """Have this process import an engine's release with a fault; ``root`` is an empty folder for it.

    Where packages of the engine are imported already, the changed module alone comes from there; else its subjects
    find a whole release.

    Raises:
        PlantError: the release has not the place, or the module was imported before.
        SubjectError: it is not here.
    """
    package = next(each for each in packages.PACKAGES.values() if each.gives(plant.subject))
    module = plant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if module in sys.modules:
        raise PlantError(f"{plant.file}: is imported already, and no fault in it would be seen")
    bundled = package.bundled
    release = (
        Path(str(Distribution.from_name(package.name).locate_file(""))) if bundled else packages.folder(package.name)
    )
    if module.partition(".")[0] in sys.modules:
        file = root / Path(plant.file).name
        file.write_text(planted_text(plant, (release / plant.file).read_text(encoding="utf-8")), encoding="utf-8")
        sys.meta_path.insert(0, PlantedFinder(module, file))
        return
    planted_folder(plant, release, root / release.name)
    for other in package.beside:
        (root / packages.folder(other).name).symlink_to(packages.folder(other))
    os.environ[packages.FOLDER_VARIABLE] = str(root)


def known_of(subject: str) -> KnownFailures:
    """The known failures of a subject; none without a file."""
    file = Expectation(subject).known
    return KnownFailures() if file is None else KnownFailures.load(file)


def first_seen(subject: str) -> tuple[int, list[Finding]]:
    """How many generated cases were run to the first that shows something new, and what it shows; or to the end."""
    loaded = load_subject(subject)
    known = known_of(subject)
    known.version = str(getattr(loaded, "version", ""))
    session = Session(loaded)
    end = time.monotonic() + MOST_SECONDS
    number = 0

    def new(case: Case) -> list[Finding]:
        findings = session.run(case).findings
        return [each for each in findings if each.verdict not in NO_FAILURES and not known.covering(each, case)]

    cases = random_cases(profile_for(loaded, claimed_paths(loaded)), SEED, ROUND)
    for number, (case, _) in enumerate(islice(cases, MOST_CASES), 1):
        found = new(case)
        if found or (number >= LEAST_CASES and time.monotonic() > end):
            return number, found
    return number, []


def look_for(plant: Plant, root: Path) -> int:
    """Plant a fault in this process and look for it; what came of it is said. The exit code of a command.

    Raises:
        PlantError: see :func:`plant_here`.
        SubjectError: the subject cannot be loaded.
    """
    plant_here(plant, root)
    begin = time.monotonic()
    number, found = first_seen(plant.subject)
    say(f"{number} cases in {time.monotonic() - begin:.1f} s")
    for finding in found:
        say(f"{finding.verdict}: {finding.detail}\n  formula  {finding.formula}")
    return exits.DIFFERS if found else exits.CONFORMS
