"""The faults that are planted in the C++ engine: they still have their places, and each is one of the faults of size.

That they compile and are found shows ``python -m inputmeta.conformance.mutants.wide_table --cpp``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inputmeta.conformance.mutants import wide_cpp
from inputmeta.conformance.mutants.wide import WIDE
from inputmeta.conformance.mutants.wide_cpp import PLANTS, planted_source


def test_every_plant_stands_in_its_file(tmp_path: Path) -> None:
    source = planted_source(tmp_path)
    for plant in PLANTS:
        text = (source / plant.file).read_text(encoding="utf-8")
        assert text.count(f'{plant.anchor}\nif (planted("{plant.name}"))') + text.count(plant.code) >= 1
        assert text.startswith('#include "core/planted.h"\n')
    assert {plant.name for plant in PLANTS} < WIDE.keys()


def test_a_place_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_cpp, "PLANTS", (replace(PLANTS[0], anchor="no such line"),))
    with pytest.raises(ValueError, match=r"row-offset-in-uint8: core/common\.cpp has the anchor 0 times"):
        planted_source(tmp_path)
