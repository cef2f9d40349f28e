"""Where compiled files of workers go: nowhere new, unless they would not be kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inputmeta.conformance.workers.compiled import kept_compiled


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path, set[Path]]:
    """An interpreter, the user's cache folder, and the folders that cannot be written to; root may write anywhere."""
    for name in ("bin", "home", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    closed: set[Path] = set()
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) not in closed)
    return str(tmp_path / "bin" / "python"), tmp_path / "cache" / "inputmeta" / "compiled", closed


def test_what_is_kept_anyway_is_left_where_it_is(places) -> None:
    python, _, _ = places
    assert kept_compiled(python, {}) == {}


def test_an_installation_that_keeps_nothing_has_the_cache_folder(places) -> None:
    python, folder, closed = places
    closed.add(Path(python).parent)
    assert kept_compiled(python, {}) == {"PYTHONPYCACHEPREFIX": str(folder / "python")}
    for name in ("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"):
        assert kept_compiled(python, {name: "x"}) == {}


def test_a_home_that_keeps_nothing_has_the_cache_folder(places) -> None:
    python, folder, closed = places
    closed.add(Path.home())
    assert kept_compiled(python, {}) == {"TRITON_CACHE_DIR": str(folder / "triton")}
    assert kept_compiled(python, {"TRITON_CACHE_DIR": "x"}) == kept_compiled(python, {"TRITON_HOME": "x"}) == {}
    closed.add(folder.parents[1])
    assert kept_compiled(python, {}) == {}
