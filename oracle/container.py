"""Chapter 11, the container as plain Python: what flattening, copying, cleaning and sending make of its values.

A container is a mapping of attributes. A value is a :class:`Tensor`, a plain scalar, None, or a dict of these with text
keys; anything else is a value that only its maker understands (I-40). The views are in :mod:`inputmeta.oracle.views`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

Content = TypeVar("Content")
Value = Any
"""A value of a container."""

PROMISES: dict[str, str] = {
    "I-22": "what a ZOS step's host extracts is F-EXTRACT's: of a table the entries that F-BLOCKS counts, and offsets",
    "I-23": "a view is a shallow copy: it swaps and clears the fields of its table, shares all others, writes none",
    "I-39": "no field that is None is in a flat dict; what is not in it is None in the container made of it",
    "I-40": "one dict level is opened (klen.4); an empty dict, a dict in a dict, any other value passes as it is",
    "I-41": "a receiver has the sender's fields and no other; a tensor of the same path, dtype, shape stays in place",
    "I-46": "recursive_copy_ copies every tensor in place, leaves scalars, refuses what does not fit before it copies",
    "I-47": "after a clean, compute_attn_info makes the same again of the fields that stay; twice, it changes nothing",
    "I-48": "images_seq_mask is gathered by the mirror and by the consumer view, mm_token_type is shared as it is",
}
"""What a container promises, by the decision that says so."""

CLEAN_LIST = (
    "kv_ca_index_len",
    "kv_swa_index",
    "kv_ca_index",
    "mlp_relu_schedule_metadata",
    "flash_mla_sched_meta_dict",
)
"""``get_clean_list``: fields that are None before a graph is reused."""
UNSENT = ("mlp_relu_schedule_metadata", "flash_mla_sched_meta_dict")
"""Caches of a rank's kernels: a broadcast leaves them where they are."""
DEFAULTS: dict[str, int | bool] = {"num_reqs": 0, "total_q": 0, "is_prompt": False}
"""Scalars that are never None (I-39)."""
SCALARS = (bool, int, float, str, type(None))
"""Types of a plain scalar, None among them; a subclass is another type."""
MAX_DEPTH = 64
"""Levels of dicts that a broadcast opens: one that holds itself has no end."""


class Tensor(NamedTuple):
    """A tensor's value: name of its dtype, shape in cells, and the cells in C order in any form that compares equal."""

    dtype: str
    shape: tuple[int, ...]
    cells: object


class MisfitError(ValueError):
    """I-46: a tensor that cannot be copied; ``str()`` names its flat key."""


