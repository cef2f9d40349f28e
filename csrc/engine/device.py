"""CUDA devices: whether the engine can use one, and where its launches go."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

import torch

HOST = torch.device("cpu")


@functools.cache
def _built() -> ModuleType | None:
    """The module `inputmeta.engine._cuda`; None where the engine was built without a CUDA compiler."""
    try:
        return importlib.import_module("inputmeta.engine._cuda")
    except ModuleNotFoundError:
        return None


def cuda_available() -> bool:
    """Whether the engine has its kernels and torch sees a GPU."""
    return _built() is not None and torch.cuda.is_available()


def kernels() -> ModuleType:
    """The module `inputmeta.engine._cuda`. RuntimeError, which says what is missing, where it or a GPU is not there."""
    module = _built()
    if module is None:
        raise RuntimeError("the engine was built without a CUDA compiler: inputmeta.engine._cuda is missing")
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no CUDA GPU")
    return module


def target_from(device: torch.device | str) -> torch.device:
    """Any device of torch, to copy to; RuntimeError for a GPU that cannot be used."""
    device = torch.device(device)
    if device.type == "cuda":
        kernels()
    return device


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor on `device`; itself if it is there. A copy from pinned memory to a GPU may still be under way when the
    call returns; one to the host is not, or it would be read before it is there.
    """
    return tensor.to(device, non_blocking=device.type != "cpu")


def copy_into(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copies the values of `source`; what may still be under way is as for `sent`."""
    target.copy_(source, non_blocking=not target.is_cpu)


def device_from(device: torch.device | str) -> torch.device:
    """A device to work on, with its index: "cuda" is torch's current one. RuntimeError for a GPU that cannot be used,
    NotImplementedError for anything but the host and a GPU.
    """
    device = target_from(device)
    if device.type == "cpu":
        return HOST
    if device.type != "cuda":
        raise NotImplementedError(f"the engine knows the host and CUDA GPUs, not {device}")
    return device if device.index is not None else torch.device("cuda", torch.cuda.current_device())


def device_of(tensor: torch.Tensor | None) -> torch.device:
    """Where the work on a tensor is done: its GPU, else the host."""
    return tensor.device if tensor is not None and tensor.is_cuda else HOST


def queue_of(device: torch.device) -> tuple[int, int]:
    """Index of a GPU and address of torch's current stream on it, as the kernels take them."""
    return device.index, torch.cuda.current_stream(device).cuda_stream


def is_capturing(device: torch.device) -> bool:
    """Whether a CUDA graph captures torch's current stream on a GPU."""
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def available_bytes(device: torch.device) -> int:
    """Memory that torch can still give on a GPU, bytes: free, or cached by it, within this process's share."""
    free, total = torch.cuda.mem_get_info(device)
    used, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    share: float = getattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)(device)
    return max(0, min(free + reserved - used, int(share * total) - used))
