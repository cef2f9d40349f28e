"""Subjects: what is tested. :mod:`inputmeta.conformance.subjects.base` holds the contract, the other modules the
bundled ones.

:class:`DeviceSubject` and :class:`DeviceCopies`, for engines whose fields are torch's tensors of a device, are imported
when they are asked for: they need torch (:mod:`inputmeta.conformance.subjects.device`).
"""

from typing import TYPE_CHECKING

from inputmeta.conformance.cases.allocated import Allocates
from inputmeta.conformance.cases.conditions import Conditions
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import (
    ALLOCATED_BLOCKS,
    ALLOCATED_STATES,
    Capabilities,
    Rejection,
    Result,
    Subject,
    SubjectError,
    Unsupported,
)
from inputmeta.conformance.subjects.loading import load_subject

if TYPE_CHECKING:
    from inputmeta.conformance.subjects.device import DeviceCopies as DeviceCopies
    from inputmeta.conformance.subjects.device import DeviceSubject as DeviceSubject

__all__ = [
    "ALLOCATED_BLOCKS",
    "ALLOCATED_STATES",
    "Allocates",
    "Capabilities",
    "Conditions",
    "Rejection",
    "Request",
    "Result",
    "Subject",
    "SubjectError",
    "Unsupported",
    "load_subject",
]
OF_A_DEVICE = ("DeviceCopies", "DeviceSubject")
"""Members that need torch."""


def __getattr__(name: str) -> object:
    if name not in OF_A_DEVICE:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    try:
        from inputmeta.conformance.subjects import device  # noqa: PLC0415 - it imports torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"{name} needs torch: pip install torch", name="torch") from error
    return getattr(device, name)
