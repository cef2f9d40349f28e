"""The faults of size that are planted in the kernels: they still have their places, and one build has one of them.

That they compile, are found and are reduced shows ``./ci/gpu --stage wide``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from inputmeta import oracle
from inputmeta.conformance.mutants import wide_cuda
from inputmeta.conformance.mutants.mutant import Mutant
from inputmeta.conformance.mutants.wide_cuda import CHOSEN, CSRC, PLANTS, in_kernels, planted_source


def test_every_plant_stands_in_its_file_beside_the_line_that_it_replaces(tmp_path: Path) -> None:
    source = planted_source(tmp_path)
    for number, plant in enumerate(PLANTS, 1):
        text = (source / "cuda" / plant.file).read_text(encoding="utf-8")
        assert text.count(f"if {CHOSEN} == {number}\n{plant.code}\n#") == 1
        assert f"\n#else\n{plant.anchor}\n#endif\n" in text
        assert text.count("#endif") - (CSRC / "cuda" / plant.file).read_text(encoding="utf-8").count("#endif") == len(
            {other.anchor for other in PLANTS if other.file == plant.file}
        )


def test_a_place_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_cuda, "PLANTS", (replace(PLANTS[0], anchor="no such line"),))
    with pytest.raises(ValueError, match=r"row-offset-in-uint8: zos_metadata\.h has the anchor 0 times"):
        planted_source(tmp_path)


def test_each_kind_has_two_members_and_each_names_a_field_that_there_is() -> None:
    assert len(PLANTS) == len({plant.name for plant in PLANTS}) == 12
    assert max(Counter(plant.code for plant in PLANTS).values()) == 1
    for plant in PLANTS:
        formula, _, field = plant.declared.partition(":")
        assert field in oracle.FIELDS
        mutant: Mutant = in_kernels(plant)
        assert mutant.fits(f"MISMATCH:decode_zos:{formula}:{field}:value")
        assert not mutant.fits("MISMATCH:decode_zos:F-COUNT:total_q:value")
