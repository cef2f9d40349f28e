"""What engines gave, replayed through their adapters' translations, without them; and what is spoilt in it shows."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.engines import recorded
from inputmeta.conformance.subjects.entry_points import installed

RECORDINGS = sorted(recorded.FOLDER.glob("*.json"), key=lambda file: file.stem)
ENGINES = "inputmeta.conformance.engines."
SUBJECTS = sorted(point.name for point in installed() if point.value.startswith(ENGINES))


def spoilt(raw, name):
    """What was recorded, with the last cell of one array one larger, or the other of true and false."""
    changed = np.array(raw[name])
    cells = changed.reshape(-1)
    cells[-1] = not cells[-1] if changed.dtype == bool else cells[-1] + 1
    return {**raw, name: changed}


def test_every_subject_has_a_recording() -> None:
    assert [file.stem for file in RECORDINGS] == SUBJECTS


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_a_translation_gives_what_the_specification_wants(file) -> None:
    recording = recorded.load(file)
    adapter = recorded.adapter_of(recording.subject)
    assert (adapter.subject, adapter.package) == (recording.subject, recording.package)
    assert recording.batches
    shown = set()
    for batch in recording.batches:
        request = step_request(batch.case, 0, in_place=False)
        assert adapter.capabilities.lacks(request) is None
        assert recorded.findings(adapter, request, recorded.raw_of(batch)) == []
        shown |= recorded.fields_in(adapter, request, recorded.raw_of(batch))
    assert adapter.capabilities.fields <= shown, sorted(adapter.capabilities.fields - shown)


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_a_cell_that_is_spoilt_in_a_recorded_array_shows(file) -> None:
    """Of each array, in some batch: an array that could hold anything would not be read at all."""
    recording = recorded.load(file)
    adapter = recorded.adapter_of(recording.subject)
    unseen = set()
    seen = set()
    for batch in recording.batches:
        request, raw = step_request(batch.case, 0, in_place=False), recorded.raw_of(batch)
        for name, value in raw.items():
            if not isinstance(value, np.ndarray) or value.dtype.kind not in "biu" or not value.size:
                continue
            unseen.add(name)
            try:
                shows = bool(recorded.findings(adapter, request, spoilt(raw, name)))
            except (ValueError, IndexError):  # a translation may say that an array has no meaning
                shows = True
            seen |= {name} if shows else set()
    assert unseen - seen == set()


def test_nothing_of_an_engine_is_imported_for_a_translation() -> None:
    """Adapters are imported with their entry points alone: torch, or any package of an engine, stays out."""
    script = f"""
import sys
from inputmeta.conformance.engines import packages, recorded
for name in {SUBJECTS!r}:
    recorded.adapter_of(name)
wrong = [name for name in (*packages.PACKAGES, "torch", "triton") if name.partition("-")[0] in sys.modules]
assert not wrong, wrong
"""
    subprocess.run([sys.executable, "-c", script], check=True)
