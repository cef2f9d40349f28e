"""Draws that depend on the seed alone.

Hypothesis mixes constants into its draws which it reads in the source of every module that is loaded from outside
``site-packages``, and keeps them in ``.hypothesis`` of the current folder. So a seed would mean other cases where the
suite is installed otherwise, or the subject is loaded in this process; and a run would leave a folder behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis.internal.conjecture import providers

READER, CACHE = "_get_local_constants", "CONSTANTS_CACHE"
"""Names of the module ``providers``: of the function that reads the sources, and of what is kept of its results."""


@contextmanager
def repeatable_draws() -> Iterator[None]:
    """Hypothesis looks at no module's source while this is entered; its own constants stay.

    Hypothesis has no setting for it. A version without these names draws as it does; a test tells. Tests of the user's
    in the same process find all as it was.
    """
    if not all(hasattr(providers, name) for name in (READER, CACHE, "Constants")):
        yield
        return
    none = providers.Constants()  # type: ignore[attr-defined]
    kept = providers.CONSTANTS_CACHE
    with patch.object(providers, READER, lambda: none), patch.object(providers, CACHE, type(kept)(kept.max_size)):
        yield
