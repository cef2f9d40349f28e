"""What engines gave, kept: ``recorded/SUBJECT.json`` tests a translation where the engine is not installed.

``python -m inputmeta.conformance.engines.recorded SUBJECT…`` writes the files anew, with the engines that are here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import msgspec
import numpy as np

from inputmeta import oracle
from inputmeta.conformance.campaign.generated import generated_cases, profile_for
from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import Request, step_request
from inputmeta.conformance.check.allocation import History
from inputmeta.conformance.check.compare import Wanted, compare_fields
from inputmeta.conformance.check.key_sets import compare_key_sets, wanted_key_sets
from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.subjects.base import Unsupported
from inputmeta.conformance.subjects.entry_points import entry_point
from inputmeta.conformance.subjects.loading import load_subject

FOLDER = Path(__file__).parent / "recorded"
MOST_BATCHES, PLAIN_BATCHES = 12, 8
"""That are recorded; so many of them whatever they hold, the others for a field that none before them has."""
MOST_CELLS = 4000
"""Cells of all arrays of a batch that is recorded."""
MOST_BYTES = 6000
"""Of a batch in the file."""
SEED = 15
DRAWN = 400
"""Generated cases that are looked at, behind the corpus."""


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One array of an engine, its cells in row-major order."""

    dtype: str
    shape: tuple[int, ...]
    data: list[int | bool]


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One batch, a case of one step, and what the engine gave: arrays, plain scalars."""

    case: Case
    raw: dict[str, Kept | int | bool]


class Recording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one subject's engine gave."""

    subject: str
    package: str
    version: str
    batches: list[Batch]


def kept(value: np.ndarray | int | bool) -> Kept | int | bool:
    """A value in the form of the file."""
    if not isinstance(value, np.ndarray):
        return bool(value) if isinstance(value, bool | np.bool_) else int(value)
    return Kept(value.dtype.name, value.shape, value.reshape(-1).tolist())


def unkept(value: Kept | int | bool) -> np.ndarray | int | bool:
    """The value that was kept."""
    if not isinstance(value, Kept):
        return value
    return np.array(value.data, dtype=value.dtype).reshape(value.shape)


def raw_of(batch: Batch) -> Raw:
    """What the engine gave for a batch."""
    return {name: unkept(value) for name, value in batch.raw.items()}


def adapter_of(subject: str) -> type[Adapter]:
    """The adapter of a subject's name, not constructed; LookupError if there is none."""
    point = entry_point(subject)
    if point is None:
        raise LookupError(f"there is no subject {subject}")
    return cast(type[Adapter], point.load())


def load(file: Path) -> Recording:
    """The recording of a file."""
    return msgspec.json.decode(file.read_bytes(), type=Recording)


def findings(adapter: type[Adapter], request: Request, raw: Raw) -> list[Finding]:
    """What of a translation is not as the oracle wants it; fields that the adapter says it did not build left out."""
    fields = adapter.translated(request.bare(), raw)
    claims = adapter.capabilities.allocates
    if request.allocation is not None and claims is not None:
        answered = History(request.allocation, claims, request.config).settled(request, fields, 0)
        if not isinstance(answered, Request):
            return answered
        request = answered
    claimed = adapter.capabilities.fields_of(request.path)
    built = {key: value for key, value in fields.items() if not isinstance(value, Unsupported)}
    wanted = {
        key: Wanted.of(field)
        for key, field in request.expected().items()
        if key.partition(".")[0] in claimed and not isinstance(fields.get(key), Unsupported)
    }
    key_sets = wanted_key_sets(adapter.capabilities, request)
    return compare_fields(wanted, built) + compare_key_sets(key_sets, fields, 0)


def fields_in(adapter: type[Adapter], request: Request, raw: Raw) -> set[str]:
    """Declared names of the fields that a recorded batch has, as the oracle has them too."""
    found = adapter.translated(request, raw)
    wanted = request.expected()
    known = {key for key in found if key in wanted or key.partition(".")[0] in oracle.KEY_SETS}
    built = {key for key in known if not isinstance(found[key], Unsupported)}
    return {key.partition(".")[0] for key in built}


def candidates(adapter: Adapter) -> Iterator[Case]:
    """Cases of one step that the adapter may build: generated ones and the corpus's, in turn."""
    profile = profile_for(adapter, sorted(adapter.capabilities.paths))
    corpus = [case for _, case in load_corpus(bundled_corpus(), load_case)]
    drawn = generated_cases(profile, SEED, DRAWN)
    for index in range(max(len(corpus), len(drawn))):
        yield from (cases[index] for cases in (drawn, corpus) if index < len(cases) and len(cases[index].steps) == 1)


def record(adapter: Adapter) -> Recording:
    """What an engine gives for the first batches that it builds and the specification agrees to."""
    batches: list[Batch] = []
    missing = set(adapter.capabilities.fields)
    for case in candidates(adapter):
        request = step_request(case, 0, in_place=False)
        if len(batches) == MOST_BATCHES or (len(batches) >= PLAIN_BATCHES and not missing):
            break
        if adapter.capabilities.lacks(request) is not None or request.violations():
            continue
        try:
            if request.allocation is not None:
                adapter.reset()
            raw = adapter.call(request.bare())
        except Unsupported:
            continue
        cells = sum(value.size for value in raw.values() if isinstance(value, np.ndarray))
        if 0 < cells <= MOST_CELLS and not findings(type(adapter), request, raw):
            bare = msgspec.structs.replace(case, expected=())
            batch = Batch(bare, {name: kept(value) for name, value in raw.items()})
            shown = fields_in(type(adapter), request, raw)
            wanted = len(batches) < PLAIN_BATCHES or not missing.isdisjoint(shown)
            if wanted and len(msgspec.json.encode(batch)) <= MOST_BYTES:
                batches.append(batch)
                missing -= shown
    return Recording(adapter.subject, adapter.package, adapter.version, batches)


def main(subjects: Iterable[str]) -> None:
    """Record these subjects."""
    FOLDER.mkdir(exist_ok=True)
    for subject in subjects:
        recording = record(cast(Adapter, load_subject(subject)))
        file = FOLDER / f"{subject}.json"
        batches = b",\n".join(msgspec.json.encode(batch) for batch in recording.batches)
        head = msgspec.json.encode(msgspec.structs.replace(recording, batches=[]))
        file.write_bytes(head[: -len(b"]}")] + b"\n" + batches + b"\n]}\n")
        sys.stdout.write(f"{file}: {len(recording.batches)} batches, {file.stat().st_size} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1:])
