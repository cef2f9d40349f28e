"""What each row sees, out of masks and windows: the key sets of F-VISIBLE (I-50), whatever buffer the keys lie in."""

from __future__ import annotations

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects.base import DialectError
from inputmeta.conformance.dialects.rows import lengths_of


def key_set_of_mask(request: Request, mask: np.ndarray, ratio: int = 1) -> np.ndarray:
    """The pairs of a mask, int64 [pairs, 3]: query row, sequence, position of the key.

    ``mask``: bool [rows, keys], a row a query row, the keys of all sequences end to end: ``seqlen_k // ratio`` of each,
    of a ``ratio`` above 1 its compressed tokens.

    Raises:
        DialectError: it is no bool array, or has not so many columns.
    """
    keys = lengths_of(request)[1] // ratio
    if mask.dtype != np.bool_ or mask.ndim != 2 or mask.shape[1] != keys.sum():
        raise DialectError(f"a mask is bool [rows, {keys.sum()}], got {mask.dtype}{list(mask.shape)}")
    row, column = np.nonzero(mask)
    ends = np.cumsum(keys)
    sequence = np.searchsorted(ends, column, side="right")
    position = (column - (ends - keys)[sequence]) * ratio
    return np.stack([row, sequence, position], axis=1).astype(np.int64)


def key_set_of_windows(sequence: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The pairs of windows, int64 [pairs, 3]: query row, sequence, position.

    ``sequence``: integers [rows], the sequence of each row. ``positions``: integers [rows, width], absolute positions
    of its keys in any order; a negative one is none.

    Raises:
        DialectError: the shapes do not fit.

    >>> key_set_of_windows(np.array([0, 1]), np.array([[3, 4], [0, -1]])).tolist()
    [[0, 0, 3], [0, 0, 4], [1, 1, 0]]
    """
    if positions.ndim != 2 or sequence.shape != positions.shape[:1]:
        raise DialectError(
            f"windows are [rows, width], and [rows]: got {list(positions.shape)}, {list(sequence.shape)}"
        )
    row, column = np.nonzero(positions >= 0)
    return np.stack([row, sequence[row], positions[row, column]], axis=1).astype(np.int64)
