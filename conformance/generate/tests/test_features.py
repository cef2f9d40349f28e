"""Features of batches written by hand: the generic inputs of the classes of bug reports."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from inputmeta.conformance.cases.model import Case, Config, Path, Sequence
from inputmeta.conformance.generate import features


@dataclass(frozen=True)
class Example:
    """A batch, and features that it has and has not."""

    case: Case
    has: set[str]
    lacks: set[str]


def prompt(seqlen_q: int, seqlen_k: int, **options: object) -> Sequence:
    """A chunk with a table that is long enough."""
    return Sequence(
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        token_ids=tuple(range(seqlen_k)),
        **{"block_table": tuple(range(9, 9 + seqlen_k)), **options},
    )


def decode(position: int, drafts: int = 0, **options: object) -> Sequence:
    """A decode whose first row stands at ``position``."""
    return Sequence(
        seqlen_q=1 + drafts,
        seqlen_k=position + 1 + drafts,
        token_ids=tuple(range(position + 1)),
        draft_tokens=(7,) * drafts,
        **{"block_table": tuple(range(9, 10 + position + drafts)), **options},
    )


def case(path: Path, *sequences: Sequence, **options: object) -> Case:
    """One step under a plain configuration with some options changed."""
    plain = {"block_size": 16, "dense_ratios": (4,), "window_size": 4, "swa_block_size": 8, "max_model_len": 256}
    return Case(schema="inputmeta-case/1", path=path, config=Config(**{**plain, **options}), steps=(sequences,))


EXAMPLES = {
    "window edge": Example(
        case("prompt", prompt(10, 10)),
        {"F-PIVOT:short-window", "F-PIVOT:exact-window", "F-PIVOT:full-window", "BUG:WIN", "F-RING:overwritten"},
        {"F-PIVOT:inside-chunk", "F-POS:prefix", "F-NGRAM:before-start"},
    ),
    "ring of ten with two drafts": Example(
        case("decode", decode(7, 2), window_size=8, swa_block_size=10),
        {"F-RING:exact-draft-room", "F-SWADEC:exact", "F-SWADEC:draft", "F-RING:last-slot", "BUG:RING"},
        {"F-RING:no-draft-room", "F-RING:drafts-wrap"},
    ),
    "ring of eight with two drafts": Example(
        case("decode", decode(7, 2), window_size=8, swa_block_size=8),
        {"F-RING:no-draft-room", "F-RING:drafts-wrap", "F-SWADEC:wrapped"},
        {"F-RING:exact-draft-room"},
    ),
    "ratio 4 at 5 to 10": Example(
        case("prompt", prompt(6, 11), dense_ratios=(), sparse_ratios=(4,)),
        {"F-CPOS:start-inside", "F-KS:on-ratio", "F-KS:before-ratio", "F-KS:after-ratio", "F-CPOS:end-before-ratio"},
        {"F-KS:nothing-visible", "F-CPOS:empty-range"},
    ),
    "blocks at 16": Example(
        case("decode", decode(15), decode(16), decode(95), decode(99), dense_ratios=(1,)),
        {"F-BLOCKS:exact", "F-BLOCKS:one-more", "I-4:ragged", "I-4:widest-later", "F-CDEC:emits", "BUG:BT"},
        {"F-BLOCKS:none", "I-4:wider"},
    ),
    "zero rows": Example(
        case("prompt", prompt(0, 3), prompt(3, 3), prompt(0, 0)),
        {"F-CU:empty-first", "F-CU:empty-last", "F-POS:no-row", "F-POS:nothing", "BUG:ZERO", "BUG:CU"},
        {"I-3:no-rows", "F-CU:empty-middle"},
    ),
    "seven rows on two ranks": Example(
        case("prompt", prompt(7, 7), cp_size=2),
        {"F-ZIGZAG:padding", "F-ZIGZAG:one-short", "F-ZIGZAG:first-rank", "F-MIRRORKS:no-sparse", "BUG:CP"},
        {"F-ZIGZAG:shorter", "F-ZIGZAG:last-rank", "F-ZIGZAG:second-block-empty"},
    ),
    "one row on four ranks": Example(
        case("prompt", prompt(1, 1), cp_size=4, cp_rank=3),
        {"F-ZIGZAG:shorter", "F-ZIGZAG:nothing-for-rank", "F-ZIGZAG:last-rank"},
        {"F-ZIGZAG:second-block-empty", "F-ZIGZAG:no-padding"},
    ),
    "a prefix in common": Example(
        case("decode", decode(20, block_table=(5, 6)), decode(40, block_table=(5, 7, 8)), dense_ratios=(1,)),
        {"F-BLOCKS:shared", "F-BLOCKS:shared-in-part", "I-4:ragged"},
        {"F-BLOCKS:shared-by-many"},
    ),
    "last slot of int32": Example(
        case("prompt", prompt(256, 256, block_table=(8388607,)), block_size=256, dense_ratios=(1,)),
        {"F-CSLOT:int32-bound", "F-CSLOT:high-id", "BUG:OVF", "F-POS:longest"},
        {"P-INT32:slot"},
    ),
    "first slot past int32": Example(
        case("prompt", prompt(1, 1, block_table=(8388608,)), block_size=256, dense_ratios=(1,)),
        {"P-INT32:slot", "BUG:OVF"},
        {"F-CSLOT:int32-bound", "P-INT32:table-entry", "CONFIG:dense-only"},
    ),
    "look-back of two in two sequences": Example(
        case(
            "prompt",
            prompt(1, 1, compressed_tokens=(5,)),
            prompt(3, 3, compressed_tokens=(4,), recent_tokens=(1, 0)),
            max_ngram_size=2,
            lookup_table=(1, 6),
            image_sentinel=1,
        ),
        {"F-NGRAM:neighbour", "F-NGRAM:border-crossed", "F-NGRAM:sentinel-raw", "F-NGRAM:sentinel-itself", "BUG:LOOK"},
        {"F-NGRAM:sentinel-behind", "F-NGRAM:sentinel-compressed", "F-NGRAM:previous-chunk"},
    ),
    "half of a chunk kept": Example(
        case("prompt", prompt(4, 8, data_len=8), yoco_mode="compact", yoco_prefill_keep_tokens=2, cp_size=2),
        {"F-CLIP:inside", "F-VIS:in-chunk", "F-COMPACT:slot-inside", "F-CONTRIB:clipped"},
        {"F-CLIP:last-row", "F-COMPACT:slot-outside", "F-CONTRIB:padded"},
    ),
    "history of a trusted half": Example(
        case("prompt", prompt(1, 10, swa_valid_start=7)),
        {"F-SWAPLAN:partial-by-valid-start", "F-SWAPLAN:split", "F-PIVOT:valid-start-in-history"},
        {"F-SWAPLAN:no-padding", "F-PIVOT:past-row", "F-SWAPLAN:ends-at-ring-end"},
    ),
    "several broken at once": Example(
        case("decode", decode(3), decode(3, block_table=(), is_placeholder=True), cp_rank=1),
        {"P-RATIO:rank-high"},
        {"P-TABLE:short", "F-POS:one-row"},
    ),
    "a later placeholder without a table": Example(
        case("decode", decode(3), decode(3, block_table=(), is_placeholder=True)),
        {"P-TABLE:empty", "REFUSED:later-sequence", "REFUSED:placeholder"},
        {"F-POS:one-row", "F-MASK:placeholder-last"},
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_features_of_a_batch_written_by_hand(name: str) -> None:
    example = EXAMPLES[name]
    visited = features(example.case)
    assert example.has - visited == set()
    assert example.lacks & visited == set()
