"""Where a wide batch is compared: in host memory, or on the device on which the subject builds.

On a device the reference is made there, the poisoned and fenced buffers lie there, and all comparisons of a step come
back as one array of flags. More is copied only where something differs: the rows that the oracle is asked about.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from inputmeta.conformance import reference
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.buffers import HOST
from inputmeta.conformance.reference import Array, Arrays
from inputmeta.conformance.subjects.base import Result, Subject
from inputmeta.conformance.subjects.reference import reference_of

Flag = bool | Array
"""Whether something differs; an array of one cell of the place where that is not known here yet."""

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@runtime_checkable
class TensorSubject(Protocol):
    """What of :class:`inputmeta.conformance.subjects.device.DeviceSubject` the wide tier asks for."""

    device: Any
    """A ``torch.device``."""

    def build_tensors(self, request: Request, out: Any) -> Mapping[str, Any]:  # noqa: ANN401 - torch is not imported
        """See :class:`inputmeta.conformance.subjects.device.DeviceSubject`."""
        ...


@dataclass(frozen=True)
class Place:
    """Host memory and numpy."""

    arrays: Arrays

    def reference_of(self, request: Request) -> reference.Expected:
        """What the reference has for a valid request, made here."""
        return reference_of(request, cast(ModuleType, self.arrays.xp), self.arrays.device)

    def asked(self, subject: Subject) -> Subject:
        """The subject as one that takes and gives arrays of this place."""
        return subject

    def brought(self, built: object) -> object:
        """A built field as an array of this place, if it is an array at all."""
        return built

    def is_array(self, built: object) -> bool:
        """Whether a built field is an array of this place."""
        return isinstance(built, np.ndarray)

    def unequal(self, one: Any, other: Any, defined: Array | None = None) -> Flag:  # noqa: ANN401 - arrays of here
        """Whether two arrays of one form differ, where ``defined`` says that cells have to be equal."""
        if defined is None and one.flags.c_contiguous and other.flags.c_contiguous:
            return bool(_memcmp(one.ctypes.data, other.ctypes.data, one.nbytes) != 0)
        if defined is None:
            return not np.array_equal(one, other)
        return bool(((one != other) & defined).any())

    def raised(self, *flags: Mapping[str, Flag]) -> list[list[str]]:
        """The keys of each mapping whose flags are true, in their order."""
        return [[key for key, flag in each.items() if flag] for each in flags]


HOST_PLACE = Place(HOST)


class DevicePlace(Place):
    """A device of torch."""

    def asked(self, subject: Subject) -> Subject:
        """See :meth:`Place.asked`."""
        return cast(Subject, Tensors(subject, self.synchronize))

    def synchronize(self) -> None:
        """Wait for the device: an error of a kernel comes up here, and not in what reads its results."""
        kind = getattr(self.arrays.device, "type", "cpu")
        if kind != "cpu":
            getattr(importlib.import_module("torch"), kind).synchronize(self.arrays.device)

    def brought(self, built: object) -> object:
        """See :meth:`Place.brought`: tensors of another device too, and what is in host memory."""
        if isinstance(built, np.ndarray) or self.is_array(built):
            return self.arrays.xp.asarray(built, device=self.arrays.device)
        return built

    def is_array(self, built: object) -> bool:
        """See :meth:`Place.is_array`."""
        return isinstance(built, importlib.import_module("torch").Tensor)

    def unequal(self, one: Any, other: Any, defined: Array | None = None) -> Flag:  # noqa: ANN401 - arrays of here
        """See :meth:`Place.unequal`."""
        wrong = one != other
        return self.arrays.xp.any(wrong if defined is None else wrong & defined)

    def raised(self, *flags: Mapping[str, Flag]) -> list[list[str]]:
        """See :meth:`Place.raised`: one copy for all that the device knows."""
        held = [flag for each in flags for flag in each.values() if not isinstance(flag, bool)]
        known = iter(reference.host_array(self.arrays.xp.stack(held, axis=0)).tolist() if held else [])
        return [
            [key for key, flag in each.items() if (flag if isinstance(flag, bool) else next(known))] for each in flags
        ]


class Tensors:
    """A subject as one whose requests and results have arrays of its device."""

    def __init__(self, subject: Subject, synchronize: Callable[[], None]) -> None:
        self.name, self.capabilities = subject.name, subject.capabilities
        self._subject = cast(TensorSubject, subject)
        self._synchronize = synchronize

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`; returns once the device has done it."""
        result = self._subject.build_tensors(dataclasses.replace(request, out=None), request.out)
        self._synchronize()
        return result


def place_of(subject: Subject) -> Place:
    """Where the batches of a subject are compared: its device, if it hands over what it builds there."""
    if isinstance(subject, TensorSubject):
        return DevicePlace(Arrays.of(importlib.import_module("array_api_compat.torch"), subject.device))
    return HOST_PLACE
