"""Containers that do not keep what they promise (SPEC.md chapter 11): one right one of numpy arrays, one fault each."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Mutant, Wrong, add, name_of
from inputmeta.conformance.subjects.oracle import OracleSubject
from inputmeta.oracle import views, zos
from inputmeta.oracle.sliding_window import Pivots, expand_pivots
from inputmeta.oracle.units import KeyRow, Token

CACHES = ("mlp_relu_schedule_metadata", "flash_mla_sched_meta_dict")
IMAGES = ("mm_token_type", "images_seq_mask", "images_seq_mask_full")
NAMES = (*oracle.FIELDS, *IMAGES, *CACHES)
SCALARS = {"num_reqs": 0, "total_q": 0, "is_prompt": False}
WINDOW = "kv_swa_full_index"

ZOS = ("decode_zos",)

Value = Any
"""An array, a scalar, None, or a dict of these."""


Kind = TypeVar("Kind", bound="NumpyContainer")


class NumpyContainer:
    """A container of numpy arrays that keeps its promises."""

    _full_mask: np.ndarray
    """valid_token_mask of the full layout: the container's own is mirrored."""
    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Value: ...

    def __init__(self, **fields: Value) -> None:
        for name in NAMES:
            setattr(self, name, fields.get(name, SCALARS.get(name)))

    def to_flatten_dict(self) -> dict[str, Value]:
        """Fields by flat key."""
        flat: dict[str, Value] = {}
        for name in NAMES:
            value = getattr(self, name)
            if isinstance(value, dict) and value:
                flat.update({f"{name}.{key}": item for key, item in value.items()})
            elif value is not None:
                flat[name] = value
        return flat

    @classmethod
    def from_flatten_dict(cls, flat: Mapping[str, Value]) -> Self:
        """The container of a flat dict."""
        fields: dict[str, Value] = {}
        for key, value in flat.items():
            name, dot, bucket = key.partition(".")
            if dot:
                fields.setdefault(name, {})[bucket] = value
            else:
                fields[name] = value
        return cls(**fields)

    def recursive_copy_(self, other: Self) -> None:
        """Copy the arrays of another container into this one's."""
        mine, theirs = arrays_of(self), arrays_of(other)
        if mine.keys() != theirs.keys():
            raise ValueError(f"{min(mine.keys() ^ theirs.keys())}: one has it")
        for key, array in mine.items():
            if array.shape != theirs[key].shape or array.dtype != theirs[key].dtype:
                raise ValueError(f"{key}: does not fit")
        for key, array in mine.items():
            array[...] = theirs[key]

    @staticmethod
    def get_clean_list() -> list[str]:
        """Fields to be set to None before a graph is reused."""
        return ["kv_ca_index_len", "kv_swa_index", "kv_ca_index", *CACHES]

    def get_mask_view(self) -> Self:
        """The container with the pivots of mask truncation."""
        return viewed(self, views.MASK_VIEW)

    def get_consumer_view(self) -> Self:
        """The container in the layout of its kept rows."""
        mirrored = getattr(self, "yoco_consumer_mirror_cp_index", None)
        view = viewed(self, views.CONSUMER_VIEW if mirrored is None else views.CONSUMER_MIRROR_VIEW)
        kept = self.yoco_consumer_query_indices if view.total_q else np.array([-1])
        full = self.images_seq_mask if mirrored is None else self.images_seq_mask_full
        changes = {"valid_token_mask": gathered(self._full_mask, kept, neutral=False)}
        changes["gate_force_random"] = gathered(self.gate_force_random, kept, neutral=False)
        if full is not None:
            changes["images_seq_mask"] = gathered(full, kept, neutral=False)
        set_all(view, changes)
        if mirrored is not None:
            set_all(view, {"gate_force_random_cp": view.gate_force_random})
            for name in (*views.GATHERED, "gate_force_random_cp", *(["images_seq_mask"] if full is not None else [])):
                neutral = oracle.FIELDS[name].neutral if name in oracle.FIELDS else False
                set_all(view, {name: gathered(getattr(view, name), mirrored, neutral=neutral)})
        return view


def arrays_of(container: NumpyContainer) -> dict[str, np.ndarray]:
    """The arrays by flat key."""
    flat = NumpyContainer.to_flatten_dict(container)
    return {key: value for key, value in flat.items() if isinstance(value, np.ndarray)}


def set_all(container: NumpyContainer, changes: Mapping[str, Value]) -> None:
    """Set fields."""
    for name, value in changes.items():
        setattr(container, name, value)


