"""The C++ core: what it takes is checked there, what it raises is in `engine.errors`."""

from collections.abc import Sequence
from typing import Any

_TensorView = tuple[int, tuple[int, ...], str]
_Integers = Sequence[int] | Any
"""A list, tuple, array.array, numpy array or host tensor of integers; one that is int32 and contiguous is borrowed."""

class MetadataConfig:
    """What is fixed for an engine (specification, section 1). Immutable. Integers up to 2**62 in size."""

    def __init__(
        self,
        *,
        block_size: int,
        dense_ratios: Sequence[int] = ...,
        sparse_ratios: Sequence[int] = ...,
        window_size: int,
        swa_block_size: int,
        max_model_len: int,
        max_ngram_size: int = 0,
        pad_token: int = 0,
        image_sentinel: int | None = None,
        lookup_table: _Integers = ...,
        cp_size: int = 1,
        cp_rank: int = 0,
        yoco_prefill_keep_tokens: int = 0,
        yoco_mode: str = "off",
        force_load_balance: bool = False,
    ) -> None: ...
    @property
    def block_size(self) -> int: ...
    @property
    def dense_ratios(self) -> list[int]: ...
    @property
    def sparse_ratios(self) -> list[int]: ...
    @property
    def ca_ratios(self) -> list[int]: ...
    @property
    def window_size(self) -> int: ...
    @property
    def swa_block_size(self) -> int: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def max_ngram_size(self) -> int: ...
    @property
    def pad_token(self) -> int: ...
    @property
    def image_sentinel(self) -> int | None: ...
    @property
    def lookup_table(self) -> list[int]: ...
    @property
    def cp_size(self) -> int: ...
    @property
    def cp_rank(self) -> int: ...
    @property
    def yoco_prefill_keep_tokens(self) -> int: ...
    @property
    def yoco_mode(self) -> str: ...
    @property
    def force_load_balance(self) -> bool: ...

class SequenceMetadata:
    """One sequence of a step (specification, section 1); kept by a scheduler and updated between steps.

    Contiguous int32 buffers are borrowed: kept, not to be resized meanwhile, and read by each prepare call anew, which
    checks what they hold then. To change one while a call runs gives fields of either state, and breaks nothing else.
    Other arrays are copied. All are given back as new lists; scalars are any integer up to 2**62 in size (else
    OverflowError).
    Changing a sequence while a prepare call reads it is a RuntimeError.
    """

    seqlen_q: int
    seqlen_k: int
    state_id: int
    is_placeholder: bool
    swa_valid_start: int
    data_len: int
    block_table: _Integers
    token_ids: _Integers
    draft_tokens: _Integers
    compressed_tokens: _Integers
    recent_tokens: _Integers

    def __init__(
        self,
        *,
        seqlen_q: int,
        seqlen_k: int,
        block_table: _Integers = ...,
        state_id: int = 0,
        is_placeholder: bool = False,
        swa_valid_start: int = 0,
        token_ids: _Integers = ...,
        draft_tokens: _Integers = ...,
        compressed_tokens: _Integers = ...,
        recent_tokens: _Integers = ...,
        data_len: int = 0,
    ) -> None: ...
    def append_tokens(self, values: _Integers) -> None:
        """Appends to `token_ids`; cost O(added)."""
    def append_blocks(self, values: _Integers) -> None:
        """Appends to `block_table`; cost O(added)."""

