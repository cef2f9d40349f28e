"""Copies of the oracle with one place in the source changed: subjects that are wrong in one known way."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from inputmeta import oracle

SOURCE = Path(oracle.__file__).parent


class PatchError(ValueError):
    """A patch whose text does not stand exactly once in the module it names."""


class _CopyFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports ``<name>`` and ``<name>.<module>`` from the oracle's sources, one of them patched."""

    def __init__(self, name: str, module: str, source: str) -> None:
        self.name = name
        self.patched = {module: source}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name and not fullname.startswith(self.name + "."):
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=fullname == self.name)

    def exec_module(self, module: ModuleType) -> None:
        stem = module.__name__.removeprefix(self.name).lstrip(".") or "__init__"
        path = SOURCE / f"{stem}.py"
        source = self.patched.get(stem) or path.read_text(encoding="utf-8")
        exec(compile(source, f"<{module.__name__}: {path.name}>", "exec"), module.__dict__)


def patched_source(module: str, old: str, new: str) -> str:
    """The source of an oracle module with ``old`` replaced by ``new``.

    Raises:
        PatchError: ``old`` does not stand exactly once in it.

    """
    source = (SOURCE / f"{module}.py").read_text(encoding="utf-8")
    if source.count(old) != 1:
        raise PatchError(f"oracle/{module}.py holds {source.count(old)} times {old!r}, not once")
    return source.replace(old, new)


def copy_with(name: str, module: str, old: str, new: str) -> ModuleType:
    """Import a copy of the oracle as the package ``name``, with one text replaced in one module."""
    finder = _CopyFinder(name, module, patched_source(module, old, new))
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(name)
    finally:
        sys.meta_path.remove(finder)
