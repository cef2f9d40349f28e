"""The messages of PROTOCOL.md as types. Everything is bounded: a message is untrusted until it has passed them.

Every list of integers is an :class:`Array`. No container may be longer than stated here: msgspec checks a length
before it allocates for it, so that a few bytes cannot ask for gigabytes.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias

import msgspec
import numpy as np

from inputmeta import oracle
from inputmeta.conformance.console import plain_text

VERSION = 1
"""Version of the protocol, the ``protocol`` of both hellos."""

ITEM_SIZES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}
"""Bytes of a cell by dtype. Inputs are int64 or int32; a field is int32 or bool; any other dtype is a difference."""

DTYPES = {name: np.dtype(name).newbyteorder("<") for name in ITEM_SIZES}
"""The little-endian dtypes of the wire."""
MAX_CELLS = 2**31
MOST_BYTES = 2**63 - 1
"""Of an array in memory, empty axes left out: numpy addresses no more."""
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_CELLS)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Name = Annotated[str, msgspec.Meta(max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=8000)]
Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=1000)]
Path = Literal["prompt", "decode", "decode_zos"]
YocoMode = Literal["off", "mask", "compact"]
TypeName = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"\A[ -~]+\Z")]


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An array: little-endian cells in C order; a bool is a byte 0 or 1. ``shape`` in cells."""

    dtype: Literal[
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "float16",
        "int32",
        "uint32",
        "float32",
        "int64",
        "uint64",
        "float64",
    ]
    shape: Annotated[tuple[Count, ...], msgspec.Meta(max_length=8)]
    data: bytes | Offset
    """The cells, or where they begin in shared memory, bytes."""

    def __post_init__(self) -> None:
        """Refuse data that is not what the shape says; msgspec turns the ValueError into one of the message."""
        if math.prod(filter(None, self.shape)) * ITEM_SIZES[self.dtype] > MOST_BYTES:  # an empty axis hides it
            raise ValueError(f"{list(self.shape)} cells of {self.dtype} are more than an array can have")
        if isinstance(self.data, int):
            return
        if self.size != len(self.data):
            raise ValueError(f"{list(self.shape)} cells of {self.dtype} are {self.size} bytes, not {len(self.data)}")
        if self.dtype == "bool" and self.data.translate(None, b"\0\1"):
            raise ValueError("a bool is a byte 0 or 1")

    @classmethod
    def of(cls, array: np.ndarray) -> Array:
        """An array of a dtype of ITEM_SIZES, of any strides."""
        if array.dtype == np.bool_:  # a cell of a damaged bool array may hold other bytes: true, as numpy reads it
            array = np.ascontiguousarray(array).view(np.uint8) != 0
        name = array.dtype.name
        little = array.astype(DTYPES[name], copy=False)
        return cls(dtype=name, shape=array.shape, data=little.tobytes())  # type: ignore[arg-type]

    @property
    def size(self) -> int:
        """Bytes of the cells."""
        return math.prod(self.shape) * ITEM_SIZES[self.dtype]

    def content(self) -> bytes:
        """The cells; raises ValueError if they are in shared memory."""
        if isinstance(self.data, int):
            raise ValueError("an array in shared memory that was not read")
        return self.data

    def numpy(self) -> np.ndarray:
        """The cells as a read-only array over ``data``."""
        return np.frombuffer(self.content(), dtype=DTYPES[self.dtype]).reshape(self.shape)


def make_plain(struct: msgspec.Struct, *names: str) -> None:
    """Replace control characters in texts of a message that is being made."""
    for name in names:
        msgspec.structs.force_setattr(struct, name, plain_text(getattr(struct, name)))


MOST_ARRAYS = 2**16
"""Arrays of one message: a prompt has seven fields of each ratio, and may have hundreds of ratios."""

