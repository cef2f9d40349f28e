"""What must hold of a container of fields (SPEC.md chapter 11), checked on any subject's by the oracle's model of it.

:func:`inspector_of` says how the container of a subject is inspected, :func:`inspect` does it where the container is,
which for a subject in a worker is that process. Every promise is checked by itself; one that is broken is
:class:`Broken`, by the number of its decision (:data:`inputmeta.oracle.PROMISES`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.broadcasts import broadcast_delivers, broadcast_fills, broadcast_refuses
from inputmeta.conformance.check.extraction import extracts_as_the_oracle
from inputmeta.conformance.check.promises import (
    Container,
    ContainerSubject,
    PromiseError,
    Snapshot,
    attributes,
    has,
    leaves,
    require,
    same,
    spare,
    tensors,
    values,
    with_values,
)
from inputmeta.conformance.check.tensors import cells, disturb, is_tensor, on_host, plain, shares
from inputmeta.conformance.check.view_promises import (
    consumer_view_is_the_oracles,
    images_follow,
    mask_view_is_the_oracles,
)
from inputmeta.conformance.subjects.base import SubjectError, Unsupported
from inputmeta.conformance.subjects.frames import error_text
from inputmeta.oracle import container as model

MOST_CELLS = 2**16
"""Of a batch whose container is inspected, expansions included: promises do not depend on size."""


class Broken(NamedTuple):
    """A promise that is not kept."""

    number: str
    """I-…, the decision that says what is promised."""
    kind: str
    """The promise in a word: ``flatten``, ``copy``, …"""
    key: str | None
    """Flat key at fault, if it is one alone."""
    detail: str


class Inspected(NamedTuple):
    """What an inspection of one container gave."""

    kept: tuple[str, ...]
    """Kinds of the promises that were checked and kept."""
    broken: tuple[Broken, ...]


Inspect = Callable[[Request], Inspected]


def inspector_of(subject: object) -> Inspect | None:
    """How the container of a subject is inspected; None: it has none.

    A subject that answers for another process has ``inspect_container``, a callable or None.
    """
    if hasattr(subject, "inspect_container"):
        found: Inspect | None = subject.inspect_container
        return found
    shows = has(subject, "container") or has(subject, "extract")
    return partial(inspect, cast(ContainerSubject, subject)) if shows else None


def inspectable(request: Request) -> bool:
    """Whether a batch is small enough for its container to be inspected."""
    shapes = oracle.field_shapes(request.path, request.config, request.sequences)
    return sum(math.prod(shape) for _, shape in shapes.values()) <= MOST_CELLS


def inspect(subject: ContainerSubject, request: Request) -> Inspected:
    """Hold a subject's container of a valid batch to what it promises; nothing is checked of one on a device."""
    kept: list[str] = []
    broken: list[Broken] = []
    for number, kind, check in promises(subject, request):
        try:
            check()
        except PromiseError as error:
            broken.append(Broken(number, kind, error.key, str(error)))
        except SubjectError:
            raise
        except Unsupported:
            continue
        except (Exception, SystemExit) as error:  # a stranger's container may raise anything
            broken.append(Broken(number, kind, None, f"raised {error_text(error)[:200]}"))
        else:
            kept.append(kind)
    return Inspected(tuple(kept), tuple(broken))


Promise = tuple[str, str, Callable[[], None]]


def promises(subject: ContainerSubject, request: Request) -> Iterator[Promise]:
    """Number, kind and check of what a subject promises of a batch, by the methods that are there."""
    if request.path == "decode_zos" and has(subject, "extract"):
        yield "I-22", "extract", lambda: extracts_as_the_oracle(subject, request)
    if has(subject, "container"):
        yield from container_promises(subject, request)


def container_promises(subject: ContainerSubject, request: Request) -> Iterator[Promise]:
    """The same of what its container of the batch promises."""
    try:
        container = subject.container(request)
        device = any(not on_host(tensor) for tensor in tensors(leaves(container)).values())
    except SubjectError:
        raise
    except Unsupported:
        return
    except (Exception, SystemExit) as error:
        yield "I-40", "container", raising(error)
        return
    if device:
        return

    def new() -> Container:
        return subject.container(request)

    if has(container, "to_flatten_dict"):
        yield "I-39", "flatten", lambda: flattens(container)
        if has(container, "from_flatten_dict"):
            yield "I-40", "fold", lambda: folds_back(container)
    if has(container, "recursive_copy_"):
        yield "I-46", "copy", lambda: copies_in_place(new(), container)
        yield "I-46", "misfit", lambda: refuses_misfits(new, container)
    if has(subject, "expand"):
        yield "I-47", "compute", lambda: computes_once(subject, container, request)
        if has(container, "get_clean_list"):
            yield "I-47", "clean", lambda: computes_again_after_a_clean(subject, new(), request)
    yield from view_promises(subject, container, request)
    if has(subject, "broadcast"):
        yield "I-41", "broadcast", lambda: broadcast_delivers(subject, container)
        yield "I-41", "receiver", lambda: broadcast_fills(subject, container, new())
        yield "I-40", "unsent", lambda: broadcast_refuses(subject, container, new())


def raising(error: BaseException) -> Callable[[], None]:
    """A check that raises what making the container raised."""

    def check() -> None:
        raise error

    return check


def view_promises(subject: ContainerSubject, container: Container, request: Request) -> Iterator[Promise]:
    """The views of a truncated prompt, and what a model that reads images adds to the container."""
    mode = request.config.yoco_mode if request.path == "prompt" else "off"
    if mode == "mask" and has(container, "get_mask_view"):
        yield "I-23", "mask-view", lambda: mask_view_is_the_oracles(subject, container, request)
    if mode == "compact" and has(container, "get_consumer_view"):
        yield "I-23", "consumer-view", lambda: consumer_view_is_the_oracles(subject, container, request)
    if has(subject, "image_container"):
        yield "I-48", "images", lambda: images_follow(subject, request)


