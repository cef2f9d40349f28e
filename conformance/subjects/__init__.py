"""Subjects: what is tested. :mod:`inputmeta.conformance.subjects.base` holds the contract, the other modules the
bundled ones.
"""

from inputmeta.conformance.subjects.base import Capabilities, Rejection, Request, Result, Subject
from inputmeta.conformance.subjects.loading import SubjectError, load_subject

__all__ = ["Capabilities", "Rejection", "Request", "Result", "Subject", "SubjectError", "load_subject"]