def gathered(rows: np.ndarray, index: np.ndarray, *, neutral: Value) -> np.ndarray:
    """The rows that an index names; the neutral cell for -1."""
    picked: np.ndarray = np.where(index >= 0, rows[np.maximum(index, 0)], neutral).astype(rows.dtype)
    return picked


def viewed(container: Kind, view: views.View) -> Kind:
    """A shallow copy with the fields of a view swapped and cleared."""
    changed = copy.copy(container)
    set_all(changed, {name: getattr(container, source) for name, source in view.swaps.items()})
    set_all(changed, dict.fromkeys(view.cleared))
    return changed


class Contained(Wrong):
    """The oracle as a subject that lets its containers be inspected. ``kind``: the class of its containers."""

    kind: ClassVar[type[NumpyContainer]] = NumpyContainer

    def container(self, request: Request) -> NumpyContainer:
        """A container of a batch."""
        right = NumpyContainer.from_flatten_dict(OracleSubject.build(self, request))
        made = self.kind(**vars(right))
        made._full_mask = np.array(
            [not s.is_placeholder for s in request.sequences for _ in range(s.seqlen_q)] or [False]
        )
        return made

    def expand(self, container: NumpyContainer, request: Request) -> None:
        """Make the expansions that are not there."""
        built = NumpyContainer.from_flatten_dict(OracleSubject.build(self, request))
        for name in (*oracle.EXPANSIONS, "kv_ca_index_len"):
            if name != WINDOW and getattr(container, name) is None:
                set_all(container, {name: getattr(built, name)})
        pivots = getattr(container, "kv_swa_full_index_pivots", None)
        if WINDOW in request.expand and pivots is not None and getattr(container, WINDOW) is None:
            set_all(container, {WINDOW: expanded(container, pivots, request.config.window_size)})

    def extract(self, request: Request) -> Any:  # noqa: ANN401 - as the protocol has it
        """What the host extracts for a ZOS step."""
        return zos.extract(request.config, request.sequences)

    def image_container(
        self, request: Request, images_seq_mask: np.ndarray, mm_token_type: np.ndarray
    ) -> NumpyContainer:
        """The container of a model that reads images."""
        made = self.container(request)
        set_all(made, {"mm_token_type": mm_token_type, "images_seq_mask": images_seq_mask})
        mirror = getattr(made, "mirror_cp_index", None)
        if mirror is not None:
            mask = gathered(images_seq_mask, mirror, neutral=False)
            set_all(made, {"images_seq_mask": mask, "images_seq_mask_full": images_seq_mask})
        return made

    def broadcast(self, container: NumpyContainer, receiver: NumpyContainer | None) -> NumpyContainer:
        """What another rank has after a broadcast."""
        same: dict[int, np.ndarray] = {}
        brought = {n: self.carried(v, n, same) for n, v in vars(container).items() if n in NAMES and n not in CACHES}
        got = self.kind() if receiver is None else receiver
        set_all(got, {name: self.filled(getattr(got, name), brought.get(name)) for name in NAMES})
        return got

    def carried(self, value: Value, path: str, same: dict[int, np.ndarray]) -> Value:
        """A value as it arrives; TypeError for one that is not sent."""
        if isinstance(value, np.ndarray):
            return same.setdefault(id(value), value.copy())
        if isinstance(value, dict):
            return {key: self.carried(item, f"{path}.{key}", same) for key, item in value.items()}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(f"{path}: a {type(value).__name__} is not sent")

    def filled(self, held: Value, brought: Value) -> Value:
        """What stands where the receiver had ``held``."""
        if isinstance(held, dict) and isinstance(brought, dict):
            return {key: self.filled(held.get(key), value) for key, value in brought.items()}
        arrays = isinstance(held, np.ndarray) and isinstance(brought, np.ndarray)
        if not arrays or (held.dtype, held.shape) != (brought.dtype, brought.shape):
            return brought
        held[...] = brought
        return held


def expanded(container: NumpyContainer, pivots: np.ndarray, window: int) -> np.ndarray:
    """``kv_swa_full_index`` of a container or view, from its own pivots."""
    none, width = [-1] * window, Token(window)
    own = [Pivots(KeyRow(a), Token(b), KeyRow(c), Token(d)) for a, b, c, d in pivots.tolist()]
    index = getattr(container, "mirror_cp_index", None)
    rows = range(len(own)) if index is None else index.tolist()
    empty = container.total_q == 0
    return np.array([none if empty or r < 0 else expand_pivots(own[r], width) for r in rows], dtype=np.int32)


