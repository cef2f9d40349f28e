"""Cases: one batch (or several on the same buffers) as a JSON file that a person can read and edit.

A case holds values, not seeds: it means the same for ever. Unknown keys are an error, integers are bounded by the
types below, and nothing in a case file is ever evaluated. Names and units are those of ``oracle/SPEC.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

import msgspec

from inputmeta import oracle

SCHEMA: Final = "inputmeta-case/1"

Path = Literal["prompt", "decode", "decode_zos"]

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int62 = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
"""Scalars may leave int32 (to test that they are refused) but never overflow int64 arithmetic."""
Text = Annotated[str, msgspec.Meta(max_length=4000)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """MetadataConfig of SPEC.md section 1. Lengths in tokens."""

    block_size: Int32
    dense_ratios: tuple[Int32, ...] = ()
    sparse_ratios: tuple[Int32, ...] = ()
    window_size: Int32
    swa_block_size: Int32
    max_model_len: Int32
    max_ngram_size: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    pad_token: Int62 = 0
    image_sentinel: Int62 | None = None
    lookup_table: tuple[Int62, ...] = ()
    cp_size: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**16)] = 1
    cp_rank: Int32 = 0
    yoco_prefill_keep_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    yoco_mode: Literal["off", "mask", "compact"] = "off"
    force_load_balance: bool = False


class Sequence(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """SequenceMetadata of SPEC.md section 1: one sequence of one step."""

    seqlen_q: Int62
    seqlen_k: Int62
    block_table: tuple[Int62, ...] = ()
    state_id: Int62 = 0
    is_placeholder: bool = False
    swa_valid_start: Int62 = 0
    token_ids: tuple[Int62, ...] = ()
    draft_tokens: tuple[Int62, ...] = ()
    compressed_tokens: tuple[Int62, ...] = ()
    recent_tokens: tuple[Int62, ...] = ()
    data_len: Int62 = 0


class Varlen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Inputs of F-REMAP and F-VARLEN (SPEC.md section 10): what makes a step shorter than it was extracted.

    ``seqlens_q`` [n_seq], ``prev_seqlens_q`` [m], ``prev_num_accepted_tokens`` [m].
    """

    seqlens_q: tuple[Int32, ...]
    prev_seqlens_q: tuple[Int32, ...]
    prev_num_accepted_tokens: tuple[Int32, ...]


