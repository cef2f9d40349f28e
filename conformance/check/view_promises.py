"""What must hold of a container's views (I-23), and of the image masks of a model that reads images (I-48)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.promises import (
    Container,
    ContainerSubject,
    PromiseError,
    Snapshot,
    has,
    leaves,
    require,
)
from inputmeta.conformance.check.tensors import cells, is_tensor, name_of, rows, shares
from inputmeta.oracle import views
from inputmeta.oracle.sliding_window import Pivots, expand_pivots
from inputmeta.oracle.units import KeyRow, Token

WINDOW = "kv_swa_full_index"
OWN = frozenset({"valid_token_mask", "gate_force_random", "gate_force_random_cp", *views.GATHERED})
"""What a consumer view makes itself: of no memory that is there."""


def fields(container: Container) -> dict[str, Any]:
    """A container's declared fields by flat key, tensors as lists of rows."""
    return {key: rows(value) for key, value in leaves(container).items() if key.partition(".")[0] in oracle.FIELDS}


def agree(got: Mapping[str, Any], wanted: Mapping[str, Any], what: str) -> None:
    """A view has the model's fields, with the model's values."""
    for key in sorted(wanted.keys() | got.keys()):
        if got.get(key) != wanted.get(key):
            raise PromiseError(f"{what}: {key} is {brief(got.get(key))}, the oracle says {brief(wanted.get(key))}", key)


def of_their_dtypes(view: Container, what: str) -> None:
    """A view's tensors have the dtypes that are declared."""
    for key, value in leaves(view).items():
        field = oracle.FIELDS.get(key.partition(".")[0])
        if field is not None and is_tensor(value):
            dtype = name_of(cells(value).dtype)
            require(dtype == field.dtype, f"{what}: {key} is of {dtype}, want {field.dtype}", key)


def brief(value: object) -> str:
    """A value as text, cut short."""
    text = repr(value)
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "…"


MOST_TEXT = 120
"""Characters of a value that is shown."""


def mask_view_is_the_oracles(subject: ContainerSubject, container: Container, request: Request) -> None:
    """I-23: the pivots swapped, their expansion cleared, all else shared; it expands its own pivots."""
    if getattr(container, "yoco_mask_swa_index_pivots", None) is None:
        return
    before = Snapshot(container, "mask view: the original")
    view = container.get_mask_view()
    agree(fields(view), views.mask_view(fields(container)), "mask view")
    of_their_dtypes(view, "mask view")
    shared(view, container, views.MASK_VIEW, "mask view")
    before.unchanged()
    expands_its_own_pivots(subject, view, request, "mask view")
    before.unchanged()


def consumer_view_is_the_oracles(subject: ContainerSubject, container: Container, request: Request) -> None:
    """I-23, I-24: field by field what the oracle makes of the container's own fields; it expands its own pivots."""
    mirrored = request.config.cp_size > 1
    swapped = views.CONSUMER_MIRROR_VIEW if mirrored else views.CONSUMER_VIEW
    own = fields(container)
    names = {key.partition(".")[0] for key in own}
    if not {source for name, source in swapped.swaps.items() if name in names} | REQUIRED <= names:
        return  # it has not what the view is made of
    before = Snapshot(container, "consumer view: the original")
    view = container.get_consumer_view()
    full_mask = [not s.is_placeholder for s in request.sequences for _ in range(s.seqlen_q)] or [False]
    agree(fields(view), views.consumer_view(own, full_mask), "consumer view")
    of_their_dtypes(view, "consumer view")
    shared(view, container, swapped, "consumer view")
    before.unchanged()
    expands_its_own_pivots(subject, view, request, "consumer view")
    before.unchanged()


REQUIRED = frozenset({"yoco_consumer_query_indices", "yoco_consumer_total_q", "gate_force_random"})
"""Without these a container has no consumer view that could be checked."""


def shared(view: Container, container: Container, swapped: views.View, what: str) -> None:
    """What a view takes over, or takes from another field, is the same memory."""
    held = leaves(container)
    for key, value in leaves(view).items():
        name, dot, bucket = key.partition(".")
        source = f"{swapped.swaps.get(name, name)}{dot}{bucket}"
        if is_tensor(value) and not (name in OWN and what == "consumer view") and source in held:
            require(shares(value, held[source]), f"{what}: {key} is a copy", key)


