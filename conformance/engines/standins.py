"""One source file of an engine, imported without the packages around it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any


def standin(name: str, **members: object) -> ModuleType:
    """A module that has these members alone."""
    module = ModuleType(name)
    module.__dict__.update(members)
    module.__path__ = []  # modules below it can be stood in for as well
    return module


def module_by_path(file: Path, name: str, standins: Mapping[str, ModuleType]) -> Any:  # noqa: ANN401 - a module
    """A source file as a module; while it is imported, other modules stand for those of these names.

    Raises:
        ImportError: there is no such file, or it imports what is not there.
    """
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ImportError(f"{file.name} is not in {file.parent}")
    module = importlib.util.module_from_spec(spec)
    before = {key: sys.modules.get(key) for key in standins}
    sys.modules.update(standins)
    try:
        spec.loader.exec_module(module)
    finally:
        for key, value in before.items():
            if value is None:
                del sys.modules[key]
            else:
                sys.modules[key] = value
    return module