class Step:
    """A planned step: every precondition but P-OUT holds, and the sizes are known. Borrows its sequences."""

    def fields(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """(flat key, dtype, shape) of every tensor that `fill` writes."""
    def empty_buckets(self) -> list[str]:
        """Names of the path's bucketed fields that have no ratio."""
    def scalars(self) -> dict[str, Any]:
        """The plain scalars of the path, by field name."""
    def fill(self, tensors: list[_TensorView]) -> None:
        """Writes all fields; tensors in the order of `fields()`. Without the GIL."""

def plan_prompt(sequences: Sequence[SequenceMetadata], config: MetadataConfig) -> Step: ...
def plan_decode(
    sequences: Sequence[SequenceMetadata], config: MetadataConfig, table_columns: int | None = None
) -> Step: ...

class ZosLayout:
    """Where the arrays of a ZOS decode step lie in its pack."""

    @property
    def bytes(self) -> int:
        """Size of the pack, a multiple of 16."""
    @property
    def table_cells(self) -> int:
        """Cells of block_tables."""
    def array(self, name: str) -> tuple[str, tuple[int, ...], int] | None:
        """(dtype, shape, offset in the pack in bytes) of an array; None when the step has none of this name."""
    def addresses(self, base: int) -> tuple[int, ...]:
        """Addresses of the nine arrays, in their order, in a pack at `base`; 0 for one that is not there."""

class ZosStep:
    """A planned ZOS decode step: every precondition of decode but P-OUT holds. Borrows its sequences."""

    def layout(self) -> ZosLayout:
        """Where `fill` writes the arrays."""
    def scalars(self) -> dict[str, int]:
        """num_reqs, total_q, max_seqlen_q and max_num_blocks."""
    def fill(self, pack: _TensorView) -> None:
        """Writes all arrays into an int32 tensor of one dimension. Without the GIL."""

def plan_zos(sequences: Sequence[SequenceMetadata], config: MetadataConfig) -> ZosStep: ...
def zos_outputs(
    config: MetadataConfig, num_reqs: int, total_q: int, columns: int
) -> tuple[list[tuple[str, str, tuple[int, ...]]], list[tuple[str, list[str], tuple[int, ...]]]]:
    """(key, dtype, shape) of the plain fields, (name, buckets, shape of one) of the int32 fields stacked by ratio.

    P-INT32 when `columns` of block_tables break the product bound of F-LIMIT.
    """

def zos_decode(
    config: MetadataConfig, arrays: dict[str, _TensorView], fields: dict[str, _TensorView], total_q: int
) -> None:
    """All fields of a ZOS decode step; `fields` has stacks [n_ratio, q_stride, …] by name.

    `arrays` are those of MetadataZOS that are not None. With fresh_cu_seqlens_q the step may have fewer rows than
    total_q, and rows past its last sum are neutral (F-TAIL); with remap its token ids are gathered (F-GATHER). Without
    rows the fields have one, which becomes the neutral one (I-3).

    ValueError, before anything is written, when the arrays do not agree with each other or with the fields.
    """

def zos_gather(arrays: dict[str, _TensorView], out: _TensorView, max_seqlen_q: int, has_tail: bool) -> None:
    """F-GATHER; without remap every sequence is new. With `has_tail` rows past the last sum become 0 (F-TAIL).

    ValueError, before anything is written, when an index or a length points outside its array.
    """

def zos_varlen(
    config: MetadataConfig,
    arrays: dict[str, _TensorView],
    seqlens_k: _TensorView,
    cu_seqlens_q: _TensorView,
    total_q: int,
) -> None:
    """F-VARLEN, out of seqlens_q, seqlens_k, fresh_cu_seqlens_q and, where there is remap, F-REMAP's arrays. For its
    checks also state_ids, the block tables with their offsets, and the shape of prev_predict_token_ids.

    ValueError, before anything is written, when one breaks I-37.
    """

def dense_index_width(max_model_len: int, ratio: int) -> int:
    """Columns of kv_ca_index (F-CAOFF)."""

def fill_mirror(
    cu_seqlens_q: _TensorView,
    cu_seqlens_k: _TensorView,
    cp_size: int,
    cp_rank: int,
    index: _TensorView,
    reverse_index: _TensorView,
    ranges: list[tuple[int, _TensorView, _TensorView]],
) -> None:
    """F-ZIGZAG, F-REVERSE and, for each (ratio, ks, ke), F-MIRRORKS.

    ValueError, before anything is written, when boundaries and sizes are not those of one plan.
    """

def gather(source: _TensorView, rows: _TensorView, fill: int, out: _TensorView) -> None:
    """out[k] = source[rows[k]], all `fill` where rows[k] is negative. ValueError, before writing, past the source."""

def expand_pivots(pivots: _TensorView, out: _TensorView) -> None:
    """kv_swa_full_index from its pivots (F-PIVOT). ValueError when a row points outside its width."""

def expand_ring(offset_len: _TensorView, ring: int, out: _TensorView) -> None:
    """kv_swa_index from kv_swa_index_offset_len (F-SWADEC)."""

def expand_offsets(offset_len: _TensorView, out: _TensorView) -> None:
    """A prompt's kv_ca_index from kv_ca_index_offset_len (F-CAOFF)."""

def expand_blocks(offset_len: _TensorView, block_tables: _TensorView, tokens_per_block: int, out: _TensorView) -> None:
    """A decode step's kv_ca_index, through the flattened block tables (F-CAOFF)."""
