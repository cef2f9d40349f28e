"""Chapter 1: the preconditions of a batch, one function each, in the order in which they are checked.

Each yields every violation it finds. I-17: naming any one that is really broken is right.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from .blocks import block_count, table_width
from .errors import Int32Error, LengthError, NgramError, OutError, PreconditionError, RatioError, StateError, TableError
from .inputs import SEQUENCE_ARRAYS, MetadataConfig, Path, SequenceMetadata
from .limits import limit_violations
from .units import INT32_MAX, Token


def ratio_violations(config: MetadataConfig) -> Iterator[PreconditionError]:
    """P-RATIO: every ratio >= 1 and divides block_size; at least one ratio; W >= 1; B >= W; p >= 1; 0 <= rank < p.

    I-19: block_size >= 1 too.
    """
    if config.block_size < 1:
        yield RatioError(None, "block_size", config.block_size, "block_size >= 1")
    for field in ("dense_ratios", "sparse_ratios"):
        for ratio in getattr(config, field):
            if ratio < 1 or config.block_size % ratio != 0:
                yield RatioError(None, field, ratio, f"ratio >= 1 and divides block_size = {config.block_size}")
    if not config.dense_ratios and not config.sparse_ratios:
        yield RatioError(None, "sparse_ratios", 0, "at least one ratio, dense or sparse", "and dense_ratios are empty")
    if config.window_size < 1:
        yield RatioError(None, "window_size", config.window_size, "W >= 1")
    if config.swa_block_size < config.window_size:
        rule = f"B >= W = {config.window_size}"
        yield RatioError(None, "swa_block_size", config.swa_block_size, rule)
    if config.cp_size < 1:
        yield RatioError(None, "cp_size", config.cp_size, "p >= 1")
    if not 0 <= config.cp_rank < config.cp_size:
        yield RatioError(None, "cp_rank", config.cp_rank, f"0 <= rank < p = {config.cp_size}")


def length_violations(
    path: Path, config: MetadataConfig, sequences: Sequence[SequenceMetadata]
) -> Iterator[PreconditionError]:
    """P-LEN: 0 <= seqlen_q <= seqlen_k <= max_model_len; at least one sequence; and the path's rule on token_ids."""
    if not sequences:
        yield LengthError(None, "sequences", 0, "at least one sequence")
    for index, sequence in enumerate(sequences):
        if sequence.seqlen_q < 0:
            yield LengthError(index, "seqlen_q", sequence.seqlen_q, "seqlen_q >= 0")
        if sequence.seqlen_q > sequence.seqlen_k:
            yield LengthError(index, "seqlen_q", sequence.seqlen_q, f"seqlen_q <= seqlen_k = {sequence.seqlen_k}")
        if sequence.seqlen_k > config.max_model_len:
            rule = f"seqlen_k <= max_model_len = {config.max_model_len}"
            yield LengthError(index, "seqlen_k", sequence.seqlen_k, rule)
        if path == "prompt":
            yield from prompt_length_violations(index, sequence)
        else:
            yield from decode_length_violations(index, sequence)


def prompt_length_violations(index: int, sequence: SequenceMetadata) -> Iterator[PreconditionError]:
    """P-LEN, prompt: len(token_ids) >= seqlen_k."""
    known = len(sequence.token_ids)
    if known < sequence.seqlen_k:
        rule = f"len(token_ids) >= seqlen_k = {sequence.seqlen_k}"
        yield LengthError(index, "token_ids", known, rule, f"has {known} tokens")


def decode_length_violations(index: int, sequence: SequenceMetadata) -> Iterator[PreconditionError]:
    """P-LEN, decode: seqlen_q = 1 + len(draft_tokens) and seqlen_k = len(token_ids) - 1 + seqlen_q."""
    queries = 1 + len(sequence.draft_tokens)
    if sequence.seqlen_q != queries:
        yield LengthError(index, "seqlen_q", sequence.seqlen_q, f"seqlen_q = 1 + len(draft_tokens) = {queries}")
    keys = len(sequence.token_ids) - 1 + sequence.seqlen_q
    if sequence.seqlen_k != keys:
        yield LengthError(index, "seqlen_k", sequence.seqlen_k, f"seqlen_k = len(token_ids) - 1 + seqlen_q = {keys}")


def table_violations(config: MetadataConfig, sequences: Sequence[SequenceMetadata]) -> Iterator[PreconditionError]:
    """P-TABLE: block_table covers the blocks that F-BLOCKS counts; all entries given are >= 0 (I-10).

    Needs a configuration that keeps P-RATIO for the count.
    """
    ratios_hold = not list(ratio_violations(config))
    for index, sequence in enumerate(sequences):
        table = sequence.block_table
        if ratios_hold:
            needed = block_count(Token(sequence.seqlen_k), config.block, config.ca_ratios[0])
            if len(table) < needed:
                rule = f"covers cdiv(seqlen_k // m, block_size // m) = {needed} blocks"
                yield TableError(index, "block_table", len(table), rule, f"has {len(table)} blocks")
        if len(table) > 0 and min(table) < 0:
            yield TableError(index, "block_table", min(table), "entries >= 0", f"has the entry {min(table)}")