def flattens(container: Container) -> None:
    """I-39, I-40: the flat dict is the model's, of the container's own memory; other values are passed as they are."""
    before = Snapshot(container, "to_flatten_dict")
    for case in (container, unusual(container)):
        own, flat = leaves(case), case.to_flatten_dict()
        same({key: plain(value) for key, value in flat.items()}, model.flatten(values(case)), "to_flatten_dict")
        for key, value in own.items():
            kept = shares(flat[key], value) if is_tensor(value) else flat[key] is value or not isinstance(value, dict)
            require(kept, f"to_flatten_dict: {key} is another object than the field's", key)
    before.unchanged()


def folds_back(container: Container) -> None:
    """I-39, I-40: a container made of a flat dict has what the model folds it to, of the same memory."""
    for case in (container, unusual(container)):
        flat = case.to_flatten_dict()
        back = type(container).from_flatten_dict(dict(flat))
        wanted = model.fold({key: plain(value) for key, value in flat.items()}, tuple(attributes(case)))
        same(values(back), wanted, "from_flatten_dict")
        for key, value in tensors(leaves(back)).items():
            require(shares(flat[key], value), f"from_flatten_dict: {key} is a copy", key)


def unusual(container: Container) -> Container:
    """The container with an empty dict, a dict in a dict, and no value where it has a tensor."""
    some = next(iter(tensors(leaves(container)).values()), None)
    gone = next((name for name, value in attributes(container).items() if is_tensor(value)), None)
    changes: dict[str, Any] = {} if gone is None else {gone: None}
    odd: tuple[Any, ...] = ({}, {"4": {"a": some, "b": {}}, "8": some})
    return with_values(container, changes | dict(zip(spare(container), odd, strict=False)))


def copies_in_place(target: Container, source: Container) -> None:
    """I-46, I-40: every tensor's cells are the source's, at the address that it had; scalars and inner dicts stay."""
    nested = next(spare(source), None)
    if nested is not None:
        target, source = (
            with_values(container, {nested: {"4": {"a": np.full(2, number, dtype=np.int32)}}})
            for number, container in enumerate((target, source))
        )
    held = tensors(leaves(target))
    apart = not any(shares(value, other) and value.shape[0] for value, other in pairs(held, tensors(leaves(source))))
    require(apart, "container: two containers of one batch share their memory")
    for value in held.values():
        disturb(value)
    for name in model.DEFAULTS:
        if type(getattr(target, name, None)) is int:
            setattr(target, name, getattr(target, name) + 76)
    before = Snapshot(source, "recursive_copy_ source")
    wanted = model.copied(model.flatten(values(target)), model.flatten(values(source)))
    target.recursive_copy_(source)
    same(model.flatten(values(target)), wanted, "recursive_copy_")
    after = leaves(target)
    for key, value in held.items():
        require(shares(after[key], value), f"recursive_copy_: {key} moved to another address", key)
    before.unchanged()


def pairs(one: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The values of two flat dicts under the same key."""
    return ((value, other[key]) for key, value in one.items() if key in other)


def refuses_misfits(new: Callable[[], Container], source: Container) -> None:
    """I-46: a tensor that is shorter, of another dtype, or one side's alone is refused, and nothing is copied."""
    names = [name for name, value in attributes(source).items() if is_tensor(value) and value.shape[0]]
    if not names:
        return
    name = names[-1]
    value = getattr(source, name)
    flipped = next((v for v in attributes(source).values() if is_tensor(v) and v.dtype != value.dtype), None)
    misfits = {"shorter": value[:-1], "missing": None}
    misfits |= {} if flipped is None else {"of another dtype": flipped}
    target = new()
    for tensor in tensors(leaves(target)).values():
        disturb(tensor)
    before = Snapshot(target, "recursive_copy_, refused")
    for what, misfit in misfits.items():
        for mine, yours in ((misfit, value), (value, misfit)):
            taken = not refused(with_values(target, {name: mine}), with_values(source, {name: yours}))
            require(not taken, f"recursive_copy_: {name} is {what} and was taken", name)
    before.unchanged()


def refused(target: Container, source: Container) -> bool:
    """Whether a copy raises ValueError."""
    try:
        target.recursive_copy_(source)
    except ValueError:
        return True
    return False


def computes_once(subject: ContainerSubject, container: Container, request: Request) -> None:
    """I-47: what is there already is left as it is."""
    before = Snapshot(container, "compute_attn_info a second time")
    subject.expand(container, request)
    before.unchanged()


def computes_again_after_a_clean(subject: ContainerSubject, container: Container, request: Request) -> None:
    """I-47: a cleaned container makes the same again, though the memory that it let go has been written to since."""
    listed = frozenset(container.get_clean_list())
    lacks = sorted(frozenset(model.CLEAN_LIST) & attributes(container).keys() - listed)
    require(not lacks, f"get_clean_list: {', '.join(lacks)} not in it", lacks[0] if lacks else None)
    before = values(container)
    stay = {name for name, value in attributes(container).items() if is_tensor(value)} - listed
    kept_memory = [cells(getattr(container, name)) for name in stay]
    for name in sorted(listed & attributes(container).keys()):
        for tensor in tensors(model.flatten({name: getattr(container, name)})).values():
            memory = cells(tensor)
            if not any(np.shares_memory(memory, other) for other in kept_memory):
                disturb(tensor)
        setattr(container, name, None)
    subject.expand(container, dataclasses.replace(request, out=None))
    same(values(container), before, "compute_attn_info after a clean")
