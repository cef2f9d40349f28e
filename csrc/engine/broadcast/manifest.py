"""What a container holds, without the tensors' values: the manifest that goes ahead of them.

It is JSON with a checked schema, so a receiver never runs what it receives (no pickle). A container is a dataclass;
a field is a scalar, a strided tensor, or a dictionary of these, of any depth, with text keys without a dot (I-40).
"""

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias, TypeVar

import msgspec
import torch

from inputmeta.engine.broadcast.errors import RefusedError

MAX_MANIFEST_BYTES = 1 << 20

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
}
"""The dtypes that are sent, by name."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}

MAX_DEPTH = 64
"""Dictionaries in one another; one that holds itself is deeper."""

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1

Scalar: TypeAlias = bool | Annotated[int, msgspec.Meta(ge=_INT64_MIN, le=_INT64_MAX)] | float | str | None
"""A value that is sent as itself; an int fits in 64 bits, a float is finite."""

_SCALARS = (type(None), bool, int, float, str)
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class Container(Protocol):
    """A dataclass whose constructor takes its fields by name."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    # A container may name fields that stay with their rank: `_unsent: ClassVar[tuple[str, ...]]`.

    def __init__(self, **fields: object) -> None: ...


ContainerT = TypeVar("ContainerT", bound=Container)


class TensorEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor to come: name of its dtype ("int32") and shape."""

    dtype: str
    shape: Annotated[tuple[_Size, ...], msgspec.Meta(max_length=8)]

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def size(self) -> int:
        """Bytes of its values."""
        return math.prod(self.shape) * self.torch_dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="tensor"):
    """The tensor at `index` of the manifest's list; two references to one index are one tensor."""

    index: Annotated[int, msgspec.Meta(ge=0)]


class Plain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="scalar"):
    """A scalar."""

    value: Scalar


class Buckets(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="dict"):
    """A dictionary; an empty one is information too."""

    items: "dict[str, Reference | Plain | Buckets]"


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tensors to come, each once, and every field of the container by name."""

    tensors: tuple[TensorEntry, ...]
    values: dict[str, Reference | Plain | Buckets]

    def items(self) -> Iterator[tuple[str, Reference | Plain | Buckets]]:
        """Flat keys ("a.b.c") and what is there; a dictionary itself only when it is empty."""
        for name, value in self.values.items():
            yield from _leaves(name, value)

    def structure(self) -> dict[str, str]:
        """What is at each flat key, in words: dtype and shape of a tensor, type of a scalar."""
        return {path: self._words(value) for path, value in self.items()}

    def _words(self, value: Reference | Plain | Buckets) -> str:
        if isinstance(value, Reference):
            return str(self.tensors[value.index])
        if isinstance(value, Buckets):
            return "an empty dict"
        return "None" if value.value is None else type(value.value).__name__


def _leaves(path: str, value: Reference | Plain | Buckets) -> Iterator[tuple[str, Reference | Plain | Buckets]]:
    if isinstance(value, Buckets) and value.items:
        for key, item in value.items.items():
            yield from _leaves(f"{path}.{key}", item)
    else:
        yield path, value


class _Collector:
    """Walks a container's values and keeps each tensor once."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.indices: dict[tuple[Any, ...], int] = {}

    def field(self, path: str, value: object, depth: int = 0) -> Reference | Plain | Buckets:
        if not isinstance(value, dict):
            return self.item(path, value)
        if depth == MAX_DEPTH:
            raise RefusedError(
                path, f"a dict {MAX_DEPTH} levels deep is not sent, nor one that holds itself", is_type=True
            )
        for key in value:
            if type(key) is not str or "." in key:
                rule = f"a dict with the {type(key).__name__} key {key!r} is not sent; keys are text without a dot"
                raise RefusedError(path, rule, is_type=True)
        return Buckets({key: self.field(f"{path}.{key}", item, depth + 1) for key, item in value.items()})

    def item(self, path: str, value: object) -> Reference | Plain:
        if isinstance(value, torch.Tensor):
            _require_plain(path, value)
            index = self.indices.setdefault(_identity(value), len(self.tensors))
            if index == len(self.tensors):
                self.tensors.append(value)
            return Reference(index)
        # Exact types: a subclass (an enumeration, say) would arrive as something else than it was.
        if not isinstance(value, _SCALARS) or type(value) not in _SCALARS:
            rule = f"a {type(value).__name__} is not sent; scalars, tensors and dicts of these are"
            raise RefusedError(path, rule, is_type=True)
        if isinstance(value, int) and not _INT64_MIN <= value <= _INT64_MAX:
            raise RefusedError(path, f"{value:#x} does not fit in 64 bits")
        if isinstance(value, float) and not math.isfinite(value):
            raise RefusedError(path, f"{value} is not finite")
        return Plain(value)