Arrays = Annotated[tuple[Array, ...], msgspec.Meta(max_length=MOST_ARRAYS)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """MetadataConfig of SPEC.md chapter 1; the arrays are integers of one dimension."""

    block_size: Int64
    window_size: Int64
    swa_block_size: Int64
    max_model_len: Int64
    dense_ratios: Array
    sparse_ratios: Array
    max_ngram_size: Int64
    pad_token: Int64
    image_sentinel: Int64 | None
    lookup_table: Array
    cp_size: Int64
    cp_rank: Int64
    yoco_prefill_keep_tokens: Int64
    yoco_mode: YocoMode
    force_load_balance: bool


class Sequence(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """SequenceMetadata of SPEC.md chapter 1; the arrays are integers of one dimension."""

    seqlen_q: Int64
    seqlen_k: Int64
    block_table: Array
    state_id: Int64
    is_placeholder: bool
    swa_valid_start: Int64
    token_ids: Array
    draft_tokens: Array
    compressed_tokens: Array
    recent_tokens: Array
    data_len: Int64


class Varlen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Inputs of F-REMAP and F-VARLEN, integers: [n_seq], [m], [m]."""

    seqlens_q: Array
    prev_seqlens_q: Array
    prev_num_accepted_tokens: Array


class Gather(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Inputs of F-GATHER, integers: [total_q], [m], [m, width], [n_seq]. ``varlen``: left out unless it is claimed."""

    fresh_input_ids: Array
    prev_sampled: Array
    prev_predict: Array
    remap: Array
    varlen: Varlen | None = None


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Where a field lies: ``prod(shape)`` cells of a buffer from cell ``offset`` on. ``read_only``: if claimed."""

    buffer: Annotated[int, msgspec.Meta(ge=0, lt=MOST_ARRAYS)]
    offset: Count
    shape: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1, max_length=2)]
    read_only: bool = False


class Out(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Buffers to fill: whole allocations of one dimension, and the views that the fields have in them."""

    buffers: Arrays
    views: Annotated[dict[Name, View], msgspec.Meta(max_length=MOST_ARRAYS)]


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file of shared memory, to be mapped: ``size`` bytes, those from ``results`` on for the answer."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    size: Offset
    results: Offset


class Allocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a program that allocates is told of a step: its pool, whose the sequences are [n_seq], which requests ended.

    ``requests`` and ``ended`` are integers of one dimension.
    """

    num_blocks: Count
    num_states: Count
    requests: Array
    ended: Array


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="hello"):
    """Suite to program, first of all. ``suite``: version of the suite."""

    protocol: Count
    suite: Name


class Build(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="type",
    tag="build",
):
    """Suite to program: one batch. ``out`` only for a program that claims ``in_place``, ``allocation`` for one that
    claims ``allocates``; this and ``memory`` are left out if None.

    ``refill``: its place among batches that come in the same objects; only to a program that says ``refills``.
    """

    id: Int64
    path: Path
    config: Config
    sequences: Annotated[tuple[Sequence, ...], msgspec.Meta(max_length=2**20)]
    gather: Gather | None
    max_num_blocks: Int64 | None
    expand: Names
    out: Out | None
    memory: Memory | None = None
    allocation: Allocation | None = None
    refill: Count | None = None


class Inspect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="inspect"):
    """Suite to program: hold the container of a valid batch, ``build`` without ``out``, to what it promises.

    Only to a program that says ``containers`` in its hello.
    """

    id: Int64
    batch: Build


class Reset(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="reset"):
    """Suite to program: forget every request, a history begins. Only to a program that claims ``allocates``."""

    id: Int64


class Bye(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="bye"):
    """Suite to program: there is nothing more to do; the program ends."""


Numbers = Annotated[tuple[Limit, ...], msgspec.Meta(max_length=1000)]


class Conditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What a batch must be; see :class:`inputmeta.conformance.cases.conditions.Conditions`."""

    block_sizes: Numbers | None = None
    dense_ratios: Numbers | None = None
    sparse_ratios: Numbers | None = None
    window_sizes: Numbers | None = None
    ring_is_window: bool = False
    block_divides_window: bool = False
    least_seqlen_q: Offset = 0
    most_seqlen_q: Offset | None = None
    most_seqlen_k: Offset | None = None
    largest_block: Offset | None = None
    largest_state: Offset | None = None
    largest_token_slot: Offset | None = None
    history: bool = True
    placeholders: bool = True
    empty_steps: bool = True
    least_cp_size: Limit = 1
    cp_chunks: Name = "any"
    valid_starts: Name = "any"
    other_data_len: bool = True
    least_keep: Offset = 0
    least_ngram_size: Limit = 1
    expansions: Names = ()


class Allocates(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How a program allocates; see :class:`inputmeta.conformance.cases.allocated.Allocates`."""

    reserved_blocks: Offset = 0
    reserved_states: Offset = 0
    spare_blocks: Offset = 0
    shares_blocks: bool = False
    states: bool = True


class Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a program claims; see :class:`inputmeta.conformance.subjects.base.Capabilities`."""

    paths: Names
    fields: Names
    devices: Names = ("cpu",)
    in_place: bool = False
    neutral_tails: bool = False
    prompt_tails: Annotated[dict[Name, bool | Int64], msgspec.Meta(max_length=1000)] = {}
    max_cp_size: Limit = 1
    yoco_modes: Names = ("off",)
    varlen: bool = False
    read_only: bool = False
    max_total_q: Limit | None = None
    max_num_reqs: Limit | None = None
    max_table_columns: Limit | None = None
    refuses: Names = tuple(oracle.PRECONDITIONS)
    dialects: Names = ()
    fresh_inputs: bool = False
    fields_on: Annotated[dict[Name, Names], msgspec.Meta(max_length=10)] = {}
    conditions: Conditions = Conditions()
    allocates: Allocates | None = None


class HelloAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="hello"):
    """Program to suite: who it is and what it claims."""

    protocol: Count
    name: Name
    version: Name
    capabilities: Claims
    containers: bool = False
    """Answers ``inspect``."""
    int32_arrays: bool = False
    """Takes arrays of integers as int32, too."""
    refills: bool = False
    """Takes ``refill``."""
    shared_memory: Offset | None = None
    """Takes batches of so many bytes and more in shared memory; None: none."""

    def __post_init__(self) -> None:
        """Strangers' text is printed: keep it from commanding a terminal."""
        make_plain(self, "name", "version")


FieldValue: TypeAlias = Array | Int64 | bool | TypeName | None
"""A tensor, a plain scalar, the name of the type of something that is neither, or None: as good as left out."""


Reason = Annotated[str, msgspec.Meta(max_length=200)]
"""Why a batch or a field is not built: the same for the same kind of batch, for it is counted."""


class ResultAnswer(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="type",
    tag="result",
):
    """Program to suite: the fields of a batch by flat key; with ``out``, those in the buffers are left out of them."""

    id: Int64
    fields: Annotated[dict[Name, FieldValue], msgspec.Meta(max_length=MOST_ARRAYS)]
    buffers: Arrays | None = None
    unsupported: Annotated[dict[Name, Reason], msgspec.Meta(max_length=MOST_ARRAYS)] = {}
    """Why fields of this batch are not built, by flat key."""


class ResetAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="reset"):
    """Program to suite: every request is forgotten."""

    id: Int64


class Reject(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="reject"):
    """Program to suite: the batch breaks ``condition``. ``buffers``: as they are now; None: not touched."""

    id: Int64
    condition: Name
    sequence: Int64 | None
    field: Name
    message: Text
    buffers: Arrays | None = None

    def __post_init__(self) -> None:
        """As for :class:`HelloAnswer`."""
        make_plain(self, "condition", "field", "message")


class BrokenPromise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A promise of SPEC.md chapter 11 that is not kept: its number (I-…), a word for it, the field at fault."""

    number: Annotated[str, msgspec.Meta(pattern=r"\AI-\d{1,3}\Z")]
    kind: Annotated[str, msgspec.Meta(pattern=r"\A[a-z-]{1,32}\Z")]
    key: Name | None
    detail: Text

    def __post_init__(self) -> None:
        """As for :class:`HelloAnswer`."""
        make_plain(self, "detail")


class Inspected(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="inspected"
):
    """Program to suite: the promises of a container that were kept, by kind, and those that were not."""

    id: Int64
    kept: Names
    broken: Annotated[tuple[BrokenPromise, ...], msgspec.Meta(max_length=100)]


Frame = Annotated[str, msgspec.Meta(max_length=200)]


class ErrorAnswer(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="type",
    tag="error",
):
    """Program to suite: no answer to a batch. ``id`` is -1 where the error belongs to none.

    ``kind``: "exception" of the builder, "memory" that it had no more of, "device" error, "mutated" request,
    "kept" result that changed, "oversized" answer, "limit": the adapter has no memory for batch or answer, "message"
    that is not valid, "unsupported": the program does not build this batch; ``message`` is the reason.
    ``frames``: where the builder raised, a line a frame, the innermost last.
    """

    id: Int64
    kind: Literal["exception", "memory", "device", "mutated", "kept", "oversized", "limit", "message", "unsupported"]
    message: Text
    frames: Annotated[tuple[Frame, ...], msgspec.Meta(max_length=20)] = ()

    def __post_init__(self) -> None:
        """As for :class:`HelloAnswer`."""
        make_plain(self, "message")
        msgspec.structs.force_setattr(self, "frames", tuple(map(plain_text, self.frames)))


SuiteMessage: TypeAlias = Hello | Build | Inspect | Reset | Bye
ProgramMessage: TypeAlias = HelloAnswer | ResultAnswer | Reject | Inspected | ResetAnswer | ErrorAnswer
