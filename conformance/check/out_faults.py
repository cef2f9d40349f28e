"""The caller's buffers with one of them spoilt, as P-OUT and F-STACK refuse them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.model import OutFault, Path
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.buffers import Shapes
from inputmeta.conformance.check.verdicts import declared
from inputmeta.conformance.subjects.base import Capabilities

Views = dict[str, np.ndarray]


def beyond(fault: OutFault, path: Path, shapes: Shapes, able: Capabilities) -> str | None:
    """Why a subject that is offered buffers of these shapes is not asked to refuse the fault, or None."""
    if fault.fault == "read-only" and not able.read_only:
        return "read-only buffers"
    if fault.key not in shapes:
        return f"out {fault.key}"
    stacked = path == "decode_zos" and declared(fault.key).expansion is None and len(buckets(shapes, fault.key)) > 1
    has_place = {
        "narrow": len(shapes[fault.key][1]) > 1,
        "mis-spaced": stacked,
        "overlapping": stacked,
    }
    return None if has_place.get(fault.fault, True) else f"{fault.fault} out {fault.key}"


def written_before(key: str, fault: OutFault, request: Request) -> bool:
    """Whether a call fills the buffer of ``key`` that comes before the one whose buffer is at fault (I-49)."""
    first, second = (
        oracle.CALLS.index(declared(one).written_by(request.path, request.config)) for one in (key, fault.key)
    )
    return first < second


def spoilt(views: Views, fault: OutFault) -> Views:
    """The views with the fault's one left out, cut, exchanged or moved."""
    view = views[fault.key]
    match fault.fault:
        case "missing":
            return {key: other for key, other in views.items() if key != fault.key}
        case "short":
            wrong = view[:-1]
        case "narrow":
            rows, columns = view.shape
            wrong = view.reshape(-1)[: rows * (columns - 1)].reshape(rows, columns - 1)
        case "dtype":
            wrong = np.zeros(view.shape, dtype=np.int32 if view.dtype == np.bool_ else np.bool_)
        case "read-only":
            wrong = view.view()
            wrong.flags.writeable = False
        case "mis-spaced":
            *_, before, last = buckets(views, fault.key)
            return views | {last: views[before], before: views[last]}
        case "overlapping":
            first, *_, last = buckets(views, fault.key)
            return views | {last: views[first]}
    return views | {fault.key: wrong}


def buckets(keys: Iterable[str], key: str) -> list[str]:
    """Keys of the field that ``key`` is a bucket of, by ascending ratio."""
    name = key.partition(".")[0]
    return [other for other in keys if other.partition(".")[0] == name]
