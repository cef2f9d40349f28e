"""F-KS, F-CAOFF, F-CAPLAN, klen and F-LIMIT: ranges of compressed keys."""

from __future__ import annotations

from ..int32 import dense_product
from .facts import Row, Step
from .feature import DECODE, PROMPT, SMALL, Conditions, Feature, hits, holding

COLUMNS = 128
"""kv_ca_index has a multiple of this many columns, at least one (F-CAOFF)."""

FEATURES = (
    Feature("F-CAPLAN:nothing", "no full compressed token: one row of zeros", ("ZERO", "CMP"), PROMPT),
    Feature("F-CAPLAN:partial", "the last block is partly loaded", ("BT",), PROMPT),
    Feature("F-CAPLAN:exact", "the last block is loaded whole", ("BT",), PROMPT),
    Feature("F-CAPLAN:several", "more than one segment", ("BT",), PROMPT),
    Feature("F-CAPLAN:one-in-last", "one compressed token in the last of several segments", ("BT",), PROMPT),
    Feature("F-KS:after-nothing", "a base after a sequence without a full compressed token", ("ZERO", "CHUNK"), PROMPT),
    Feature("F-KS:after-some", "a base after a sequence with some", ("CHUNK",), PROMPT),
    Feature("F-KS:nothing-visible", "a row that sees no compressed token: ks = ke", ("CMP", "ZERO"), PROMPT),
    Feature("F-KS:on-ratio", "a row that completes a compressed token", ("CMP",), PROMPT),
    Feature("F-KS:before-ratio", "a row one before a ratio border", ("CMP",), PROMPT),
    Feature("F-KS:after-ratio", "a row one after a ratio border", ("CMP",), PROMPT),
    Feature("F-CAOFF:prompt-base", "a dense base after another sequence's keys", ("CHUNK",), PROMPT),
    Feature("F-CAOFF:prompt-after-nothing", "a dense base after a sequence that holds one row", ("ZERO",), PROMPT),
    Feature("F-CAOFF:nothing-visible", "a dense row of length 0", ("CMP", "ZERO")),
    Feature("F-CAOFF:second-column", "a decode row that reads past its first block", ("BT",), DECODE),
    Feature("F-CAOFF:later-row", "offsets of rows after the first, several columns wide", ("BT",), DECODE),
    Feature("F-CAOFF:full-width", "keys fill the row to its last column", ("SPEC",)),
    Feature("F-CAOFF:wide", "more than one group of 128 columns", ("BT",)),
    Feature("F-CAOFF:narrow", "max_model_len below the ratio: still 128 columns", ("ZERO",), tiers=SMALL),
    Feature("F-KLEN:nothing-visible", "a sparse decode row that sees nothing", ("CMP", "ZERO"), DECODE),
    Feature("F-KLEN:on-ratio", "a sparse decode row that completes a compressed token", ("CMP",), DECODE),
    Feature("F-KLEN:before-ratio", "a sparse decode row one before a ratio border", ("CMP",), DECODE),
    Feature("F-LIMIT:near", "the product of F-LIMIT above 2**30", ("OVF",), DECODE),
    Feature("F-LIMIT:exact", "the product of F-LIMIT at exactly 2**31 - 1", ("OVF",), DECODE),
)


def of_step(step: Step) -> set[str]:
    """Features of the dense offsets of the batch."""
    if step.is_prompt:
        return set()
    product = dense_product(step.config, step.total_q, step.width)
    return holding(
        {
            "F-LIMIT:near": product > 2**30,
            "F-LIMIT:exact": product == 2**31 - 1,
            "F-CAOFF:later-row": product > 0 and step.total_q > 1 and step.width > 1,
        }
    )


def of_row(step: Step, row: Row) -> set[str]:
    """Features of one sequence's keys: load plan of every ratio, ranges of the sparse and the dense ones."""
    found: set[str] = set()
    previous = step.rows[row.index - 1].k if row.index else None
    if step.is_prompt:
        for ratio in step.ratios:
            found |= holding(_plan(row, ratio, step.config.block_size // ratio))
    if row.q == 0:
        return found
    for ratio in step.config.sparse_ratios:
        found |= holding(_sparse_prompt(row, ratio, previous) if step.is_prompt else _sparse_decode(row, ratio))
    for ratio in step.config.dense_ratios:
        found |= holding(_dense(step, row, ratio, previous))
    return found


def _plan(row: Row, ratio: int, per_block: int) -> Conditions:
    keys = row.k // ratio
    return {
        "F-CAPLAN:nothing": keys == 0,
        "F-CAPLAN:partial": keys % per_block != 0,
        "F-CAPLAN:exact": keys > 0 and keys % per_block == 0,
        "F-CAPLAN:several": keys > per_block,
        "F-CAPLAN:one-in-last": per_block > 1 and keys > per_block and keys % per_block == 1,
    }


def _sparse_prompt(row: Row, ratio: int, previous: int | None) -> Conditions:
    first, end = row.start + 1, row.k + 1
    compresses = ratio > 1
    return {
        "F-KS:after-nothing": previous is not None and previous < ratio,
        "F-KS:after-some": previous is not None and previous >= ratio,
        "F-KS:nothing-visible": first < ratio,
        "F-KS:on-ratio": compresses and hits(first, end, ratio, 0),
        "F-KS:before-ratio": compresses and hits(first, end, ratio, ratio - 1),
        "F-KS:after-ratio": compresses and row.k > ratio and hits(max(first, 2), end, ratio, 1),
    }


def _sparse_decode(row: Row, ratio: int) -> Conditions:
    first, end = row.start + 1, row.k + 1
    return {
        "F-KLEN:nothing-visible": first < ratio,
        "F-KLEN:on-ratio": ratio > 1 and hits(first, end, ratio, 0),
        "F-KLEN:before-ratio": ratio > 1 and hits(first, end, ratio, ratio - 1),
    }


def _dense(step: Step, row: Row, ratio: int, previous: int | None) -> Conditions:
    longest = step.config.max_model_len // ratio
    keys = row.k // ratio
    prompt = step.is_prompt
    return {
        "F-CAOFF:prompt-base": prompt and previous is not None,
        "F-CAOFF:prompt-after-nothing": prompt and previous is not None and previous < ratio,
        "F-CAOFF:nothing-visible": row.start + 1 < ratio,
        "F-CAOFF:second-column": not prompt and keys > step.config.block_size // ratio,
        "F-CAOFF:full-width": keys > 0 and keys == longest and longest % COLUMNS == 0,
        "F-CAOFF:wide": longest > COLUMNS,
        "F-CAOFF:narrow": longest == 0,
    }
