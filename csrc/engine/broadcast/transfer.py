"""Moves the tensors: the small ones packed into one buffer, the large ones as they are, through the device group."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
import torch.distributed as dist

from inputmeta.engine.broadcast.control import Deadline
from inputmeta.engine.broadcast.manifest import TensorEntry
from inputmeta.engine.device import sent

# From here on a copy into the packed buffer costs more than a collective of its own.
LARGE_BYTES = 1 << 20
# Enough for the view of any dtype.
_ALIGNMENT = 16


class Parcel:
    """The buffers of one broadcast on one rank: byte tensors on `device`, the packed one (if any) first.

    `entries` say what tensors there are; buffers are undefined until `load` (source) or `exchange` (receivers).
    """

    def __init__(self, entries: Sequence[TensorEntry], device: torch.device) -> None:
        self.entries = entries
        self.device = device
        small = [index for index, entry in enumerate(entries) if entry.size < LARGE_BYTES]
        sizes = [-(-entries[index].size // _ALIGNMENT) * _ALIGNMENT for index in small]
        begins = list(accumulate(sizes, initial=0))
        self.packed_bytes = begins[-1]
        self.offsets = dict(zip(small, begins[:-1], strict=True))
        self.packed = torch.empty(0, dtype=torch.uint8, device=device)
        self.large: dict[int, torch.Tensor] = {}

    def reserve(self) -> None:
        """Allocates all buffers, for a receiver."""
        self.packed = torch.empty(self.packed_bytes, dtype=torch.uint8, device=self.device)
        for index, entry in enumerate(self.entries):
            if index not in self.offsets:
                self.large[index] = torch.empty(entry.size, dtype=torch.uint8, device=self.device)

    def load(self, tensors: Sequence[torch.Tensor]) -> None:
        """Fills all buffers from the source's tensors; a large one that lies ready is its own buffer.

        Host tensors that go to a device are packed on the host first: one copy to the device instead of one for each.
        """
        small = [tensors[index] for index in self.offsets]
        staged = self.device.type == "cuda" and all(tensor.device.type == "cpu" for tensor in small)
        place = torch.device("cpu") if staged else self.device
        packed = torch.empty(self.packed_bytes, dtype=torch.uint8, device=place, pin_memory=staged)
        _clear(packed)  # the gaps between tensors
        for tensor, index in zip(small, self.offsets, strict=True):
            _copy(self._slice(packed, index), _bytes_of(tensor.to(place)))
        # torch keeps pinned memory until a copy from it is done.
        self.packed = sent(packed, self.device)
        for index, tensor in enumerate(tensors):
            if index not in self.offsets:
                self.large[index] = _bytes_of(tensor.to(self.device))

    def exchange(self, src: int, group: dist.ProcessGroup | None, deadline: Deadline) -> None:
        """Sends the source's buffers to all ranks of `group`; waits until they are there.

        A fifth of the time is left for the agreement that follows. Raises what torch raises.
        """
        buffers = [buffer for buffer in (self.packed, *self.large.values()) if buffer.numel()]
        works = [dist.broadcast(buffer, src, group=group, async_op=True) for buffer in buffers]
        for work in works:
            if work is None or not work.wait(deadline.remaining(reserve=0.2)):
                raise RuntimeError("the collective was given up")

    def tensor(self, index: int) -> torch.Tensor:
        """The tensor of an entry, after the exchange: contiguous, with memory of its own."""
        entry = self.entries[index]
        if index not in self.offsets:
            return self.large[index].view(entry.torch_dtype).view(entry.shape)
        tensor = torch.empty(entry.shape, dtype=entry.torch_dtype, device=self.device)
        _copy(_bytes_of(tensor), self._slice(self.packed, index))
        return tensor

    def _slice(self, packed: torch.Tensor, index: int) -> torch.Tensor:
        return packed[self.offsets[index] : self.offsets[index] + self.entries[index].size]


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Its values as a flat uint8 tensor; its own memory if it is contiguous."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


# On the host NumPy clears and copies, on the calling thread. torch wakes its thread pool for more than 32 K elements,
# which takes tens of milliseconds when several ranks share the cores.


def _clear(buffer: torch.Tensor) -> None:
    if buffer.device.type == "cpu":
        buffer.numpy().fill(0)
    else:
        buffer.zero_()


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copies bytes; both are on one device."""
    if target.device.type == "cpu":
        np.copyto(target.numpy(), source.numpy())
    else:
        target.copy_(source)