def broken(
    declared: str, stands_for: str, *, paths: tuple[str, ...] = oracle.PATHS
) -> Callable[[type[NumpyContainer] | type[Contained]], type[NumpyContainer] | type[Contained]]:
    """Decorator: a container, or a subject that handles containers, which is wrong; a mutant by its own name."""

    def enter(cls: type[NumpyContainer] | type[Contained]) -> type[NumpyContainer] | type[Contained]:
        name = name_of(cls)
        subject = cls if issubclass(cls, Contained) else type(cls.__name__, (Contained,), {"kind": cls})
        add(Mutant(name, "CONTAINER", declared, stands_for, lambda: subject(name), paths=paths))
        return cls

    return enter


@broken("MISMATCH:copy:I-46", "a copy rebinds the tensors: what the graph has captured stays as it was")
class CopyShares(NumpyContainer):
    def recursive_copy_(self, other: Self) -> None:
        super().recursive_copy_(other)
        set_all(self, {"positions": other.positions})


@broken("MISMATCH:copy:I-46", "scalars are copied too: a captured graph's num_reqs is its own")
class CopiesScalars(NumpyContainer):
    def recursive_copy_(self, other: Self) -> None:
        super().recursive_copy_(other)
        set_all(self, {"num_reqs": other.num_reqs})


@broken("MISMATCH:misfit:I-46", "tensors that do not fit are passed over: the last step's are read as this one's")
class CopiesWhatFits(NumpyContainer):
    def recursive_copy_(self, other: Self) -> None:
        theirs = arrays_of(other)
        for key, array in arrays_of(self).items():
            if key in theirs and theirs[key].shape == array.shape:
                array[...] = theirs[key]


@broken("MISMATCH:fold:I-40", "each bucket makes a new dict: the last ratio alone is left")
class LosesABucket(NumpyContainer):
    @classmethod
    def from_flatten_dict(cls, flat: Mapping[str, Value]) -> Self:
        made = super().from_flatten_dict(flat)
        for name in NAMES:
            value = getattr(made, name)
            if isinstance(value, dict) and value:
                setattr(made, name, dict([list(value.items())[-1]]))
        return made


@broken("MISMATCH:fold:I-40", "buckets are put back in another order than they were taken out: ratio 4 has ratio 8's")
class FoldsInAnotherOrder(NumpyContainer):
    @classmethod
    def from_flatten_dict(cls, flat: Mapping[str, Value]) -> Self:
        made = super().from_flatten_dict(flat)
        for name in NAMES:
            value = getattr(made, name)
            if isinstance(value, dict):
                setattr(made, name, dict(zip(value, reversed(value.values()), strict=True)))
        return made


@broken("MISMATCH:flatten:I-39 or MISMATCH:fold:I-40", "every level is opened: a dict in a dict loses its own keys")
class OpensEveryLevel(NumpyContainer):
    def to_flatten_dict(self) -> dict[str, Value]:
        flat: dict[str, Value] = {}
        for key, value in super().to_flatten_dict().items():
            nested = isinstance(value, dict) and value
            flat.update({f"{key}.{inner}": item for inner, item in value.items()} if nested else {key: value})
        return flat


@broken("MISMATCH:flatten:I-39", "fields that are None stay in the flat dict, and are sent")
class KeepsNone(NumpyContainer):
    def to_flatten_dict(self) -> dict[str, Value]:
        return {name: None for name in NAMES if getattr(self, name) is None} | super().to_flatten_dict()


@broken("MISMATCH:images:I-48", "the caller's token types are no field of the flat dict")
class DropsTokenTypes(NumpyContainer):
    def to_flatten_dict(self) -> dict[str, Value]:
        return {key: value for key, value in super().to_flatten_dict().items() if key != "mm_token_type"}


@broken("MISMATCH:images:I-48", "the image mask is shifted by the leading token that was cut off")
class ImageMaskOffByOne(Contained):
    def image_container(
        self, request: Request, images_seq_mask: np.ndarray, mm_token_type: np.ndarray
    ) -> NumpyContainer:
        return super().image_container(request, np.append(images_seq_mask[1:], False), mm_token_type)


@broken("MISMATCH:images:I-48", "the mirror reorders the caller's token types as well", paths=("prompt",))
class MirrorsTokenTypes(Contained):
    def image_container(
        self, request: Request, images_seq_mask: np.ndarray, mm_token_type: np.ndarray
    ) -> NumpyContainer:
        made = super().image_container(request, images_seq_mask, mm_token_type)
        mirror = getattr(made, "mirror_cp_index", None)
        if mirror is not None:
            set_all(made, {"mm_token_type": gathered(mm_token_type, mirror, neutral=0)})
        return made


