"""The caller's buffers with one of them spoilt, as P-OUT and F-STACK refuse them."""

from __future__ import annotations

import numpy as np

from inputmeta.conformance.cases.model import OutFault

Views = dict[str, np.ndarray]


def spoilt(views: Views, fault: OutFault) -> Views:
    """The views with the fault's one left out, cut, exchanged or moved."""
    view = views[fault.key]
    others = {key: value for key, value in views.items() if key != fault.key}
    match fault.fault:
        case "missing":
            return others
        case "short":
            return views | {fault.key: view[:-1]}
        case "narrow":
            cells = view.reshape(-1)[: view.shape[0] * (view.shape[1] - 1)]
            return views | {fault.key: cells.reshape(view.shape[0], view.shape[1] - 1)}
        case "dtype":
            other = np.int32 if view.dtype == np.bool_ else np.bool_
            return views | {fault.key: np.zeros(view.shape, dtype=other)}
        case "mis-spaced":
            *_, before, last = buckets(views, fault.key)
            return views | {last: views[before], before: views[last]}
        case "overlapping":
            return views | {fault.key: views[buckets(views, fault.key)[0]]}


def buckets(views: Views, key: str) -> list[str]:
    """Keys of the field that ``key`` is a bucket of, by ascending ratio."""
    name = key.partition(".")[0]
    return [other for other in views if other.partition(".")[0] == name]
