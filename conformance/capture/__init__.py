"""Live batches of an engine as case files: a few lines in the engine, off unless its environment names a folder."""

from __future__ import annotations

from pathlib import Path

from inputmeta.conformance.capture.capture import Capture
from inputmeta.conformance.capture.settings import Settings, SettingsError

__all__ = ["Capture", "Settings", "SettingsError", "include_dir"]


def include_dir() -> Path:
    """The folder of ``inputmeta_capture.h``, which does the same for an engine in C++17."""
    return Path(__file__).parent
