"""Subjects whose fields are torch tensors of a device. Imported only when it is asked for: it needs torch.

:class:`DeviceSubject` and :class:`DeviceCopies` are public as members of :mod:`inputmeta.conformance.subjects`.

The suite offers host memory, fenced and poisoned. :class:`DeviceCopies` copies each whole allocation to the device,
fences and poison included, gives views of the same layout, and copies all of it back: the same runner then sees what
was written, left, and written outside. :class:`DeviceSubject` does that for a subject that has :meth:`build_tensors`;
the wide tier calls that method itself, with buffers of the device, and compares there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import torch

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import Capabilities, Result, Unsupported

Buffers = dict[str, torch.Tensor] | None
DeviceResult = Mapping[str, "torch.Tensor | int | bool | Unsupported"]
"""Fields by flat key, as in :data:`inputmeta.conformance.subjects.base.Result`, the arrays as tensors."""


class DeviceSubject:
    """A subject that builds on ``device``, any that torch has. What it has to say itself is :meth:`build_tensors`.

    A tensor that it returned must stay as it is while it builds the next batch, as an array in host memory must: it is
    copied once more then, into the array that was handed over for it. So a result that shares memory with an input that
    is refilled, or with a buffer that is used again, is seen.
    """

    name: str
    capabilities: Capabilities
    device: torch.device
    _returned: tuple[tuple[torch.Tensor, np.ndarray], ...] = ()
    """Tensors of the last result that were copied, and the arrays that they became."""

    def build_tensors(self, request: Request, out: Buffers) -> DeviceResult:
        """Build the claimed fields of one batch as int32 and bool tensors on the device, plain scalars as int or bool.

        ``out``: the caller's buffers on the device, to be filled and returned by a subject that claims ``in_place``;
        None: make new ones. ``request.out`` is None. Raises as
        :meth:`inputmeta.conformance.subjects.base.Subject.build` has it.
        """
        raise NotImplementedError

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        if request.out is None:
            before, self._returned = self._returned, ()
            built = self.build_tensors(request, None)
            for tensor, array in before:
                array[...] = tensor.cpu().numpy()
            return {key: self.fetched(key, value, request) for key, value in built.items()}
        copies = DeviceCopies(request.out, self.device)
        try:
            built = self.build_tensors(dataclasses.replace(request, out=None), copies.tensors)
        finally:
            copies.download()  # after a refusal too: it must not have written
        offered = request.out
        return {
            key: value if isinstance(value, Unsupported) else offered.get(key, value)  # type: ignore[arg-type]
            for key, value in built.items()
        }

    def fetched(self, key: str, value: object, request: Request) -> np.ndarray | int | bool | Unsupported:
        """A field of a request in host memory; of a tensor that is there, its own memory."""
        if not isinstance(value, torch.Tensor):
            return cast("int | bool | Unsupported", value)
        array = self.in_host_memory(value)
        if array.ctypes.data != value.data_ptr():
            self._returned = (*self._returned, (value, array))
        return array

    def in_host_memory(self, tensor: torch.Tensor) -> np.ndarray:
        """The cells of a tensor; waits for the device."""
        array: np.ndarray = tensor.detach().cpu().numpy()
        return array


class DeviceCopies:
    """Device memory that stands for the allocations behind host arrays; ``tensors`` are its views by flat key.

    For a subject of your own that fills ``request.out`` on a device: make one of ``request.out``, fill ``tensors``,
    call :meth:`download`. :class:`DeviceSubject` does just that.

    ``arrays``: by flat key, C-contiguous arrays of any shape and of a dtype that torch has (int32, bool), as the suite
    offers them: views of larger allocations, which hold poison and fences around the views. Each allocation is copied
    to ``device`` whole, once. ``tensors``: of the same keys, shapes and dtypes; arrays that are views of one allocation
    are views of one device allocation, at the same places (F-STACK). What is written past a view on the device so lies
    in a fence, and comes back with it.

    Raises:
        ValueError: an array is not C-contiguous, or its allocation cannot be written back to; it names the key.
        TypeError: a dtype that torch has not.
        RuntimeError: of torch: there is no such device, or it has no memory left.

    >>> memory = np.zeros(4, dtype=np.int32)
    >>> copies = DeviceCopies({"positions": memory[1:3]}, torch.device("cpu"))
    >>> _ = copies.tensors["positions"].fill_(7)
    >>> copies.download()
    >>> memory
    array([0, 7, 7, 0], dtype=int32)
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], device: torch.device) -> None:
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._device = device
        self.tensors = tensors_over(arrays, self._upload)

    def _upload(self, memory: torch.Tensor) -> torch.Tensor:
        copied = memory.to(self._device, copy=True)
        self._pairs.append((memory, copied))
        return copied

    def upload(self) -> None:
        """Copy every allocation to the device again, whole."""
        for memory, copied in self._pairs:
            copied.copy_(memory)

    def download(self) -> None:
        """Copy every allocation back, whole; waits for the device."""
        for memory, copied in self._pairs:
            memory.copy_(copied)


def tensors_over(
    arrays: Mapping[str, np.ndarray], place: Callable[[torch.Tensor], torch.Tensor] = lambda memory: memory
) -> dict[str, torch.Tensor]:
    """The arrays as tensors of the same memory; arrays that are views of one allocation are views of one storage.

    ``place`` gives the memory that stands for one whole allocation, which it gets as a flat tensor; by default itself.

    Raises:
        ValueError: an array is not C-contiguous, or its allocation is read-only.
    """
    storages: dict[int, torch.Tensor] = {}
    tensors = {}
    for key, array in arrays.items():
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        if not (array.flags.c_contiguous and root.flags.c_contiguous and root.flags.writeable):
            raise ValueError(f"{key}: no C-contiguous array in memory that can be written to")
        address = root.__array_interface__["data"][0]
        if address not in storages:
            storages[address] = place(torch.from_numpy(root.reshape(-1)))
        begin = (array.__array_interface__["data"][0] - address) // array.itemsize
        tensors[key] = storages[address].narrow(0, begin, array.size).view(array.shape)
    return tensors
