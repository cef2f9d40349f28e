"""Single files of an engine, imported without the package around them.

A package's import chain brings servers, models and compiled libraries along that no builder of metadata calls. So the
packages that hold a wanted file are made here without their ``__init__``, and what a file names of its other
neighbours is a stand-in: whatever is not needed raises when it is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

INTERPRET = "TRITON_INTERPRET"


@dataclass(frozen=True)
class Torch:
    """torch, and the device that kernels run on: the GPU; without one, Triton's interpreter on the CPU."""

    torch: ModuleType
    device: str

    def tensor(self, values: object, dtype: str = "int64") -> Any:
        """A tensor on the device."""
        return self.torch.tensor(values, dtype=getattr(self.torch, dtype), device=self.device)

    def table(self, rows: Sequence[Sequence[int]], dtype: str = "int64") -> Any:
        """Rows of different lengths as one tensor on the device, 0 to the right of them; at least one column."""
        width = max(1, *map(len, rows)) if rows else 1
        return self.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype)


def torch_for_triton() -> Torch:
    """torch, before anything imports Triton; with ``TRITON_INTERPRET=1`` set, the CPU although there is a GPU."""
    if os.environ.get(INTERPRET) == "1":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch = import_module("torch")
    if torch.cuda.is_available():
        return Torch(torch, "cuda")
    os.environ[INTERPRET] = "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return Torch(torch, "cpu")


def host(tensor: Any) -> np.ndarray:
    """A tensor's cells, copied to the host."""
    array: np.ndarray = tensor.detach().cpu().numpy().copy()
    return array


class Absent:
    """What is named and never needed: a base class, a decorator's argument, a function that raises when called."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __class_getitem__(cls, _: object) -> type[Absent]:
        return cls


def absent(*names: str) -> dict[str, object]:
    """Stand-ins of these names."""

    def function(name: str) -> object:
        def raises(*_: object, **__: object) -> NoReturn:
            raise NotImplementedError(f"{name} is a stand-in: no builder of metadata calls it")

        return raises

    return {name: type(name, (Absent,), {}) if name[0].isupper() else function(name) for name in names}


def files_of(folder: Path, files: Sequence[str], neighbours: Mapping[str, Mapping[str, object]]) -> list[ModuleType]:
    """The modules of an engine's files, named with dots below ``folder``; ``neighbours``: stand-ins by module."""
    for name, members in neighbours.items():
        if name not in sys.modules:
            module = ModuleType(name)
            vars(module).update(members)
            sys.modules[name] = module
    for file in (*files, *neighbours):
        parts = file.split(".")[:-1]
        for depth in range(1, len(parts) + 1):
            package = ".".join(parts[:depth])
            module = sys.modules.setdefault(package, ModuleType(package))
            module.__path__ = [str(folder.joinpath(*parts[:depth]))]
    return [import_module(file) for file in files]
