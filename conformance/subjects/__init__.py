"""Subjects: what is tested. :mod:`inputmeta.conformance.subjects.base` holds the contract, the other modules the
bundled ones.
"""

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