@broken("MISMATCH:clean:I-47", "the expansion is kept aside and put back after a clean, whatever it holds by then")
class StaleAfterAClean(Contained):
    def container(self, request: Request) -> NumpyContainer:
        made = super().container(dataclasses.replace(request, expand=frozenset(oracle.EXPANSIONS)))
        set_all(made, {"_kept": {name: getattr(made, name) for name in made.get_clean_list()}})
        return made

    def expand(self, container: NumpyContainer, request: Request) -> None:
        super().expand(container, request)
        set_all(container, container._kept)


@broken("MISMATCH:clean:I-47", "the clean list leaves a dense index out: a replayed graph reads the last step's")
class CleanListLacksAnIndex(NumpyContainer):
    @staticmethod
    def get_clean_list() -> list[str]:
        return [name for name in NumpyContainer.get_clean_list() if name != "kv_ca_index"]


@broken("MISMATCH:compute:I-47", "a second call expands once more, into new memory")
class ComputesTwice(Contained):
    def expand(self, container: NumpyContainer, request: Request) -> None:
        super().expand(container, request)
        set_all(container, {"positions": container.positions.copy()})


@broken("MISMATCH:mask-view:I-23", "the pivots of the original are overwritten with the view's", paths=("prompt",))
class MaskViewInPlace(NumpyContainer):
    def get_mask_view(self) -> Self:
        self.kv_swa_full_index_pivots[...] = self.yoco_mask_swa_index_pivots
        return super().get_mask_view()


@broken("MISMATCH:consumer-view:I-23", "the view keeps the expansion of the full layout", paths=("prompt",))
class ConsumerViewKeepsAnExpansion(NumpyContainer):
    def get_consumer_view(self) -> Self:
        view = super().get_consumer_view()
        set_all(view, {WINDOW: getattr(self, WINDOW), "klen": self.klen})
        return view


@broken("MISMATCH:receiver:I-41", "keys that the sender has not stay at the receiver")
class ReceiverKeepsOldKeys(Contained):
    def filled(self, held: Value, brought: Value) -> Value:
        if isinstance(held, dict) and isinstance(brought, dict):
            return held | {key: self.filled(held.get(key), value) for key, value in brought.items()}
        return super().filled(held, brought)


@broken("MISMATCH:receiver:I-41", "what arrives is bound, not copied: a captured graph reads the old address")
class ReceiverMoves(Contained):
    def filled(self, held: Value, brought: Value) -> Value:
        return brought


@broken("MISMATCH:broadcast:I-41 or MISMATCH:receiver:I-41", "two levels are sent: what lies deeper arrives empty")
class BroadcastLosesTheThirdLevel(Contained):
    def carried(self, value: Value, path: str, same: dict[int, np.ndarray]) -> Value:
        if isinstance(value, dict) and path.count(".") > 1:
            return {}
        return super().carried(value, path, same)


@broken("MISMATCH:unsent:I-40", "what is neither a tensor nor a scalar is pickled")
class BroadcastPickles(Contained):
    def carried(self, value: Value, path: str, same: dict[int, np.ndarray]) -> Value:
        return copy.deepcopy(value) if isinstance(value, list) else super().carried(value, path, same)


@broken("MISMATCH:extract:I-22", "tables go to the device as the scheduler keeps them: spare blocks too", paths=ZOS)
class ExtractsSpareBlocks(Contained):
    def extract(self, request: Request) -> Any:  # noqa: ANN401
        tables = [sequence.block_table for sequence in request.sequences]
        offsets = np.cumsum([0, *map(len, tables)])
        spare = {"block_tables": [block for table in tables for block in table], "block_tables_offsets": offsets}
        return vars(super().extract(request)) | spare


@broken("MISMATCH:extract:I-22", "the offsets of tables are inclusive sums, as cu_seqlens_q is", paths=ZOS)
class ExtractsInclusiveOffsets(Contained):
    def extract(self, request: Request) -> Any:  # noqa: ANN401
        step = super().extract(request)
        offsets = (*step.block_tables_offsets[1:], step.block_tables_offsets[-1])
        return dataclasses.replace(step, block_tables_offsets=offsets)


@broken("MISMATCH:extract:I-22", "the drafts of a step are not among the host's tokens", paths=ZOS)
class ExtractsNoDrafts(Contained):
    def extract(self, request: Request) -> Any:  # noqa: ANN401
        step = super().extract(request)
        heads = {0, *step.cu_seqlens_q}
        tokens = tuple(token if row in heads else 0 for row, token in enumerate(step.input_ids))
        return dataclasses.replace(step, input_ids=tokens)