class Gather(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Inputs of F-GATHER for one ``decode_zos`` step (SPEC.md section 10).

    ``fresh_input_ids`` [total_q], ``prev_sampled`` [m], ``prev_predict`` [m, width], ``remap`` [n_seq]; ``varlen``:
    null where the step has its extracted lengths.
    """

    fresh_input_ids: tuple[Int32, ...]
    prev_sampled: tuple[Int32, ...]
    prev_predict: tuple[tuple[Int32, ...], ...]
    remap: tuple[Int32, ...]
    varlen: Varlen | None = None


class AllocationStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Whose the sequences of a step are (A-LIFE): ``requests`` [n_seq], -1 for a placeholder; those that ``ended``."""

    requests: tuple[Int32, ...]
    ended: tuple[Int32, ...] = ()


class Allocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A pool, in blocks and state slots, and the requests of every step (SPEC.md chapter 14), from a reset on."""

    num_blocks: Annotated[int, msgspec.Meta(ge=0, le=2**30)]
    num_states: Annotated[int, msgspec.Meta(ge=0, le=2**30)]
    steps: tuple[AllocationStep, ...]


class Runs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An array of a sequence, of the lookup table or of F-GATHER, as a file may write it: one run behind the other.

    A run is ``[first, length]``, going up by one, or ``[value, length, 0]``, the same value all along.
    """

    runs: tuple[Annotated[tuple[Int62, ...], msgspec.Meta(min_length=2, max_length=3)], ...]


FaultKind = Literal["missing", "short", "narrow", "dtype", "read-only", "mis-spaced", "overlapping"]


class OutFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is wrong with one of the caller's buffers (P-OUT), at every step, for subjects that fill in place.

    ``missing``: it is not there. ``short``, ``narrow``: one row, one column fewer. ``dtype``: bool for int32, int32 for
    bool. ``read-only``: it may not be written to. F-STACK, ``decode_zos`` only: ``mis-spaced``: the last two of several
    buckets in each other's place; ``overlapping``: the last of several where the first one is.
    """

    key: Text
    """Flat key of the field."""
    fault: FaultKind


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Where a case comes from: what found it, with which version and seed, and what minimised it."""

    found_by: Text = "hand"
    version: Text = ""
    seed: Int62 | None = None
    minimised_by: Text = ""


Cell = Int62 | bool | None
"""One cell of an expected field; ``None`` where the cell is not defined."""


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One expected field. ``data`` is nested by ``shape``: a scalar, a list of cells, or a list of rows of cells."""

    dtype: Literal["int32", "bool", "int"]
    shape: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, le=2**31)], ...], msgspec.Meta(max_length=2)]
    data: Cell | tuple[Cell | tuple[Cell, ...], ...]


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One precondition that a step breaks; ``sequence`` is null where the configuration breaks it."""

    condition: Text
    sequence: Int32 | None
    field: Text


class StepExpected(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What the oracle says of one step: its fields by flat key (``klen.4``), or the preconditions it breaks."""

    fields: dict[str, Array] = {}
    refused: tuple[Refusal, ...] = ()


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A case file. ``expected`` is a cache of the oracle's answer, one entry a step; ``corpus lint`` checks it.

    ``gather`` holds the inputs of F-GATHER, one entry a step, for ``decode_zos`` only. ``max_num_blocks`` is the
    width of the caller's ``block_tables`` buffer in blocks (I-4); null: as wide as the batch needs. ``out_fault`` is
    what is wrong with the caller's buffers. ``allocation``: the subject gives block tables and states itself; then the
    sequences that are no placeholders have none, and the steps, all of them valid, are one history. ``wants`` says
    whether the case is to be refused, because at least one step breaks a precondition, or valid in every step; without
    it the steps themselves say so. One that contradicts its steps is an error, and is not run.
    """

    schema: Literal["inputmeta-case/1"]
    id: Annotated[str, msgspec.Meta(max_length=64)] = ""
    title: Text = ""
    wants: Literal["valid", "refused"] | None = None
    path: Path
    config: Config
    steps: Annotated[tuple[tuple[Sequence, ...], ...], msgspec.Meta(min_length=1)]
    gather: tuple[Gather | None, ...] = ()
    max_num_blocks: Annotated[int, msgspec.Meta(ge=1, le=2**20)] | None = None
    out_fault: OutFault | None = None
    allocation: Allocation | None = None
    expected: tuple[StepExpected, ...] = ()
    tags: tuple[Text, ...] = ()
    origin: Origin = Origin()


def case_config(config: oracle.MetadataConfig) -> Config:
    """The oracle's configuration as a case's."""
    return Config(**_members(Config, config, oracle.CONFIG_ARRAYS))


def case_sequences(step: Iterable[oracle.SequenceMetadata]) -> tuple[Sequence, ...]:
    """The oracle's sequences as one step of a case. Copies every token."""
    return tuple(Sequence(**_members(Sequence, sequence, oracle.SEQUENCE_ARRAYS)) for sequence in step)


def _members(kind: type[msgspec.Struct], source: object, arrays: Iterable[str]) -> dict[str, Any]:
    """The members of ``kind`` as ``source`` has them; ``arrays``, of whatever type, as tuples of plain integers."""
    values = {name: getattr(source, name) for name in kind.__struct_fields__}
    return values | {name: _integers(values[name]) for name in arrays}


def _integers(values: Any) -> tuple[int, ...]:  # noqa: ANN401 - a sequence, or an array of numpy or the machine
    return tuple(values.tolist() if hasattr(values, "tolist") else values)


def oracle_config(config: Config) -> oracle.MetadataConfig:
    """A case's configuration as the oracle's type."""
    return oracle.MetadataConfig(**{name: getattr(config, name) for name in config.__struct_fields__})


def oracle_sequences(step: tuple[Sequence, ...]) -> list[oracle.SequenceMetadata]:
    """One step's sequences as the oracle's type."""
    names = Sequence.__struct_fields__
    return [oracle.SequenceMetadata(**{name: getattr(sequence, name) for name in names}) for sequence in step]
