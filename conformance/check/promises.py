"""What a container of fields is asked with, and what is said of a promise that it does not keep (SPEC.md chapter 11).

A subject lets its containers be inspected by having the methods of :class:`ContainerSubject`. A promise is checked as
far as subject and container have what it speaks of.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Protocol

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.tensors import difference, is_tensor, plain, shares
from inputmeta.oracle import container as model

Container = Any
"""An object with an attribute a field: None, a tensor, a scalar, or a dict of tensors by ratio (``{"4": ...}``)."""


class ContainerSubject(Protocol):
    """What a subject has beside ``build`` if its containers are to be inspected, as much of it as there is.

    ``container`` or ``extract`` it must have.
    """

    def container(self, request: Request) -> Container:
        """A new container of a valid batch, in host memory, with ``request.expand`` expanded."""

    def expand(self, container: Container, request: Request) -> None:
        """Have a container of the batch, or a view of one, make ``request.expand`` (``compute_attn_info``)."""

    def image_container(self, request: Request, images_seq_mask: np.ndarray, mm_token_type: np.ndarray) -> Container:
        """As ``container``, of a model that reads images: the caller's mask [total_q] bool and types [total_q] int32.

        Both are of the full layout, and given before the container is mirrored.
        """

    def broadcast(self, container: Container, receiver: Container | None) -> Container:
        """Send a container to another rank, and give what that one has then, in this process.

        ``receiver``: a container that the other rank has already, to be filled. TypeError for a value that is not sent.
        """

    def extract(self, request: Request) -> Any:  # noqa: ANN401 - the subject's own
        """What the host extracts for a ZOS decode step (F-EXTRACT), in host memory.

        An object with attributes, or a mapping, of the names of :class:`inputmeta.oracle.zos.MetadataZOS`; None, or
        none, where the subject has no such member.
        """


class PromiseError(AssertionError):
    """A container does not keep a promise. ``key``: the flat key at fault, None if it is none."""

    def __init__(self, text: str, key: str | None = None) -> None:
        super().__init__(text)
        self.key = key


def require(holds: bool, text: str, key: str | None = None) -> None:
    """Raise :class:`PromiseError` with ``text`` unless ``holds``."""
    if not holds:
        raise PromiseError(text, key)


def has(owner: object, *methods: str) -> bool:
    """Whether an object has these methods."""
    return all(callable(getattr(owner, method, None)) for method in methods)


def attributes(container: Container) -> dict[str, Any]:
    """The fields of a container: those of a dataclass, of any other object its public attributes.

    Raises:
        PromiseError: it has none.
    """
    declared = names_of(type(container))  # type: ignore[arg-type]  # mypy takes a type for unhashable
    if declared is not None:
        return {name: getattr(container, name) for name in declared}
    require(hasattr(container, "__dict__"), f"the container, a {type(container).__name__}, has no attributes")
    return {name: value for name, value in vars(container).items() if not name.startswith("_")}


@cache
def names_of(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass, which takes long to list; None for another type."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def leaves(container: Container) -> dict[str, Any]:
    """The container's own objects by flat key, by the oracle's rule and not by its own ``to_flatten_dict``."""
    return model.flatten(attributes(container))


def tensors(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a flat dict; a dict in a dict is none (I-40)."""
    return {key: value for key, value in flat.items() if is_tensor(value)}


def values(container: Container) -> dict[str, Any]:
    """Copies of a container's attributes, as the model has them."""
    return {name: plain(value) for name, value in attributes(container).items()}


def same(got: Mapping[str, Any], want: Mapping[str, Any], what: str) -> None:
    """Two flat dicts, or attributes, of the model are equal."""
    gone = sorted(want.keys() - got.keys()) + sorted(got.keys() - want.keys())
    if gone:
        raise PromiseError(f"{what}: {gone[0]} is {'missing' if gone[0] in want else 'one too many'}", gone[0])
    for key, value in want.items():
        if type(got[key]) is not type(value) or got[key] != value:
            raise PromiseError(f"{what}: {key} {difference(got[key], value)}", key)


class Snapshot:
    """A container as it is now, to see whether anything of it is replaced or written."""

    def __init__(self, container: Container, what: str) -> None:
        self.container, self.what = container, what
        self.held, self.values = leaves(container), values(container)

    def unchanged(self) -> None:
        """Raise PromiseError if the container has other objects, or other values, than it had."""
        same(values(self.container), self.values, self.what)
        for key, value in leaves(self.container).items():
            require(self.held[key] is value or not is_tensor(value) or shares(self.held[key], value),
                    f"{self.what}: {key} is at another address", key)  # fmt: skip


def spare(container: Container) -> Iterator[str]:
    """Names of bucketed fields that the container has and does not use: a promise may be tried on them."""
    for name, value in attributes(container).items():
        if value is None and name in oracle.FIELDS and oracle.FIELDS[name].bucket is not None:
            yield name


def with_values(container: Container, changes: Mapping[str, Any]) -> Container:
    """A shallow copy of a container with other values of some fields."""
    changed = copy.copy(container)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed
