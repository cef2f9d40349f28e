"""What must hold of a container of fields (SPEC.md section 11), checked on any object with the container's methods.

``to_flatten_dict``, ``from_flatten_dict``, ``recursive_copy_``, ``get_clean_list``, ``compute_attn_info``,
``get_mask_view``, ``get_consumer_view``. Tensors are torch's. Every violation is a
:class:`inputmeta.conformance.check.relations.RelationError` that names the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from inputmeta import oracle
from inputmeta.conformance.check.relations import require
from inputmeta.oracle.sliding_window import Pivots, expand_pivots
from inputmeta.oracle.units import KeyRow, Token
from inputmeta.oracle.views import consumer_view

Container = Any
Snapshot = dict[str, tuple[int, object]]


def leaves(container: Container) -> dict[str, object]:
    """Every attribute by flat key, read from the object itself and not through its own ``to_flatten_dict``."""
    flat: dict[str, object] = {}
    for name, value in vars(container).items():
        if isinstance(value, dict) and value:
            flat.update((f"{name}.{key}", item) for key, item in value.items())
        elif value is not None:
            flat[name] = value
    return flat


def snapshot(container: Container) -> Snapshot:
    """Identity and a copy of the value of every attribute."""
    return {key: (id(value), frozen(value)) for key, value in leaves(container).items()}


def frozen(value: object) -> object:
    """A copy that later writes do not reach."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def same(one: object, other: object) -> bool:
    """Equal tensors of one dtype, or equal plain values of one type."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other


def unchanged(container: Container, before: Snapshot, what: str) -> None:
    """Nothing of the container was replaced or written since ``before``."""
    after = leaves(container)
    require(after.keys() == before.keys(), f"{what}: fields {sorted(after.keys() ^ before.keys())} came or went")
    for key, (identity, value) in before.items():
        require(id(after[key]) == identity, f"{what}: {key} is another object")
        require(same(after[key], value), f"{what}: {key} was written")


def flattens_and_folds(container: Container) -> None:
    """One level is opened, an empty dict stays itself, and folding gives back the same objects."""
    flat = container.to_flatten_dict()
    require(flat == {} or all(not (isinstance(v, dict) and v) for v in flat.values()), "a dict level stayed closed")
    wanted = leaves(container)
    require(flat.keys() == wanted.keys(), f"to_flatten_dict: keys {sorted(flat.keys() ^ wanted.keys())} differ")
    back = leaves(type(container).from_flatten_dict(flat))
    require(back.keys() == wanted.keys(), f"from_flatten_dict: keys {sorted(back.keys() ^ wanted.keys())} differ")
    for key, value in wanted.items():
        require(flat[key] is value or flat[key] == value, f"to_flatten_dict: {key} is another object")
        require(same(back[key], value), f"from_flatten_dict: {key} differs")


def copies_in_place(target: Container, source: Container) -> None:
    """``recursive_copy_`` moves values and neither addresses nor scalars; the source stays as it was."""
    before, kept = leaves(target), snapshot(source)
    addresses = {key: value.data_ptr() for key, value in before.items() if isinstance(value, torch.Tensor)}
    scalars = {key: value for key, value in before.items() if not isinstance(value, torch.Tensor)}
    target.recursive_copy_(source)
    after, wanted = leaves(target), leaves(source)
    for key, address in addresses.items():
        value = after[key]
        require(isinstance(value, torch.Tensor) and value.data_ptr() == address, f"recursive_copy_: {key} moved")
        require(same(value, wanted[key]), f"recursive_copy_: {key} was not copied")
    for key, value in scalars.items():
        require(after[key] == value, f"recursive_copy_: the scalar {key} was copied")
    unchanged(source, kept, "recursive_copy_ source")


def computes_again_after_a_clean(container: Container, config: object, expansions: frozenset[str]) -> None:
    """``compute_attn_info`` is idempotent, and after the clean list was set to None it gives the same again."""
    container.compute_attn_info(config, expansions=expansions)
    first = snapshot(container)
    container.compute_attn_info(config, expansions=expansions)
    unchanged(container, first, "compute_attn_info a second time")
    for name in container.get_clean_list():
        setattr(container, name, None)
    container.compute_attn_info(config, expansions=expansions)
    again = leaves(container)
    require(again.keys() == first.keys(), f"after a clean: fields {sorted(again.keys() ^ first.keys())} differ")
    for key, (_, value) in first.items():
        require(same(again[key], value), f"after a clean: {key} differs")


def mask_view_is_a_view(container: Container, config: object) -> None:
    """The mask view swaps the pivots, clears their expansion, shares the rest, and leaves the original alone."""
    before = snapshot(container)
    view = container.get_mask_view()
    require(view.kv_swa_full_index_pivots is container.yoco_mask_swa_index_pivots, "mask view: pivots not swapped")
    require(view.kv_swa_full_index is None, "mask view: kv_swa_full_index is still that of the full pivots")
    shares_all_but(view, container, {"kv_swa_full_index_pivots", "kv_swa_full_index"}, "mask view")
    expands_its_own_pivots(view, config, "mask view")
    unchanged(container, before, "mask view")


COMPACT = (
    "total_q",
    "cu_seqlens_q",
    "query_indices",
    "positions",
    "slot_mapping_store_swa",
    "ks",
    "ke",
    "kv_ca_index_offset_len",
)
"""Fields that stand in the consumer view under their own names (without CP)."""
CLEARED = ("kv_ca_index", "kv_ca_index_len", "klen", "kv_swa_full_index")


def consumer_view_is_a_view(container: Container, config: object) -> None:
    """The consumer view has the compact fields in place (I-23), expands anew, and leaves the original alone."""
    before = snapshot(container)
    view = container.get_consumer_view()
    for name in CLEARED:
        require(getattr(view, name) is None, f"consumer view: {name} is still that of the full layout")
    require(
        view.kv_swa_full_index_pivots is container.yoco_consumer_swa_index_pivots, "consumer view: pivots not swapped"
    )
    if container.yoco_consumer_mirror_cp_index is None:
        for name in COMPACT:
            compact = getattr(container, f"yoco_consumer_{name}")
            require(same_buckets(getattr(view, name), compact), f"consumer view: {name} is not the compact one")
    else:
        consumer_mirror_is_in_place(view, container)
    rows_match(view)
    expands_its_own_pivots(view, config, "consumer view")
    unchanged(container, before, "consumer view")


def consumer_view_is_the_oracles(container: Container, sequences: Sequence[oracle.SequenceMetadata]) -> None:
    """The consumer view holds, field by field, what the oracle makes of the container's own fields (I-23, I-24)."""
    full_mask = [not sequence.is_placeholder for sequence in sequences for _ in range(sequence.seqlen_q)] or [False]
    fields = {key: value for key, value in plain(container).items() if key.partition(".")[0] in oracle.FIELDS}
    got = plain(container.get_consumer_view())
    for key, wanted in consumer_view(fields, full_mask).items():
        require(got.get(key) == wanted, f"consumer view: {key} is {got.get(key)}, the oracle says {wanted}")