def state_violations(sequences: Sequence[SequenceMetadata]) -> Iterator[PreconditionError]:
    """P-STATE: state_id >= 0; swa_valid_start >= 0; data_len >= 0."""
    for index, sequence in enumerate(sequences):
        for field in ("state_id", "swa_valid_start", "data_len"):
            value = getattr(sequence, field)
            if value < 0:
                yield StateError(index, field, value, f"{field} >= 0")


def ngram_violations(config: MetadataConfig, sequences: Sequence[SequenceMetadata]) -> Iterator[PreconditionError]:
    """P-NGRAM: len(compressed_tokens) + len(recent_tokens) >= seqlen_k, and recent tokens index lookup_table.

    I-13: only when max_ngram_size > 0; then all recent tokens given, read by this step or not.
    """
    if config.max_ngram_size <= 0:
        return
    table_size = len(config.lookup_table)
    for index, sequence in enumerate(sequences):
        recent = sequence.recent_tokens
        known = len(sequence.compressed_tokens) + len(recent)
        if known < sequence.seqlen_k:
            rule = f"len(compressed_tokens) + len(recent_tokens) >= seqlen_k = {sequence.seqlen_k}"
            yield NgramError(index, "recent_tokens", known, rule, f"and compressed_tokens have {known} tokens")
        if len(recent) > 0:
            wrong = min(recent) if min(recent) < 0 else max(recent)
            if not 0 <= wrong < table_size:
                rule = f"0 <= recent token < len(lookup_table) = {table_size}"
                yield NgramError(index, "recent_tokens", wrong, rule, f"has the entry {wrong}")


def outside_int32(values: Sequence[int]) -> int | None:
    """A value of an array that does not fit in int32, None if all fit; ``array('i')`` fits by its type.

    >>> outside_int32([0, 2**31 - 1, -2**31]), outside_int32([0, 2**31]), outside_int32([-2**31 - 1])
    (None, 2147483648, -2147483649)
    """
    if len(values) == 0 or (isinstance(values, array) and values.typecode == "i" and values.itemsize == 4):
        return None
    try:
        array("i", values)
    except OverflowError:
        highest = max(values)
        return highest if highest > INT32_MAX else min(values)
    return None


def input_range_violations(
    config: MetadataConfig, sequences: Sequence[SequenceMetadata]
) -> Iterator[PreconditionError]:
    """P-INT32 on what comes in (I-10): every array, lookup_table, pad_token and image_sentinel holds int32 values."""
    sentinel = () if config.image_sentinel is None else (config.image_sentinel,)
    tokens = {"lookup_table": config.lookup_table, "pad_token": (config.pad_token,), "image_sentinel": sentinel}
    for field, values in tokens.items():
        wrong = outside_int32(values)
        if wrong is not None:
            yield Int32Error(None, field, wrong, "fits in int32")
    for index, sequence in enumerate(sequences):
        for field in SEQUENCE_ARRAYS:
            wrong = outside_int32(getattr(sequence, field))
            if wrong is not None:
                yield Int32Error(index, field, wrong, "fits in int32", f"has the entry {wrong}")


def out_violations(
    config: MetadataConfig, sequences: Sequence[SequenceMetadata], max_num_blocks: int | None
) -> Iterator[PreconditionError]:
    """P-OUT, the part a batch can show (I-27): a caller's block_tables is at least as wide as I-4 says.

    The rest is about buffers. Whoever has them asks it of each call (I-49, :meth:`Field.written_by`).
    """
    counts = [block_count(Token(s.seqlen_k), config.block, config.ca_ratios[0]) for s in sequences]
    needed = table_width(counts, None)
    if max_num_blocks is not None and max_num_blocks < needed:
        rule = f"at least max(1, the largest num_blocks) = {needed} columns"
        yield OutError(None, "block_tables", max_num_blocks, rule, f"has {max_num_blocks} columns")


def violations(
    path: Path,
    config: MetadataConfig,
    sequences: Sequence[SequenceMetadata],
    max_num_blocks: int | None = None,
) -> list[PreconditionError]:
    """Every broken precondition of a batch, in the order P-RATIO, P-LEN, P-TABLE, P-STATE, P-NGRAM, P-INT32, P-OUT.

    Values to be written (F-LIMIT) are looked at only when nothing before is broken: a formula has no meaning outside
    its preconditions. ``max_num_blocks``: columns of a caller's block_tables (decode), None if there are none.
    """
    broken = [
        *ratio_violations(config),
        *length_violations(path, config, sequences),
        *table_violations(config, sequences),
        *state_violations(sequences),
        *ngram_violations(config, sequences),
        *input_range_violations(config, sequences),
    ]
    if broken:
        return broken
    narrow = [] if path == "prompt" else list(out_violations(config, sequences, max_num_blocks))
    usable_width = None if narrow else max_num_blocks
    return [*limit_violations(path, config, sequences, usable_width), *narrow]
