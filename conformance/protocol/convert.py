"""Between messages and the suite's own types: requests, results, rejections, capabilities."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec
import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases import model as cases
from inputmeta.conformance.cases.allocated import Allocates
from inputmeta.conformance.cases.conditions import Conditions
from inputmeta.conformance.cases.request import Request, StepAllocation
from inputmeta.conformance.check.containers import Broken, Inspected, inspector_of
from inputmeta.conformance.console import plain_text
from inputmeta.conformance.protocol import messages as wire
from inputmeta.conformance.protocol.codec import MAX_FRAME, ProtocolError
from inputmeta.conformance.subjects.base import Capabilities, Rejection, Result, Subject, Unsupported, with_buffers

SHARED_FROM = 2**20
"""Bytes of a batch from which on a served subject has it in shared memory: below, a pipe is as fast."""
INT64 = range(-(2**63), 2**63)
TYPE_CODES = {"int64": "q", "int32": "i"}
"""Of :mod:`array`, by the dtypes that integers come in."""


class BeyondInt64Error(Exception):
    """A batch that holds a value which no message can carry: it is UNSUPPORTED. ``str()`` says so."""

    def __init__(self) -> None:
        super().__init__("value beyond int64")


def build_message(request: Request, number: int, *, int32: bool = False, refills: bool = False) -> wire.Build:
    """The request as a message with the id ``number``. ``int32``: arrays are int32 whose integers all fit.

    ``refills``: it says in which objects it comes.

    Raises:
        BeyondInt64Error: a value does not fit in int64.

    """
    config = {name: getattr(request.config, name) for name in wire.Config.__struct_fields__}
    config |= {name: integer_array(config[name], int32) for name in oracle.CONFIG_ARRAYS}
    check_scalars(config.values())
    check_scalars([request.max_num_blocks])
    return wire.Build(
        id=number,
        path=request.path,
        config=wire.Config(**config),
        sequences=tuple(sequence_message(sequence, int32) for sequence in request.sequences),
        gather=None if request.gather is None else gather_message(request.gather, int32),
        max_num_blocks=request.max_num_blocks,
        expand=tuple(sorted(request.expand)),
        out=None if request.out is None else out_message(request.out),
        allocation=None if request.allocation is None else allocation_message(request.allocation, int32),
        refill=request.refill if refills else None,
    )


def sequence_message(sequence: oracle.SequenceMetadata, int32: bool) -> wire.Sequence:
    """One sequence as a message."""
    values = {name: getattr(sequence, name) for name in wire.Sequence.__struct_fields__}
    values |= {name: integer_array(values[name], int32) for name in oracle.SEQUENCE_ARRAYS}
    check_scalars(values.values())
    return wire.Sequence(**values)


def gather_message(gather: cases.Gather, int32: bool) -> wire.Gather:
    """The inputs of F-GATHER; rows of drafts of several lengths are cut to the shortest: no formula reads beyond it."""
    rows = gather.prev_predict
    width = min((len(row) for row in rows), default=0)
    flat = integer_array([cell for row in rows for cell in row[:width]], int32)
    return wire.Gather(
        fresh_input_ids=integer_array(gather.fresh_input_ids, int32),
        prev_sampled=integer_array(gather.prev_sampled, int32),
        prev_predict=wire.Array(dtype=flat.dtype, shape=(len(rows), width), data=flat.data),
        remap=integer_array(gather.remap, int32),
        varlen=None if gather.varlen is None else varlen_message(gather.varlen, int32),
    )


def allocation_message(step: StepAllocation, int32: bool) -> wire.Allocation:
    """What a subject that allocates is told of a step, as a message."""
    return wire.Allocation(
        num_blocks=step.num_blocks,
        num_states=step.num_states,
        requests=integer_array(step.requests, int32),
        ended=integer_array(step.ended, int32),
    )


def varlen_message(varlen: cases.Varlen, int32: bool) -> wire.Varlen:
    """The inputs of F-VARLEN as a message."""
    return wire.Varlen(**{name: integer_array(getattr(varlen, name), int32) for name in wire.Varlen.__struct_fields__})


def integer_array(values: Sequence[int], int32: bool) -> wire.Array:
    """Integers as an array of one dimension: of int32 if that is allowed and all of them fit, else of int64."""
    if isinstance(values, np.ndarray):
        narrow = int32 and np.array_equal(values, cells := values.astype(np.int32))
        return wire.Array.of(cells if narrow else values.astype(np.int64))
    if int32:
        with suppress(OverflowError):
            return little_endian("int32", array("i", values))
    try:
        return little_endian("int64", array("q", values))
    except OverflowError as error:
        raise BeyondInt64Error from error


def little_endian(dtype: Literal["int32", "int64"], cells: array[int]) -> wire.Array:
    """Integers as an array of one dimension."""
    if sys.byteorder == "big":
        cells.byteswap()
    return wire.Array(dtype=dtype, shape=(len(cells),), data=cells.tobytes())


def check_scalars(values: Iterable[object]) -> None:
    """Raise BeyondInt64Error if an integer among ``values`` does not fit in int64."""
    for value in values:
        if isinstance(value, int) and value not in INT64:
            raise BeyondInt64Error


def root_of(view: np.ndarray) -> np.ndarray:
    """The allocation that an array is a view of."""
    while isinstance(view.base, np.ndarray):
        view = view.base
    return view


def out_message(out: Mapping[str, np.ndarray]) -> wire.Out:
    """The buffers that the arrays of ``out`` are contiguous views of, each once, and where the arrays lie in them."""
    roots = roots_of(out)
    places = {id(root): index for index, root in enumerate(roots)}
    views = {}
    for key, view in out.items():
        root = root_of(view)
        offset = (view.ctypes.data - root.ctypes.data) // view.itemsize
        locked = not view.flags.writeable
        views[key] = wire.View(buffer=places[id(root)], offset=offset, shape=view.shape, read_only=locked)
    return wire.Out(buffers=tuple(wire.Array.of(root.reshape(-1)) for root in roots), views=views)


def roots_of(out: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The allocations behind the arrays of ``out``, each once, in the order of the keys."""
    return list({id(root): root for root in map(root_of, out.values())}.values())


