"""Launches of the engine's kernels. Only there when the engine was built with a CUDA compiler.

`device` is the index of a GPU, `stream` the address of one of its streams. Tensors are contiguous and lie on that GPU,
which the caller has checked; nothing is waited for. RuntimeError, with the kernel's name, when CUDA refuses a launch.
"""

from inputmeta.engine._core import MetadataConfig

_TensorView = tuple[int, tuple[int, ...], str]

class ZosTarget:
    """Buffers of ZOS decode on a GPU, ready for launches."""

    def __init__(
        self,
        config: MetadataConfig,
        device: int,
        columns: int,
        fields: dict[str, tuple[int, int]],
        expansions: dict[str, int],
    ) -> None:
        """`fields`: address, and cells from one bucket to the next (0 without buckets), by name. `expansions`: address
        by flat key, of those that a step may have.
        """
    def run(
        self,
        stream: int,
        inputs: tuple[int, ...],
        sources: tuple[int, ...],
        num_reqs: int,
        total_q: int,
        longest: int,
        table_cells: int,
        has_window: bool,
        has_dense: bool,
    ) -> None:
        """The whole step, in one launch unless it has more ratios than that takes.

        `inputs`: addresses of the arrays of MetadataZOS in their order, 0 for none; `longest`: rows of the longest
        sequence, for speed only. `sources`: addresses of fresh_cu_seqlens_q, remap, prev_sampled_token_ids and
        prev_predict_token_ids, 0 for none, then m and the drafts a sequence; empty where the step has its extracted
        layout and all its tokens. `has_window`, `has_dense`: whether kv_swa_index, and kv_ca_index with its lengths,
        are written too.
        """

def zos_gather(
    device: int,
    stream: int,
    fresh: _TensorView,
    sources: tuple[int, ...],
    lengths: tuple[int, int],
    num_reqs: int,
    max_seqlen_q: int,
    out: _TensorView,
    has_tail: bool,
) -> None:
    """F-GATHER of fresh_input_ids `fresh`; `sources` as in `ZosTarget.run`, `lengths` the addresses of seqlens_q and
    cu_seqlens_q. With `has_tail` rows past the last sum become 0 (F-TAIL).
    """

def zos_varlen(
    device: int, stream: int, arrays: tuple[int, ...], num_reqs: int, previous: int, outputs: tuple[int, int]
) -> None:
    """F-VARLEN. `arrays`: addresses of seqlens_q, seqlens_k, fresh_cu_seqlens_q, remap, prev_seqlens_q and
    prev_num_accepted_tokens, 0 for none; `outputs`: those of seqlens_k and cu_seqlens_q.
    """

def gather_rows(
    device: int, stream: int, source: _TensorView, rows: _TensorView, padding: int, out: _TensorView
) -> None:
    """out[k] = source[rows[k]], all `padding` where rows[k] is no row of the source."""

def expand_pivots(device: int, stream: int, pivots: _TensorView, out: _TensorView) -> None:
    """kv_swa_full_index from its pivots (F-PIVOT)."""

def expand_ring(device: int, stream: int, offset_len: _TensorView, ring: int, out: _TensorView) -> None:
    """kv_swa_index from kv_swa_index_offset_len (F-SWADEC)."""

def expand_offsets(
    device: int, stream: int, offset_len: _TensorView, out: _TensorView, lens: _TensorView | None = None
) -> None:
    """A prompt's kv_ca_index, and kv_ca_index_len, from kv_ca_index_offset_len (F-CAOFF)."""

def expand_blocks(
    device: int,
    stream: int,
    offset_len: _TensorView,
    block_tables: _TensorView,
    tokens_per_block: int,
    out: _TensorView,
    lens: _TensorView | None = None,
) -> None:
    """A decode step's kv_ca_index, and kv_ca_index_len, through the flattened block tables (F-CAOFF)."""