def expands_its_own_pivots(subject: ContainerSubject, view: Container, request: Request, what: str) -> None:
    """``kv_swa_full_index`` of a view is the expansion of its own pivots, mirrored if the view is."""
    if not has(subject, "expand") or not hasattr(view, WINDOW):
        return
    subject.expand(view, dataclasses.replace(request, expand=frozenset({WINDOW})))
    require(getattr(view, WINDOW) is not None, f"{what}: {WINDOW} is not made on demand", WINDOW)
    expanded, window = rows(getattr(view, WINDOW)), Token(request.config.window_size)
    pivots = [Pivots(KeyRow(a), Token(b), KeyRow(c), Token(d)) for a, b, c, d in rows(view.kv_swa_full_index_pivots)]
    index = getattr(view, "mirror_cp_index", None)
    if view.total_q == 0:
        wanted = [[-1] * window for _ in expanded]
    elif index is None:
        wanted = [expand_pivots(row, window) for row in pivots]
    else:
        wanted = [expand_pivots(pivots[row], window) if row >= 0 else [-1] * window for row in rows(index)]
    agree({WINDOW: expanded}, {WINDOW: wanted}, f"{what}, expanded")


def images_follow(subject: ContainerSubject, request: Request) -> None:
    """I-48: mask and types of a caller, before and after mirror and consumer view."""
    total = max(1, sum(sequence.seqlen_q for sequence in request.sequences))
    mask = np.arange(total) % 3 == 1
    mask[-1] = True
    types = np.arange(1, total + 1, dtype=np.int32)
    container = subject.image_container(request, mask.copy(), types.copy())
    has_images(container, mask, types, "container")
    given = fields(container) | {"images_seq_mask": mask.tolist(), "images_seq_mask_full": mask.tolist()}
    agree_on_mask(container, views.image_mask(given), "container")
    flat = container.to_flatten_dict() if has(container, "to_flatten_dict") else leaves(container)
    for name in ("images_seq_mask", "mm_token_type"):
        require(name in flat, f"to_flatten_dict: {name} is missing", name)
    compact = request.path == "prompt" and request.config.yoco_mode == "compact"
    if compact and has(container, "get_consumer_view"):
        view = container.get_consumer_view()
        has_images(view, mask, types, "consumer view")
        for name in SHARED_IMAGES:
            one, other = getattr(view, name, None), getattr(container, name, None)
            require(one is other or shares(one, other), f"consumer view: {name} is a copy", name)
        agree_on_mask(view, views.consumer_image_mask(given), "consumer view")
        agree_on_mask(container, views.image_mask(given), "container after a consumer view")


SHARED_IMAGES = ("mm_token_type", "images_seq_mask_full")
"""A caller's own, which neither the mirror nor a view reorders."""


def has_images(container: Container, mask: np.ndarray, types: np.ndarray, what: str) -> None:
    """The caller's types, and the full mask where the rows are mirrored, are what they were."""
    held = getattr(container, "mm_token_type", None)
    got = rows(held)
    require(got == types.tolist(), f"{what}: mm_token_type is {brief(got)}, want the caller's {brief(types.tolist())}")
    dtype = name_of(cells(held).dtype)
    require(dtype == types.dtype.name, f"{what}: mm_token_type is of {dtype}, want the caller's {types.dtype}")
    full = rows(getattr(container, "images_seq_mask_full", None))
    if full is not None or getattr(container, "mirror_cp_index", None) is not None:
        require(full == mask.tolist(), f"{what}: images_seq_mask_full is {brief(full)}, want {brief(mask.tolist())}")


def agree_on_mask(container: Container, wanted: list[bool], what: str) -> None:
    """``images_seq_mask`` is the model's."""
    held = getattr(container, "images_seq_mask", None)
    got = rows(held)
    require(got == wanted, f"{what}: images_seq_mask is {brief(got)}, the oracle says {brief(wanted)}")
    dtype = name_of(cells(held).dtype)
    require(dtype == "bool", f"{what}: images_seq_mask is of {dtype}, want bool")