def request_of(build: wire.Build, *, arrays: bool = False) -> Request:
    """The request that a message stands for, with buffers of its own. ``arrays``: int32 arrays stay numpy's.

    Raises:
        ProtocolError: the arrays or views do not fit what they stand for.
    """
    config = {name: getattr(build.config, name) for name in wire.Config.__struct_fields__}
    config |= {name: integers(config[name], arrays) for name in oracle.CONFIG_ARRAYS}
    return Request(
        path=build.path,
        config=oracle.MetadataConfig(**config),
        sequences=[sequence_of(sequence, arrays) for sequence in build.sequences],
        gather=None if build.gather is None else gather_of(build.gather),
        max_num_blocks=build.max_num_blocks,
        expand=frozenset(build.expand),
        out=None if build.out is None else out_of(build.out),
        allocation=None if build.allocation is None else allocation_of(build.allocation, len(build.sequences)),
    )


def sequence_of(message: wire.Sequence, arrays: bool) -> oracle.SequenceMetadata:
    """One sequence of a message."""
    values = {name: getattr(message, name) for name in wire.Sequence.__struct_fields__}
    values |= {name: integers(values[name], arrays) for name in oracle.SEQUENCE_ARRAYS}
    return oracle.SequenceMetadata(**values)


def gather_of(message: wire.Gather) -> cases.Gather:
    """The inputs of F-GATHER of a message."""
    rows = message.prev_predict
    if rows.dtype not in TYPE_CODES or len(rows.shape) != 2:
        raise ProtocolError("prev_predict is not an int64 or int32 array of two dimensions")
    return cases.Gather(
        fresh_input_ids=integers(message.fresh_input_ids),
        prev_sampled=integers(message.prev_sampled),
        prev_predict=tuple(tuple(row) for row in rows.numpy().tolist()),
        remap=integers(message.remap),
        varlen=None if message.varlen is None else varlen_of(message.varlen),
    )


def varlen_of(message: wire.Varlen) -> cases.Varlen:
    """The inputs of F-VARLEN of a message."""
    return cases.Varlen(**{name: integers(getattr(message, name)) for name in wire.Varlen.__struct_fields__})


def allocation_of(message: wire.Allocation, sequences: int) -> StepAllocation:
    """What a message says of a step to a subject that allocates."""
    requests, ended = integers(message.requests), integers(message.ended)
    if len(requests) != sequences:
        raise ProtocolError(f"requests are {len(requests)}, of {sequences} sequences")
    return StepAllocation(message.num_blocks, message.num_states, requests, ended)


