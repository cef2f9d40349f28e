"""Small batches for the tests: helpers that fill what a test does not care about, and a strategy of valid batches."""

from __future__ import annotations

from math import prod

from hypothesis import strategies as st

from inputmeta.oracle import ExpectedField, MetadataConfig, SequenceMetadata


def config(**changes) -> MetadataConfig:
    """Ratios 2 (dense) and 4 (sparse), block 8, W = 4, B = 6, contexts up to 64, unless changed."""
    values = {
        "block_size": 8,
        "dense_ratios": (2,),
        "sparse_ratios": (4,),
        "window_size": 4,
        "swa_block_size": 6,
        "max_model_len": 64,
    }
    return MetadataConfig(**(values | changes))


def prompt(q_start: int, seqlen_q: int, **changes) -> SequenceMetadata:
    """A prompt chunk with distinct tokens, enough distinct blocks, and a history of n-grams."""
    seqlen_k = q_start + seqlen_q
    values = {
        "seqlen_q": seqlen_q,
        "seqlen_k": seqlen_k,
        "block_table": tuple(range(20, 20 + seqlen_k + 1)),
        "token_ids": tuple(range(100, 100 + seqlen_k)),
        "compressed_tokens": tuple(range(300, 300 + seqlen_k)),
        "data_len": seqlen_k,
    }
    return SequenceMetadata(**(values | changes))


def decode(context: int, drafts: int = 0, **changes) -> SequenceMetadata:
    """A decode row at position ``context`` (that many tokens before it) with drafts behind it."""
    values = {
        "seqlen_q": 1 + drafts,
        "seqlen_k": context + 1 + drafts,
        "block_table": tuple(range(20, 20 + context + drafts + 2)),
        "token_ids": tuple(range(100, 101 + context)),
        "draft_tokens": tuple(range(500, 500 + drafts)),
        "compressed_tokens": tuple(range(300, 301 + context + drafts)),
    }
    return SequenceMetadata(**(values | changes))


def cells(fields: dict[str, ExpectedField], key: str) -> list:
    """The cells of a field."""
    return fields[key].cells


def rows_of(field: ExpectedField) -> list[list]:
    """The cells of a field, a list a row."""
    width = prod(field.shape[1:])
    return [field.cells[begin : begin + width] for begin in range(0, len(field.cells), width)]


@st.composite
def configs(draw, **changes) -> MetadataConfig:
    """Scaled-down configurations: few ratios of one block, small windows, a ring with and without room."""
    ratios = (1, 2, 3, 4, 6, 12)
    dense = draw(st.lists(st.sampled_from(ratios), max_size=2))
    sparse = draw(st.lists(st.sampled_from(ratios), min_size=0 if dense else 1, max_size=2))
    window = draw(st.integers(1, 8))
    values = {
        "block_size": draw(st.sampled_from((12, 24))),
        "dense_ratios": tuple(dense),
        "sparse_ratios": tuple(sparse),
        "window_size": window,
        "swa_block_size": window + draw(st.integers(0, 4)),
        "max_model_len": 96,
        "max_ngram_size": draw(st.integers(0, 3)),
        "pad_token": -7,
        "image_sentinel": draw(st.sampled_from((None, 302))),
        "lookup_table": tuple(range(300, 310)),
        "yoco_mode": draw(st.sampled_from(("off", "mask", "compact"))),
        "yoco_prefill_keep_tokens": draw(st.integers(0, 12)),
        "force_load_balance": draw(st.booleans()),
    }
    return MetadataConfig(**(values | changes))


@st.composite
def sequences_of(draw, path: str) -> list[SequenceMetadata]:
    """Up to four valid sequences: lengths around block, ratio and window edges; distinct blocks and states."""
    batch = []
    for index in range(draw(st.integers(1, 4))):
        context = draw(st.sampled_from((0, 1, 2, 3, 5, 7, 8, 11, 12, 13, 23, 24, 25)))
        added = draw(st.integers(0 if path == "prompt" else 1, 14 if path == "prompt" else 4))
        seqlen_k = context + added
        recent = draw(st.integers(0, seqlen_k))
        drafts = tuple(range(500, 500 + added - 1)) if path != "prompt" else ()
        known = seqlen_k if path == "prompt" else context + 1
        batch.append(
            SequenceMetadata(
                seqlen_q=added,
                seqlen_k=seqlen_k,
                block_table=tuple(range(10 * index, 10 * index + 5)),
                state_id=draw(st.integers(0, 3)) * 10 + index,
                is_placeholder=draw(st.booleans()),
                swa_valid_start=draw(
                    st.sampled_from((0, 0, 0, max(0, context - 2), context, context + 1, seqlen_k + 2))
                ),
                token_ids=tuple(range(1000 * index + 1, 1000 * index + 1 + known)),
                draft_tokens=drafts,
                compressed_tokens=tuple(range(300, 300 + seqlen_k - recent)),
                recent_tokens=tuple(position % 10 for position in range(recent)),
                data_len=draw(st.sampled_from((0, context, seqlen_k, seqlen_k + 5, 2 * seqlen_k + 9))),
            )
        )
    return batch
