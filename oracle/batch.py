"""The entry: all fields that a batch should have."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from . import assemble, assemble_decode, assemble_prompt, assemble_yoco
from .declaration import EXPANSIONS
from .inputs import PATHS, GatherInputs, MetadataConfig, Path, SequenceMetadata
from .preconditions import violations
from .rows import chunks_of, total_queries
from .sheet import ExpectedField, Sheet, check_cells
from .varlen import check_varlen


def expected_fields(
    path: Path,
    config: MetadataConfig,
    sequences: Sequence[SequenceMetadata],
    *,
    rows: Sequence[int] | None = None,
    expand: Collection[str] = EXPANSIONS,
    gather: GatherInputs | None = None,
    max_num_blocks: int | None = None,
    is_valid: bool = False,
) -> dict[str, ExpectedField]:
    """Every field of a step by its flat key.

    ``rows``: sorted, distinct global query rows to build (None = all); the work is then proportional to them, to the
    sequences and to the load segments. ``expand``: which of EXPANSIONS to build. ``gather``: inputs of F-GATHER, which
    replace ``input_ids``, and of F-VARLEN, which shorten the step (``decode_zos`` only). ``max_num_blocks``: columns of
    a caller's wider block_tables (decode). ``is_valid``: ``violations`` has found none, and is not asked again.

    Raises the first violation (PreconditionError) of a batch that breaks a precondition, ValueError for an argument
    that does not fit the batch.
    """
    check_arguments(path, expand, gather)
    broken = [] if is_valid else violations(path, config, sequences, max_num_blocks)
    if broken:
        raise broken[0]
    check_rows(sequences, rows)
    if gather is not None:
        check_gather(gather, sequences)
        if gather.varlen is not None:
            check_varlen(config, sequences, gather, gather.varlen)
    fields = build(path, config, sequences, rows=rows, expand=expand, gather=gather, max_num_blocks=max_num_blocks)
    for expected in fields.values():
        check_cells(expected)
    return fields


def build(
    path: Path,
    config: MetadataConfig,
    sequences: Sequence[SequenceMetadata],
    *,
    rows: Sequence[int] | None = None,
    expand: Collection[str] = EXPANSIONS,
    gather: GatherInputs | None = None,
    max_num_blocks: int | None = None,
) -> dict[str, ExpectedField]:
    """The fields on mathematical integers, int32 or not: ``expected_fields`` without its checks."""
    batch = assemble.batch_of(
        path,
        config,
        sequences,
        rows=rows,
        expand=frozenset(expand),
        gather=gather,
        max_num_blocks=max_num_blocks,
    )
    sheet = assemble.sheet_of(batch)
    assemble.add_scalars(sheet, batch)
    assemble.add_common(sheet, batch)
    assemble.add_dense_lengths(sheet, batch)
    if path == "prompt":
        add_prompt(sheet, batch)
    else:
        add_decode(sheet, batch)
    return sheet.fields


def add_prompt(sheet: Sheet, batch: assemble.Batch) -> None:
    """The fields of a prompt step."""
    assemble_prompt.add_boundaries(sheet, batch)
    for ratio in batch.config.ca_ratios:
        assemble_prompt.add_compressed(sheet, batch, ratio)
    assemble_prompt.add_window(sheet, batch)
    assemble_prompt.add_key_ranges(sheet, batch)
    assemble_prompt.add_mirror(sheet, batch)
    assemble_yoco.add_truncation(sheet, batch)


def add_decode(sheet: Sheet, batch: assemble.Batch) -> None:
    """The fields of a decode step."""
    assemble_decode.add_boundaries(sheet, batch)
    assemble_decode.add_tables(sheet, batch)
    assemble_decode.add_window(sheet, batch)
    for ratio in batch.config.ca_ratios:
        assemble_decode.add_compressed(sheet, batch, ratio)
    for ratio in batch.config.sparse:
        assemble_decode.add_sparse_lengths(sheet, batch, ratio)
    for ratio in batch.config.dense:
        assemble_decode.add_dense_offsets(sheet, batch, ratio)


def check_arguments(path: str, expand: Collection[str], gather: GatherInputs | None) -> None:
    """Refuse a path, an expansion or gather inputs that mean nothing."""
    if path not in PATHS:
        raise ValueError(f"path {path!r} is none of {', '.join(PATHS)}")
    unknown = sorted(set(expand) - set(EXPANSIONS))
    if unknown:
        raise ValueError(f"expand: {unknown[0]!r} is none of {', '.join(EXPANSIONS)}")
    if gather is not None and path != "decode_zos":
        raise ValueError(f"gather inputs belong to decode_zos, not to {path}")


def check_rows(sequences: Sequence[SequenceMetadata], rows: Sequence[int] | None) -> None:
    """Refuse chosen rows that are not sorted, distinct and within the batch."""
    if rows is None or len(rows) == 0:
        return
    total = total_queries(chunks_of(sequences))
    ascending = all(before < after for before, after in pairwise(rows))
    if not ascending or rows[0] < 0 or rows[-1] >= total:
        raise ValueError(f"rows must be sorted, distinct and within the {total} query rows of the batch")


def check_gather(gather: GatherInputs, sequences: Sequence[SequenceMetadata]) -> None:
    """Refuse gather inputs whose shapes do not fit the batch (F-GATHER).

    I-21: [total_q] fresh tokens, [n_seq] places; a continued sequence's place indexes both arrays of the last step,
    and its drafts are all there.
    """
    total = total_queries(chunks_of(sequences))
    if len(gather.fresh_input_ids) != total:
        raise ValueError(f"gather: fresh_input_ids has {len(gather.fresh_input_ids)} tokens for {total} query rows")
    if len(gather.remap) != len(sequences):
        raise ValueError(f"gather: remap has {len(gather.remap)} entries for {len(sequences)} sequences")
    previous = min(len(gather.prev_sampled), len(gather.prev_predict))
    lengths = [sequence.seqlen_q for sequence in sequences]
    if gather.varlen is not None and len(gather.varlen.seqlens_q) == len(lengths):
        lengths = list(gather.varlen.seqlens_q)
    for index, (place, length) in enumerate(zip(gather.remap, lengths, strict=True)):
        if place >= previous:
            raise ValueError(f"gather: remap[{index}] = {place} for {previous} sequences of the last step")
        if place >= 0 and len(gather.prev_predict[place]) < length - 1:
            raise ValueError(f"gather: prev_predict[{place}] is shorter than the drafts of sequence {index}")