def integers(message: wire.Array, arrays: bool = False) -> tuple[int, ...]:
    """The cells of an int64 or int32 array of one dimension. ``arrays``: those of int32 as a read-only numpy array."""
    if message.dtype not in TYPE_CODES or len(message.shape) != 1:
        raise ProtocolError("a list of integers is not an int64 or int32 array of one dimension")
    if arrays and message.dtype == "int32":
        return message.numpy().astype(np.int32, copy=False)  # type: ignore[return-value]
    cells = array(TYPE_CODES[message.dtype], message.content())
    if sys.byteorder == "big":
        cells.byteswap()
    return tuple(cells)


def out_of(message: wire.Out) -> dict[str, np.ndarray]:
    """The views of a message over fresh, writable buffers."""
    roots = []
    for buffer in message.buffers:
        if len(buffer.shape) != 1 or buffer.dtype not in ("int32", "bool"):
            raise ProtocolError("a buffer is not an int32 or bool array of one dimension")
        roots.append(buffer.numpy().copy())
    views = {}
    for key, view in message.views.items():
        cells = math.prod(view.shape)
        if view.buffer >= len(roots) or view.offset + cells > roots[view.buffer].size:
            raise ProtocolError(f"the view of {key[:80]} lies outside its buffer")
        views[key] = roots[view.buffer][view.offset : view.offset + cells].reshape(view.shape)
        views[key].flags.writeable = not view.read_only
    return views


def result_message(
    result: Result, out: Mapping[str, np.ndarray] | None, number: int, most: int = MAX_FRAME
) -> wire.ResultAnswer:
    """A subject's answer to the request with the id ``number``, as it is: wrong dtypes and types included.

    ``most``: bytes of an array that can be sent.

    With ``out`` its buffers are sent whole, and none of the fields that lie in them. Keys that are no text are left
    out: no field is named so.
    """
    kept = {
        key: value
        for key, value in result.items()
        if isinstance(key, str) and (out is None or key not in out or isinstance(value, Unsupported))
    }
    reasons = {key[:200]: value.reason for key, value in kept.items() if isinstance(value, Unsupported)}
    fields = {key[:200]: field_value(value, most) for key, value in kept.items() if not isinstance(value, Unsupported)}
    buffers = None if out is None else buffers_message(out)
    return wire.ResultAnswer(id=number, fields=fields, buffers=buffers, unsupported=reasons)


def buffers_message(out: Mapping[str, np.ndarray]) -> tuple[wire.Array, ...]:
    """The buffers behind ``out``, as they are now."""
    return tuple(wire.Array.of(root.reshape(-1)) for root in roots_of(out))


def field_value(value: object, most: int = MAX_FRAME) -> wire.FieldValue:
    """One field: an array of at most ``most`` bytes, a plain scalar, or the name of the type of what is neither."""
    if isinstance(value, np.ndarray):
        native = value.dtype == value.dtype.newbyteorder("<")
        small = value.ndim <= 8 and value.nbytes <= most and max(value.shape, default=0) <= wire.MAX_CELLS
        if value.dtype.name in wire.ITEM_SIZES and native and small:
            return wire.Array.of(value)
        return f"array of {value.dtype.str}{'' if small else f' {list(value.shape)}'}"[:64]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if int(value) in INT64 else "int beyond int64"
    return type(value).__name__.encode("ascii", "replace").decode()[:64] or "?"


def apply_result(answer: wire.ResultAnswer, request: Request) -> Result:
    """The answer as the result of ``request``; with ``request.out``, the buffers returned are copied into its own.

    Raises:
        ProtocolError: the buffers are not those of the request.
    """
    reasons = {key: Unsupported(reason) for key, reason in answer.unsupported.items()}
    fields = {key: value_of(value) for key, value in answer.fields.items()} | reasons
    if request.out is None:
        return fields
    if answer.buffers is None:
        raise ProtocolError("a result without the buffers that were to be filled")
    apply_buffers(answer.buffers, request.out)
    return with_buffers(fields, request.out)


def apply_buffers(buffers: Sequence[wire.Array], out: Mapping[str, np.ndarray]) -> None:
    """Copy returned buffers into the allocations behind ``out``, which must be writable."""
    roots = roots_of(out)
    if [(b.dtype, b.shape) for b in buffers] != [(root.dtype.name, (root.size,)) for root in roots]:
        raise ProtocolError("the buffers that came back are not those that were sent")
    for buffer, root in zip(buffers, roots, strict=True):
        root.reshape(-1)[:] = buffer.numpy()


