"""A result that is kept while the next batch is built: without ``out`` its arrays are new, and stay as they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np


class Kept:
    """The arrays of one result beside a copy of what they held.

    ``keys``: of the arrays that have the form of a field. Another one may look larger than memory.
    """

    def __init__(self, result: Mapping[str, object], keys: Collection[str]) -> None:
        arrays = {key: value for key in keys if isinstance(value := result[key], np.ndarray)}
        self._held = [(key, array, array.copy()) for key, array in arrays.items()]

    def changed(self) -> list[str]:
        """Keys, ascending, of the arrays that no longer hold what they held."""
        return sorted(key for key, array, copy in self._held if not np.array_equal(array, copy))


NOTHING_KEPT = Kept({}, ())


def change_text(keys: list[str]) -> str:
    """What is wrong with the earlier result, in words."""
    return f"while this batch was built, the arrays returned for an earlier one changed: {', '.join(keys)[:150]}"
