"""Which features lie outside a subject's conditions: no batch that they leave has one of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from inputmeta.conformance.cases.conditions import Conditions

ONE_ROW = """
    F-POS:drafts-to-longest F-IDS:draft F-IDS:mixed-drafts F-MASK:placeholder-drafts F-NGRAM:draft F-CSLOT:two-blocks
    F-CDEC:both F-CDEC:draft-emits F-CDEC:several F-RING:wrapped F-RING:overwritten F-RING:drafts-wrap
    F-RING:no-draft-room F-RING:exact-draft-room F-PIVOT:valid-start-in-chunk F-SWADEC:draft F-ZIGZAG:no-padding
    F-ZIGZAG:one-over F-ZIGZAG:one-short F-CLIP:inside F-CLIP:last-row F-CLIP:clamped F-VIS:in-chunk F-COMPACT:unequal
    F-COMPACT:placeholder F-CONTRIB:clipped F-CONTRIB:padded F-CONTRIB:inside-block F-GATHER:drafts F-GATHER:unequal
    F-VARLEN:fewer-rows F-VARLEN:rows-move F-VARLEN:fresh-moves F-TAIL:several F-TAIL:after-a-fuller-step
    STEPS:drafts-end"""
FROM_0 = """
    F-POS:prefix F-POS:no-row F-NGRAM:previous-chunk F-NGRAM:border-at-start F-NGRAM:sentinel-before-chunk
    F-NGRAM:sentinel-out-of-reach F-CPOS:start-on-ratio F-CPOS:start-inside F-CDEC:row-after F-BLOCKS:shared
    F-BLOCKS:shared-by-many F-BLOCKS:shared-in-part F-SWAPLAN:short-history F-SWAPLAN:no-padding
    F-SWAPLAN:partial-by-valid-start F-SWAPLAN:full-by-valid-start F-SWAPLAN:split F-SWAPLAN:ends-at-ring-end
    F-SWAPLAN:without-rows F-SWAPLAN:later-sequence F-PIVOT:inside-chunk F-PIVOT:valid-start-unused
    F-PIVOT:valid-start-in-history F-PIVOT:valid-start-at-chunk F-MIRRORKS:prefix F-VIS:in-history F-REMAP:rejected
    F-REMAP:permuted F-REMAP:to-the-start"""
PAST_FIRST_ROW = """
    F-PIVOT:valid-start-in-chunk F-PIVOT:valid-start-at-end F-PIVOT:past-row F-PIVOT:past-chunk
    F-PIVOT:valid-start-wide"""
VALID_STARTS = f"""
    {PAST_FIRST_ROW} F-SWAPLAN:partial-by-valid-start F-SWAPLAN:full-by-valid-start F-PIVOT:valid-start-unused
    F-PIVOT:valid-start-in-history F-PIVOT:valid-start-at-chunk F-VIS:two-cuts"""
PLACEHOLDERS = """
    F-MASK:placeholder-first F-MASK:placeholder-middle F-MASK:placeholder-last F-MASK:placeholders-only
    F-MASK:placeholder-drafts F-MASK:placeholder-empty F-CPOS:placeholder F-CDEC:placeholder F-RING:placeholder
    F-ZIGZAG:placeholder F-COMPACT:placeholder REFUSED:placeholder"""
EMPTY_STEPS = "I-3:no-rows F-ZIGZAG:no-rows STEPS:no-rows-between"
WITHOUT_ROWS = f"""
    {EMPTY_STEPS} F-POS:no-row F-POS:nothing F-CU:empty-first F-CU:empty-middle F-CU:empty-last
    F-MASK:placeholder-empty F-CPOS:no-row F-SWAPLAN:without-rows F-ZIGZAG:empty F-CLIP:no-row"""
BELOW_2P = "F-ZIGZAG:shorter F-ZIGZAG:nothing-for-rank"
DENSE = """
    F-CAOFF:prompt-base F-CAOFF:prompt-after-nothing F-CAOFF:nothing-visible F-CAOFF:second-column F-CAOFF:later-row
    F-CAOFF:full-width F-CAOFF:wide F-CAOFF:narrow F-LIMIT:near F-LIMIT:exact"""
SPARSE = """
    F-KS:after-nothing F-KS:after-some F-KS:nothing-visible F-KS:on-ratio F-KS:before-ratio F-KS:after-ratio
    F-KLEN:nothing-visible F-KLEN:on-ratio F-KLEN:before-ratio F-MIRRORKS:prefix F-MIRRORKS:padding"""
BOTH_KINDS = "CONFIG:both-kinds CONFIG:shared-ratio"
RATIO_1 = """
    CONFIG:unsorted-ratios CONFIG:three-ratios CONFIG:no-ratio-1 F-CPOS:empty-range F-CPOS:below-ratio
    F-CPOS:start-on-ratio F-CPOS:start-inside F-CPOS:end-on-ratio F-CPOS:end-before-ratio F-CPOS:end-after-ratio
    F-CPOS:ratios-differ F-CDEC:silent F-CDEC:both F-CDEC:draft-emits F-CDEC:several F-CDEC:row-after
    F-BLOCKS:tail-without-block I-4:no-blocks F-STACK:several-ratios"""
LARGE_WINDOWS = "F-SWAPLAN:int32-bound F-SWAPLAN:wide F-PIVOT:int32-bound"
LARGE_BLOCKS = "F-CSLOT:wide-block F-LIMIT:near F-LIMIT:exact"


OF_GIVEN_TABLES = """
    F-IDS:int32-edge F-IDS:negative F-MASK:placeholder-first F-MASK:placeholder-middle F-MASK:placeholders-only
    F-MASK:placeholder-drafts F-MASK:placeholder-empty F-CPOS:placeholder F-CSLOT:int32-bound F-CSLOT:high-id
    F-CSLOT:wide-block F-BLOCKS:shared-by-many F-RING:int32-bound
    F-RING:high-state F-LIMIT:near F-LIMIT:exact F-ZIGZAG:placeholder F-COMPACT:placeholder"""
GIVEN_TABLES = frozenset(OF_GIVEN_TABLES.split())
"""Features of tables, states and tokens that are drawn only where these are given, not where a subject allocates."""


class Rule(NamedTuple):
    """Features that no batch within certain conditions has."""

    holds: Callable[[Conditions], bool]
    """Whether conditions are such."""
    without: frozenset[str]
    """Ids of the features."""


def _rule(holds: Callable[[Conditions], bool], without: str) -> Rule:
    return Rule(holds, frozenset(without.split()))


def _ratios(conditions: Conditions) -> frozenset[int] | None:
    """All ratios that may be in a batch; None: any."""
    dense, sparse = conditions.dense_ratios, conditions.sparse_ratios
    return None if dense is None or sparse is None else dense | sparse


def _none_of(values: frozenset[int] | None, wanted: Callable[[int], bool]) -> bool:
    """Whether values are named, and none of them is wanted."""
    return values is not None and not any(map(wanted, values))


RULES = (
    _rule(lambda c: not c.placeholders, PLACEHOLDERS),
    _rule(lambda c: not c.empty_steps, EMPTY_STEPS),
    _rule(lambda c: c.least_seqlen_q > 0, WITHOUT_ROWS),
    _rule(lambda c: c.least_seqlen_q > 1, "F-POS:one-row F-IDS:no-draft F-IDS:mixed-drafts"),
    _rule(lambda c: c.most_seqlen_q is not None and c.most_seqlen_q <= 1, ONE_ROW),
    _rule(lambda c: not c.history, FROM_0),
    _rule(lambda c: c.valid_starts == "visible", PAST_FIRST_ROW),
    _rule(lambda c: c.valid_starts == "zero", VALID_STARTS),
    _rule(lambda c: not c.other_data_len, "F-VIS:wide F-COMPACT:slot-outside"),
    _rule(lambda c: c.least_keep > 0, "F-CLIP:keep-0"),
    _rule(lambda c: c.least_ngram_size > 1, "F-NGRAM:size-1"),
    _rule(lambda c: c.ring_is_window, "CONFIG:ring-beside-window F-RING:exact-draft-room"),
    _rule(lambda c: c.cp_chunks != "any", BELOW_2P),
    _rule(lambda c: c.cp_chunks == "at-least-2p", "F-ZIGZAG:empty F-ZIGZAG:no-rows"),
    _rule(
        lambda c: c.cp_chunks == "multiples-of-2p",
        "F-ZIGZAG:padding F-ZIGZAG:one-over F-ZIGZAG:one-short F-ZIGZAG:second-block-empty F-MIRRORKS:padding",
    ),
    _rule(lambda c: c.dense_ratios == frozenset(), f"{DENSE} {BOTH_KINDS} CONFIG:dense-only F-MIRRORKS:no-sparse"),
    _rule(lambda c: c.sparse_ratios == frozenset(), f"{SPARSE} {BOTH_KINDS} CONFIG:sparse-only"),
    _rule(lambda c: _ratios(c) == frozenset({1}), RATIO_1),
    _rule(lambda c: _none_of(c.dense_ratios, lambda ratio: ratio == 1), "F-LIMIT:exact"),
    _rule(lambda c: c.block_sizes is not None and max(c.block_sizes, default=0) <= 2**20, LARGE_BLOCKS),
    _rule(lambda c: _none_of(c.block_sizes, lambda size: size & (size - 1) != 0), "CONFIG:odd-block"),
    _rule(lambda c: _none_of(c.block_sizes, lambda size: size == 128), "CONFIG:real"),
    _rule(lambda c: _none_of(c.window_sizes, lambda size: size == 128), "CONFIG:real"),
    _rule(lambda c: _none_of(c.window_sizes, lambda size: size == 1), "CONFIG:window-1"),
    _rule(lambda c: c.window_sizes is not None and max(c.window_sizes, default=0) <= 2**20, LARGE_WINDOWS),
    _rule(lambda c: c.largest_block is not None and c.largest_block < 2**20, "F-CSLOT:int32-bound"),
    _rule(lambda c: c.largest_state is not None and c.largest_state < 2**20, "F-RING:int32-bound"),
    _rule(lambda c: c.most_seqlen_k is not None and c.most_seqlen_k <= 65_536, "F-POS:past-65536"),
)


def outside(conditions: Conditions) -> frozenset[str]:
    """Ids of the features that no batch within the conditions has.

    >>> sorted(outside(Conditions(least_keep=1, least_ngram_size=2)))
    ['F-CLIP:keep-0', 'F-NGRAM:size-1']
    """
    return frozenset().union(*(rule.without for rule in RULES if rule.holds(conditions)))
