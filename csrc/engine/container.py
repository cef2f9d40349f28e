"""`InputMetadataV4`: the fields of one step, as the model and its kernels read them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import torch

from engine import _core
from engine.expansion import EXPANSIONS, expand

Buckets = dict[str, torch.Tensor]
"""One tensor a compression ratio; the key is the ratio in decimal ("4")."""


@dataclass(eq=False)
class InputMetadataV4:
    """One attribute a field; None where the path does not have the field, or an expansion is not made yet.

    Rows of query-aligned fields are the step's query rows, laid end to end in batch order; without any there is one
    neutral row (I-3). Tensors are in host memory. "Position" is a token's absolute position in its sequence.
    """

    # --- Scalars, made by both prepare calls -------------------------------------------------------------------------
    # Sequences of the step. Read by the model runner.
    num_reqs: int = 0
    # Query rows of the step, tokens; a neutral row is not counted. Read by the model runner.
    total_q: int = 0
    # Whether this is a prompt step. Read by every layer that has two kernels.
    is_prompt: bool = False

    # --- Common base (section 2), made by both prepare calls ---------------------------------------------------------
    # [total_q] int32, tokens: position of each row (F-POS). Read by the rotary embedding and Engram.
    positions: torch.Tensor | None = None
    # [total_q] int32, token ids (F-IDS). Read by the embedding.
    input_ids: torch.Tensor | None = None
    # [total_q] bool: route this row at random. Read by the MoE gate.
    gate_force_random: torch.Tensor | None = None
    # [total_q] bool: the row belongs to a request (F-MASK). Read by the sampler and the MoE layers.
    valid_token_mask: torch.Tensor | None = None
    # [total_q] int32, index of the row's sequence, 998244353 for a placeholder's (F-QIDX). Read by index attention.
    query_indices: torch.Tensor | None = None
    # [total_q, max_ngram_size] int32, compressed token ids, looking back from column 0 (F-NGRAM). Read by Engram; None
    # when it is off.
    ngram_token_ids: torch.Tensor | None = None
    # [num_reqs + 1] int32, rows: prefix sums of seqlen_q with the leading 0. Read by variable-length attention.
    cu_seqlens_q: torch.Tensor | None = None
    # [num_reqs + 1] int32, tokens: prefix sums of seqlen_k with the leading 0. Read by variable-length attention.
    cu_seqlens_k: torch.Tensor | None = None

    # --- Compressed KV (section 3), made by both, a tensor for each ratio of ca_ratios -------------------------------
    # Prompt: [num_reqs + 1] int32, compressed rows: prefix sums with the leading 0 (F-NCQ). Read by the compressor.
    cu_compressed_seqlens_q: Buckets | None = None
    # Prompt [compressed rows], decode [total_q] int32, tokens: first position a compressed token stands for (F-CPOS,
    # F-CDEC). Read by the compressor.
    positions_c: Buckets | None = None
    # As positions_c; int32, slot of the compressed cache, -1: store nothing (F-CSLOT). Read by the compressor.
    slot_mapping_store_ca: Buckets | None = None

    # --- Sliding window (section 5) ----------------------------------------------------------------------------------
    # Prompt [num_reqs], decode [total_q] int32: state block of the sequence. Read by the state cache's kernels.
    state_block_idx: torch.Tensor | None = None
    # [total_q] int32, ring slot to store the row in, -1: store nothing (F-RING). Made by both, read by its store.
    slot_mapping_store_swa: torch.Tensor | None = None
    # Prompt: [segments, 4] int32, [block or -1, begin, end, destination], ring slots and buffer rows (F-SWAPLAN). Read
    # by the loader of the window's history.
    load_segments_swa: torch.Tensor | None = None
    # Prompt: buffer rows of the loaded window history, num_reqs * W. Read by the loader.
    total_k_swa: int | None = None
    # Prompt: [total_q, 4] int32, two runs of buffer rows, begin and length each (F-PIVOT). Read by the expansion.
    kv_swa_full_index_pivots: torch.Tensor | None = None
    # Prompt, made by compute_attn_info: [total_q, W] int32, buffer rows, -1 to the right. Read by window attention.
    kv_swa_full_index: torch.Tensor | None = None
    # Decode: [total_q, 2] int32, first ring slot and keys of the window (F-SWADEC). Read by the expansion.
    kv_swa_index_offset_len: torch.Tensor | None = None
    # Decode, made by compute_attn_info: [total_q, W] int32, ring slots, -1 to the right. Read by window attention.
    kv_swa_index: torch.Tensor | None = None

    # --- Key ranges (section 6) --------------------------------------------------------------------------------------
    # Prompt, ca ratios: [segments, 4] int32, [block or -1, begin, end, destination], compressed tokens and rows of the
    # loaded history (F-CAPLAN). Read by the loader of the compressed history.
    load_segments_ca: Buckets | None = None
    # Prompt, ca ratios: rows of the loaded compressed history. Read by the loader.
    total_k_compressed: dict[str, int] | None = None
    # Prompt, sparse ratios: [total_q] int32, first row of the loaded history that the row may see (F-KS). Read by the
    # indexer.
    ks: Buckets | None = None
    # Prompt, sparse ratios: [total_q] int32, end of that range (F-KS). Read by the indexer.
    ke: Buckets | None = None
    # Dense ratios: [total_q, 2] int32, offset and number of compressed keys (F-CAOFF). Made by both, read by the
    # expansion.
    kv_ca_index_offset_len: Buckets | None = None
    # Dense ratios, made by compute_attn_info: [total_q, width] int32, rows of the loaded history (prompt) or slots of
    # the compressed cache (decode), -1 to the right (F-CAOFF). Read by core attention.
    kv_ca_index: Buckets | None = None
    # Dense ratios, made by compute_attn_info: [total_q] int32, compressed keys of the row. Read by core attention.
    kv_ca_index_len: Buckets | None = None
    # Sparse ratios: [total_q] int32, compressed keys the row may see. Made by prepare_decode_v4, in a prompt by
    # compute_attn_info (ke - ks). Read by the top-k selection.
    klen: Buckets | None = None

    # --- Decode (sections 4 and 6), made by prepare_decode_v4 --------------------------------------------------------
    # [total_q, max_num_blocks] int32, physical blocks; right of the sequence's blocks a row is not defined (F-BLOCKS).
    # Read by paged attention.
    block_tables: torch.Tensor | None = None
    # Columns of block_tables (I-4). Read by the launch code of paged attention.
    max_num_blocks: int | None = None
    # [total_q] int32, tokens: pos + 1. Read by paged attention and the stop conditions.
    context_lens: torch.Tensor | None = None

    # --- Context parallel (section 7), prompt ------------------------------------------------------------------------
    # Rows of each rank's mirror. Read by the mirror's gathers.
    cp_mirror_len: int | None = None

    def to_flatten_dict(self) -> dict[str, Any]:
        """All fields that are not None by flat key: one dict level is opened ("klen.4"), an empty dict stays itself."""
        flat: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, dict) and value:
                flat.update((f"{field.name}.{key}", item) for key, item in value.items())
            elif value is not None:
                flat[field.name] = value
        return flat

    @classmethod
    def from_flatten_dict(cls, flat: Mapping[str, Any]) -> Self:
        """The container of a flat dictionary, folded at the first dot; fields that are not in it are None or 0.

        Raises TypeError for a name that is no field.
        """
        attributes: dict[str, Any] = {}
        for key, value in flat.items():
            if "." in key:
                name, _, bucket = key.partition(".")
                attributes.setdefault(name, {})[bucket] = value
            else:
                attributes[key] = value
        return cls(**attributes)

    def compute_attn_info(
        self,
        config: _core.MetadataConfig,
        out: Mapping[str, Any] | None = None,
        *,
        expansions: Collection[str] = EXPANSIONS,
    ) -> None:
        """Makes the expansions of `expansions` that are not there yet, and a prompt's klen; again: changes nothing.

        `config` is the one the step was prepared with. `out` maps flat keys to the tensors to fill, as in the prepare
        calls; all that is made must be there (P-OUT). Without it, an expansion that free memory cannot hold raises
        ExpansionTooLargeError with its size in bytes. Either way nothing is written and no field is set.
        """
        for name, value in expand(self, config, out, expansions).items():
            setattr(self, name, value)
