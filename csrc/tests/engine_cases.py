"""What the engine's tests share: a small configuration, sequences that fit it, and poisoned output tensors."""

import torch

from inputmeta.engine import InputMetadataV4, MetadataConfig, SequenceMetadata

POISON = -77


def config(**changes):
    """Block 8, ratios 1 (dense) and 4 (sparse), W = 4, B = 6, contexts of up to 64 tokens, no look-back."""
    fields = {
        "block_size": 8,
        "dense_ratios": [1],
        "sparse_ratios": [4],
        "window_size": 4,
        "swa_block_size": 6,
        "max_model_len": 64,
    }
    return MetadataConfig(**(fields | changes))


def prompt_sequence(**changes):
    """Rows at 5 … 7 of a sequence of 8 tokens."""
    fields = {"seqlen_q": 3, "seqlen_k": 8, "block_table": [5], "state_id": 2, "token_ids": range(100, 108)}
    return SequenceMetadata(**(fields | changes))


def chunk(seqlen_q, seqlen_k, **changes):
    """The last seqlen_q of seqlen_k prompt tokens 100, 101, …, with the blocks they need, and data_len = seqlen_k."""
    fields = {
        "seqlen_q": seqlen_q,
        "seqlen_k": seqlen_k,
        "block_table": range(seqlen_k // 8 + 1),
        "token_ids": range(100, 100 + seqlen_k),
        "recent_tokens": range(seqlen_k),
        "data_len": seqlen_k,
    }
    return SequenceMetadata(**(fields | changes))


def decode_sequence(**changes):
    """Rows at 7 … 9: a known token and two drafts."""
    fields = {
        "seqlen_q": 3,
        "seqlen_k": 10,
        "block_table": [5, 6],
        "state_id": 2,
        "token_ids": range(100, 108),
        "draft_tokens": [91, 92],
    }
    return SequenceMetadata(**(fields | changes))


def tensors(metadata: InputMetadataV4) -> dict[str, torch.Tensor]:
    return {key: value for key, value in metadata.to_flatten_dict().items() if isinstance(value, torch.Tensor)}


def poisoned(metadata: InputMetadataV4) -> dict[str, torch.Tensor]:
    """Tensors like those of `metadata`, filled with a pattern (flags: true)."""
    return {
        key: torch.full_like(value, True if value.dtype == torch.bool else POISON)
        for key, value in tensors(metadata).items()
    }


def is_untouched(out: dict[str, torch.Tensor]) -> bool:
    return all(bool((value == (True if value.dtype == torch.bool else POISON)).all()) for value in out.values())


def same(left: InputMetadataV4, right: InputMetadataV4) -> bool:
    """Equal scalars and equal cells; only for steps in which every cell is defined."""
    one, other = left.to_flatten_dict(), right.to_flatten_dict()
    if one.keys() != other.keys():
        return False
    return all(
        torch.equal(value, other[key]) if isinstance(value, torch.Tensor) else value == other[key]
        for key, value in one.items()
    )