def value_of(value: wire.FieldValue) -> np.ndarray | int | bool:
    """One field of an answer; a type's name becomes an object of a type of that name, for the comparison to name."""
    if isinstance(value, wire.Array):
        return value.numpy()
    if isinstance(value, str):
        value = type(value, (), {})()
    return value  # type: ignore[return-value]


def reject_message(rejection: Rejection, out: Mapping[str, np.ndarray] | None, number: int) -> wire.Reject:
    """A subject's refusal; with ``out`` its buffers go along, so that the suite sees what was written before.

    Raises:
        TypeError: the refusal is not well formed.
    """
    sequence = rejection.sequence
    named = isinstance(rejection.condition, str) and isinstance(rejection.field, str)
    if not named or not (sequence is None or type(sequence) is int):
        raise TypeError("a Rejection whose condition or field is no text, or whose sequence is neither int nor None")
    return wire.Reject(
        id=number,
        condition=rejection.condition[:200],
        sequence=sequence,
        field=rejection.field[:200],
        message=str(rejection)[:2000],
        buffers=None if out is None else buffers_message(out),
    )


def apply_reject(answer: wire.Reject, request: Request) -> Rejection:
    """The refusal as the exception to raise; with ``request.out``, buffers that came back are copied into its own.

    Raises:
        ProtocolError: the buffers are not those of the request.
    """
    if request.out is not None and answer.buffers is not None:
        apply_buffers(answer.buffers, request.out)
    return Rejection(answer.condition, answer.sequence, answer.field, answer.message)


def hello_answer(subject: Subject) -> wire.HelloAnswer:
    """Who a subject is and what it claims."""
    return wire.HelloAnswer(
        protocol=wire.VERSION,
        name=str(subject.name)[:200],
        version=str(getattr(subject, "version", ""))[:200],
        capabilities=claims_message(subject.capabilities),
        containers=inspector_of(subject) is not None,
        int32_arrays=True,
        refills=not subject.capabilities.fresh_inputs,
        shared_memory=SHARED_FROM,
    )


def inspected_message(found: Inspected, number: int) -> wire.Inspected:
    """What an inspection gave as a message with the id ``number``."""
    broken = tuple(
        wire.BrokenPromise(
            number=each.number,
            kind=each.kind,
            key=None if each.key is None else plain_text(str(each.key))[:200],
            detail=each.detail[:2000],
        )
        for each in found.broken
    )
    return wire.Inspected(id=number, kept=found.kept, broken=broken)


def inspected_of(answer: wire.Inspected) -> Inspected:
    """What an inspection gave.

    Raises:
        ProtocolError: a promise that there is not.
    """
    for each in answer.broken:
        if each.number not in oracle.PROMISES:
            raise ProtocolError(f"there is no promise {each.number}")
    return Inspected(answer.kept, tuple(Broken(e.number, e.kind, e.key, e.detail) for e in answer.broken))


def claims_message(capabilities: Capabilities) -> wire.Claims:
    """A subject's claims as a message."""
    values = members(capabilities, wire.Claims)
    values["fields_on"] = {path: tuple(sorted(names)) for path, names in capabilities.fields_on.items()}
    values["prompt_tails"] = dict(capabilities.prompt_tails)
    values["conditions"] = wire.Conditions(**members(capabilities.conditions, wire.Conditions))
    if capabilities.allocates is not None:
        values["allocates"] = wire.Allocates(**members(capabilities.allocates, wire.Allocates))
    return wire.Claims(**values)


def members(claimed: object, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The members of claims that a message has, sets of them as sorted lists."""
    values = {name: getattr(claimed, name) for name in kind.__struct_fields__}
    return {name: tuple(sorted(v)) if isinstance(v, set | frozenset) else v for name, v in values.items()}


def capabilities_of(claims: wire.Claims) -> Capabilities:
    """The claims of a message."""
    values = claimed_members(claims)
    values["fields_on"] = {path: frozenset(names) for path, names in claims.fields_on.items()}
    values["conditions"] = Conditions(**claimed_members(claims.conditions))
    if claims.allocates is not None:
        values["allocates"] = Allocates(**claimed_members(claims.allocates))
    return Capabilities(**values)


def claimed_members(message: msgspec.Struct) -> dict[str, Any]:
    """The members of a message of claims, lists of them as sets."""
    values = {name: getattr(message, name) for name in message.__struct_fields__}
    return {name: frozenset(v) if isinstance(v, tuple) else v for name, v in values.items()}
