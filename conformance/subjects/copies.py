"""Copies of the oracle whose sources are changed on the way in: wrong in one known way, or with marks."""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from inputmeta import oracle

SOURCE = Path(oracle.__file__).parent


class PatchError(ValueError):
    """A patch whose text does not stand exactly once in the module it names."""


Change = Callable[[ModuleType, str, str], str | ast.Module]
"""From a new module, its name within the oracle and its source: what is to be run in its place."""


class _CopyFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports ``<name>`` and ``<name>.<module>`` from the oracle's sources, changed."""

    def __init__(self, name: str, change: Change) -> None:
        self.name = name
        self.change = change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name and not fullname.startswith(self.name + "."):
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=fullname == self.name)

    def exec_module(self, module: ModuleType) -> None:
        stem = module.__name__.removeprefix(self.name).lstrip(".") or "__init__"
        path = SOURCE / f"{stem}.py"
        changed = self.change(module, stem, path.read_text(encoding="utf-8"))
        exec(compile(changed, f"<{module.__name__}: {path.name}>", "exec"), module.__dict__)


def patched_source(module: str, old: str, new: str) -> str:
    """The source of an oracle module with ``old`` replaced by ``new``.

    Raises:
        PatchError: ``old`` does not stand exactly once in it.

    """
    source = (SOURCE / f"{module}.py").read_text(encoding="utf-8")
    if source.count(old) != 1:
        raise PatchError(f"oracle/{module}.py holds {source.count(old)} times {old!r}, not once")
    return source.replace(old, new)


def copy_of(name: str, change: Change) -> ModuleType:
    """Import a copy of the oracle as the package ``name``, each module changed on the way in."""
    finder = _CopyFinder(name, change)
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(name)
    finally:
        sys.meta_path.remove(finder)


def copy_with(name: str, module: str, old: str, new: str) -> ModuleType:
    """Import a copy of the oracle as the package ``name``, with one text replaced in one module."""
    patched = patched_source(module, old, new)
    return copy_of(name, lambda _, stem, source: patched if stem == module else source)
