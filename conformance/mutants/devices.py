"""Faults of a device: after one, every further call of the process fails."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import wrong_class
from inputmeta.conformance.mutants.processes import Trigger

ILLEGAL = "CUDA error: an illegal memory access was encountered"
PTX = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry wild() {
  .reg .b64 %a;
  .reg .b32 %v;
  mov.u64 %a, 4096;
  mov.u32 %v, 7;
  st.global.u32 [%a], %v;
  ret;
}
\0"""
"""A kernel of one thread that stores at an address nobody owns."""


@wrong_class("DEVICE_ERROR", "DEVICE_ERROR:device", "a kernel that reads past a block table; without a device")
class IllegalAccess(Trigger):
    """Breaks the context: the batch that does it and every later one of the process get the same error."""

    broken = False

    def before(self, request: Request) -> None:
        super().before(request)
        if self.broken:
            text = "CUDA kernel errors might be asynchronously reported at some other API call."
            raise RuntimeError(f"{ILLEGAL}\n{text}")

    def strike(self) -> None:
        self.broken = True


@wrong_class("DEVICE_ERROR", "DEVICE_ERROR:device", "the same, by a kernel that is really launched", gpu=True)
class IllegalAccessOnAGpu(IllegalAccess):
    def strike(self) -> None:
        store_at_a_wild_address()


def driver() -> ctypes.CDLL | None:
    """The CUDA driver, initialised; None where there is none or no device."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int(0)
    found = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    return cuda if found and count.value > 0 else None


def store_at_a_wild_address() -> None:
    """Launch :data:`PTX` on device 0 and wait for it.

    Raises:
        RuntimeError: as it should, with the device's own error.
    """
    cuda = driver()
    if cuda is None:
        raise OSError("no CUDA device")
    device, context, module, kernel = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    steps: tuple[Callable[[], Any], ...] = (
        lambda: cuda.cuDeviceGet(ctypes.byref(device), 0),
        lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        lambda: cuda.cuCtxSetCurrent(context),
        lambda: cuda.cuModuleLoadData(ctypes.byref(module), PTX),
        lambda: cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"wild"),
        lambda: cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None),
        cuda.cuCtxSynchronize,
    )
    for step in steps:
        code = step()
        if code:
            text = ctypes.c_char_p()
            cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"CUDA error: {(text.value or b'unknown').decode()} ({code})")
