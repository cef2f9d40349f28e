"""What a worker compiles is kept for the next one: Python's files and Triton's.

Both are kept anyway where they can be: beside the sources, and in ``~/.triton``. An installation or a home that cannot
be written to keeps nothing, and every worker would compile everything again; then they go to the user's cache folder.
What the environment says counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from inputmeta.conformance.folders import cache_folder


def kept_compiled(python: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables to add to the ``environment`` of a worker that runs the interpreter ``python``; mostly none."""
    folder = cache_folder() / "compiled"
    if not _writable(folder):
        return {}
    added = {}
    # Only there: with a prefix, the files that were compiled when something was installed are not looked at.
    if not environment.keys() & {"PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"} and not _writable(
        Path(python).parent
    ):
        added["PYTHONPYCACHEPREFIX"] = str(folder / "python")
    if not environment.keys() & {"TRITON_CACHE_DIR", "TRITON_HOME"} and not _writable(Path.home() / ".triton"):
        added["TRITON_CACHE_DIR"] = str(folder / "triton")
    return added


def _writable(folder: Path) -> bool:
    """Whether files can be made in a folder, which may have to be made first."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)