class UnsentError(TypeError):
    """I-40: a value that a broadcast does not send: the ``path`` to it (``a.b.c``) and the name of its ``kind``."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(f"{path}: a {kind} is not sent")
        self.path = path
        self.kind = kind


def flatten(attributes: Mapping[str, Content]) -> dict[str, Any]:
    """I-39, I-40 ``to_flatten_dict``: one dict level opened, an empty dict as itself, nothing that is None.

    >>> flatten({"klen": {"4": 1, "8": 2}, "kv_ca_index": {}, "positions": None, "ks": {"4": {"a": 3}}, "total_q": 5})
    {'klen.4': 1, 'klen.8': 2, 'kv_ca_index': {}, 'ks.4': {'a': 3}, 'total_q': 5}
    """
    flat: dict[str, Any] = {}
    for name, value in attributes.items():
        if isinstance(value, dict) and value:
            flat.update((f"{name}.{key}", item) for key, item in value.items())
        elif value is not None:
            flat[name] = value
    return flat


def fold(flat: Mapping[str, Content], names: Iterable[str] = ()) -> dict[str, Any]:
    """I-39, I-40 ``from_flatten_dict``: folded at the first dot. Of ``names`` those that are not there are None or 0.

    >>> fold({"klen.4": 1, "klen.8": 2, "kv_ca_index": {}}, ("klen", "kv_ca_index", "positions", "total_q"))
    {'klen': {'4': 1, '8': 2}, 'kv_ca_index': {}, 'positions': None, 'total_q': 0}
    >>> fold({"a.b.c": 1})
    {'a': {'b.c': 1}}
    """
    attributes: dict[str, Any] = {}
    for key, value in flat.items():
        name, dot, bucket = key.partition(".")
        if dot:
            attributes.setdefault(name, {})[bucket] = value
        else:
            attributes[name] = value
    return attributes | {name: DEFAULTS.get(name) for name in names if name not in attributes}


def copied(target: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    """I-46 ``recursive_copy_``: the target's flat dict afterwards. Scalars and dicts in dicts stay as they were.

    Raises:
        MisfitError: a tensor without a counterpart, or with one of another dtype or shape; then nothing is copied.

    >>> one, two = Tensor("int32", (2,), (1, 2)), Tensor("int32", (2,), (3, 4))
    >>> copied({"positions": one, "total_q": 7}, {"positions": two, "total_q": 2})
    {'positions': Tensor(dtype='int32', shape=(2,), cells=(3, 4)), 'total_q': 7}
    >>> copied({"positions": one}, {"positions": Tensor("int32", (1,), (3,))})
    Traceback (most recent call last):
    inputmeta.oracle.container.MisfitError: positions: int32 (1,) cannot be copied into int32 (2,)
    """
    for key in sorted(target.keys() | source.keys()):
        old, new = target.get(key), source.get(key)
        if not isinstance(old, Tensor) and not isinstance(new, Tensor):
            continue
        if not isinstance(old, Tensor) or not isinstance(new, Tensor):
            raise MisfitError(f"{key}: only one of the two has this tensor")
        if old[:2] != new[:2]:
            raise MisfitError(f"{key}: {new.dtype} {new.shape} cannot be copied into {old.dtype} {old.shape}")
    return {key: source[key] if isinstance(value, Tensor) else value for key, value in target.items()}


def sent(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """I-40, I-41 ``broadcast``: what the receiver has afterwards, whatever it had before.

    Raises:
        UnsentError: a value is neither a tensor, a scalar nor a dict of these with text keys without a dot.

    >>> sent({"klen": {"4": {"a": {"b": 1}}}, "positions": None, "flash_mla_sched_meta_dict": {"x": [1]}})
    {'klen': {'4': {'a': {'b': 1}}}, 'positions': None, 'flash_mla_sched_meta_dict': None}
    >>> sent({"klen": {"4": {"a": [1]}}})
    Traceback (most recent call last):
    inputmeta.oracle.container.UnsentError: klen.4.a: a list is not sent
    """
    return {name: None if name in UNSENT else _sendable(value, name, 0) for name, value in attributes.items()}


def _sendable(value: Value, path: str, depth: int) -> Value:
    if isinstance(value, Tensor) or type(value) in SCALARS:
        return value
    if not isinstance(value, dict):
        raise UnsentError(path, type(value).__name__)
    wrong = next((key for key in value if type(key) is not str or "." in key), None)
    if wrong is not None or depth == MAX_DEPTH:
        raise UnsentError(path, "dict")
    return {key: _sendable(item, f"{path}.{key}", depth + 1) for key, item in value.items()}


def kept(held: Mapping[str, Any], brought: Mapping[str, Any]) -> list[str]:
    """I-41: paths of the receiver's tensors that keep their address; ``brought``: what :func:`sent` gives.

    >>> t = Tensor("int32", (1,), (5,))
    >>> kept({"a": {"b": t, "c": t}, "d": t, "e": 1}, {"a": {"b": t, "c": 1}, "d": Tensor("int32", (2,), (5, 6))})
    ['a.b']
    """
    return list(_kept(held, brought, ""))


def _kept(held: Mapping[str, Any], brought: Mapping[str, Any], above: str) -> Iterator[str]:
    for key, new in brought.items():
        old = held.get(key)
        if isinstance(old, Tensor) and isinstance(new, Tensor):
            if old[:2] == new[:2]:
                yield above + key
        elif isinstance(old, dict) and isinstance(new, dict):
            yield from _kept(old, new, f"{above}{key}.")