def plain(container: Container) -> dict[str, object]:
    """The attributes by flat key; tensors as lists of rows."""
    return {
        key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in leaves(container).items()
    }


def consumer_mirror_is_in_place(view: Container, container: Container) -> None:
    """With CP the consumer view holds the second mirror: indices and key ranges swapped, positions gathered."""
    for name in ("cp_mirror_len", "cu_seqlens_q", "total_q"):
        source = "yoco_consumer_" + name
        require(same_buckets(getattr(view, name), getattr(container, source)), f"consumer view: {name} not swapped")
    for name in ("mirror_cp_index", "mirror_cp_reverse_index"):
        require(getattr(view, name) is getattr(container, f"yoco_consumer_{name}"), f"consumer view: {name}")
    for name in ("ks", "ke"):
        require(
            same_buckets(getattr(view, name), getattr(container, f"yoco_consumer_mirror_{name}")),
            f"consumer view: {name} is not of the second mirror",
        )
    require(view.positions_cp is container.yoco_consumer_positions, "consumer view: positions_cp")
    index = view.mirror_cp_index.long()
    gathered = torch.where(index >= 0, view.positions_cp[index.clamp(min=0)], 0).to(torch.int32)
    require(torch.equal(view.positions, gathered), "consumer view: positions are not positions_cp gathered")


def rows_match(view: Container) -> None:
    """Query-aligned fields of a view have as many rows as its layout."""
    rows = view.positions.shape[0]
    for name in ("valid_token_mask", "query_indices"):
        require(getattr(view, name).shape[0] == rows, f"consumer view: {name} has not the {rows} rows of positions")


def same_buckets(one: object, other: object) -> bool:
    """Same object, or dicts of the same objects, or equal scalars."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(one[key] is other[key] for key in one)
    return one is other or (not isinstance(one, torch.Tensor) and one == other)


def shares_all_but(view: Container, container: Container, names: set[str], what: str) -> None:
    """Every attribute but ``names`` is the original's own object."""
    for name, value in vars(container).items():
        if name not in names:
            require(getattr(view, name) is value, f"{what}: {name} is not shared")


def expands_its_own_pivots(view: Container, config: object, what: str) -> None:
    """``kv_swa_full_index`` of a view is the expansion of its own pivots, mirrored if the view is."""
    view.compute_attn_info(config, expansions=frozenset({"kv_swa_full_index"}))
    expanded = view.kv_swa_full_index.tolist()
    pivots = [Pivots(KeyRow(a), Token(b), KeyRow(c), Token(d)) for a, b, c, d in view.kv_swa_full_index_pivots.tolist()]
    window = view.kv_swa_full_index.shape[1]
    index = None if view.mirror_cp_index is None else view.mirror_cp_index.tolist()
    if view.total_q == 0:
        wanted = [[-1] * window for _ in expanded]
    elif index is None:
        wanted = [expand_pivots(row, Token(window)) for row in pivots]
    else:
        wanted = [expand_pivots(pivots[row], Token(window)) if row >= 0 else [-1] * window for row in index]
    for row, (got, want) in enumerate(zip(expanded, wanted, strict=True)):
        require(got == want, f"{what}: kv_swa_full_index row {row} is {got}, its pivots give {want}")