def _require_plain(path: str, tensor: torch.Tensor) -> None:
    if tensor.dtype not in _NAMES:
        raise RefusedError(path, f"{tensor.dtype} is not sent; there are {', '.join(DTYPES)}")
    if tensor.layout != torch.strided or tensor.is_neg() or tensor.device.type == "meta" or tensor.ndim > 8:
        raise RefusedError(path, "only strided tensors with values and up to 8 dimensions are sent")


def _identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for two references to one tensor, and for two objects that are the same view of the same memory."""
    if tensor.numel() == 0:
        return (id(tensor),)  # has no memory to be known by; the collector keeps it alive, so the id stays its own
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device


def describe(metadata: Container) -> tuple[Manifest, list[torch.Tensor]]:
    """The manifest of a container and its tensors, each once, in the manifest's order. Fields that stay with their rank
    are None in it.

    Raises RefusedError for a value that cannot be sent.
    """
    collector = _Collector()
    unsent = getattr(metadata, "_unsent", ())
    values = {
        name: collector.field(name, None if name in unsent else getattr(metadata, name))
        for name in _field_names(type(metadata))
    }
    entries = tuple(TensorEntry(_NAMES[tensor.dtype], tuple(tensor.shape)) for tensor in collector.tensors)
    return Manifest(entries, values), collector.tensors


def encode(manifest: Manifest) -> bytes:
    """JSON in UTF-8. Raises RefusedError for more than MAX_MANIFEST_BYTES, or a string that is no Unicode text."""
    try:
        payload = msgspec.json.encode(manifest)
    except UnicodeEncodeError as error:
        raise RefusedError(None, f"a string is no Unicode text: {error.reason}") from error
    _require_size(len(payload))
    return payload


def decode(payload: bytes) -> Manifest:
    """The manifest in a message of any origin. Raises RefusedError for all that `encode` could not have made."""
    _require_size(len(payload))
    try:
        manifest = msgspec.json.decode(payload, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(None, f"malformed manifest: {error}") from error
    for entry in manifest.tensors:
        if entry.dtype not in DTYPES:
            raise RefusedError(None, f"malformed manifest: dtype {entry.dtype!r}")
    for value in manifest.values.values():
        _require_keys(value, 0)
    count = len(manifest.tensors)
    used = {value.index for _, value in manifest.items() if isinstance(value, Reference)}
    if used != set(range(count)):
        raise RefusedError(None, f"malformed manifest: {count} tensors, but the fields refer to {len(used)} others")
    return manifest


def _require_keys(value: Reference | Plain | Buckets, depth: int) -> None:
    if not isinstance(value, Buckets):
        return
    if depth == MAX_DEPTH or any("." in key for key in value.items):
        raise RefusedError(None, f"malformed manifest: a dict {MAX_DEPTH} levels deep, or a key with a dot")
    for item in value.items.values():
        _require_keys(item, depth + 1)


def _require_size(size: int) -> None:
    if not 0 < size <= MAX_MANIFEST_BYTES:
        raise RefusedError(None, f"the manifest has {size} bytes, at most {MAX_MANIFEST_BYTES} are sent")


def check_total(manifest: Manifest, max_bytes: int) -> None:
    """Raises RefusedError when the values of all tensors have more than `max_bytes` bytes."""
    total = sum(entry.size for entry in manifest.tensors)
    if total > max_bytes:
        raise RefusedError(None, f"the tensors have {total} bytes, at most {max_bytes} are sent")


def check_fields(manifest: Manifest, container: type[Container]) -> None:
    """Raises RefusedError when `container` has other fields than the one that was described."""
    names = _field_names(container)
    for name in manifest.values:
        if name not in names:
            raise RefusedError(name, f"is sent, but {container.__name__} has no such field")
    for name in names:
        if name not in manifest.values:
            raise RefusedError(name, f"is a field of {container.__name__}, but is not sent")


def check_template(manifest: Manifest, template: Container) -> None:
    """Raises RefusedError at the first flat key where `template` has something else: None, type, dtype, shape, keys."""
    sent, expected = manifest.structure(), describe(template)[0].structure()
    for path in sorted(sent.keys() | expected.keys()):
        found, wanted = sent.get(path, "missing"), expected.get(path, "missing")
        if found != wanted:
            raise RefusedError(path, f"is {found}, the template has {wanted}")


def assemble(container: type[ContainerT], manifest: Manifest, tensors: list[torch.Tensor]) -> ContainerT:
    """A new container with the manifest's values and `tensors`, one for each of its entries."""

    def value_of(value: Reference | Plain | Buckets) -> object:
        if isinstance(value, Reference):
            return tensors[value.index]
        if isinstance(value, Buckets):
            return {key: value_of(item) for key, item in value.items.items()}
        return value.value

    return container(**{name: value_of(value) for name, value in manifest.values.items()})


def _field_names(container: type[Container]) -> list[str]:
    """Names of the fields, in order."""
    return [field.name for field in fields(container)]
