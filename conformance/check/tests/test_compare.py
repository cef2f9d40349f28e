"""Conversion of the oracle's cells."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inputmeta.conformance.check.compare import with_holes


@given(st.integers(1, 5).flatmap(lambda w: st.lists(st.lists(st.none() | st.integers(-9, 9), min_size=w, max_size=w))))
def test_holes_are_kept_wherever_they_are(rows: list[list[int | None]]) -> None:
    shape = (len(rows), len(rows[0]) if rows else 3)
    values, defined = with_holes([cell for row in rows for cell in row], shape)
    assert values.shape == defined.shape == shape
    assert defined.tolist() == [[cell is not None for cell in row] for row in rows]
    assert values.tolist() == [[cell or 0 for cell in row] for row in rows]
    assert values.dtype == np.int64
