"""Configuration, positions, ids, masks and cumulative lengths."""

from __future__ import annotations

from ..draws import INT32_MAX, INT32_MIN
from ..scales import REAL_BLOCK
from .facts import Row, Step
from .feature import ANY_PATH, DECODE, MANY, MASK_OR_COMPACT, PROMPT, REAL, SMALL, ZOS, Conditions, Feature, holding

FEATURES = (
    Feature("CONFIG:dense-only", "dense ratios, no sparse one"),
    Feature("CONFIG:sparse-only", "sparse ratios, no dense one"),
    Feature("CONFIG:both-kinds", "dense and sparse ratios, none shared"),
    Feature("CONFIG:shared-ratio", "a ratio is both dense and sparse"),
    Feature("CONFIG:ratio-twice", "a list names a ratio twice"),
    Feature("CONFIG:unsorted-ratios", "a list is not ascending"),
    Feature("CONFIG:three-ratios", "three or more different ratios"),
    Feature("CONFIG:no-ratio-1", "the smallest ratio is above 1", ("CMP", "BT")),
    Feature("CONFIG:ratio-is-block", "one compressed token a block", ("CMP", "BT")),
    Feature("CONFIG:odd-block", "a block size that is no power of two", ("BT",)),
    Feature("CONFIG:real", "block and window of 128 tokens", ("WIN",), tiers=REAL),
    Feature("CONFIG:window-1", "W = 1: a row sees itself only", ("WIN",), tiers=SMALL),
    Feature("CONFIG:ring-is-window", "B = W: no room for drafts", ("RING",)),
    Feature("CONFIG:ring-beside-window", "B is no multiple of W", ("RING",)),
    Feature("CONFIG:window-past-longest", "W above max_model_len", ("WIN",)),
    Feature("CONFIG:cp-in-decode", "decode with cp_size > 1, which it ignores (I-15)", ("CP",), DECODE, min_cp_size=2),
    Feature(
        "CONFIG:yoco-in-decode",
        "decode with a truncation mode, which it ignores",
        (),
        DECODE,
        yoco_modes=MASK_OR_COMPACT,
    ),
    Feature("CONFIG:load-balance", "gate_force_random is true"),
    Feature("F-POS:from-0", "a row at position 0"),
    Feature("F-POS:prefix", "a chunk that does not begin at 0", ("CHUNK",), PROMPT),
    Feature("F-POS:one-row", "one query row", ("ZERO",)),
    Feature("F-POS:no-row", "a sequence without query rows but with keys", ("ZERO",), PROMPT),
    Feature("F-POS:nothing", "a sequence without rows and keys", ("ZERO",), PROMPT),
    Feature("F-POS:longest", "seqlen_k = max_model_len", ("SPEC",)),
    Feature("F-POS:below-longest", "seqlen_k = max_model_len - 1", ("SPEC",)),
    Feature("F-POS:drafts-to-longest", "drafts end exactly at max_model_len", ("SPEC",), DECODE),
    Feature("F-POS:past-65536", "seqlen_k above 65,536", ("OVF", "CMP"), tiers=REAL),
    Feature("F-IDS:draft", "rows that read draft_tokens", ("SPEC",), DECODE),
    Feature("F-IDS:no-draft", "a decode row without drafts", ("SPEC",), DECODE),
    Feature("F-IDS:mixed-drafts", "sequences with and without drafts in one step", ("SPEC", "AGREE"), DECODE),
    Feature("F-IDS:more-tokens", "raw tokens beyond seqlen_k: chunks to come", ("CHUNK",), PROMPT),
    Feature("F-IDS:int32-edge", "a raw token at either end of int32", ("OVF",)),
    Feature("F-IDS:negative", "a negative raw token", ("SENT",)),
    Feature("I-3:no-rows", "total_q = 0: one neutral row", ("ZERO", "STALE"), PROMPT),
    Feature("F-CU:empty-first", "the first of several sequences has no rows", ("ZERO", "CU"), PROMPT),
    Feature("F-CU:empty-middle", "a middle sequence has no rows", ("ZERO", "CU"), PROMPT),
    Feature("F-CU:empty-last", "the last of several sequences has no rows", ("ZERO", "CU"), PROMPT),
    Feature("F-CU:unequal", "sequences of different seqlen_q", ("CU", "AGREE"), ANY_PATH),
    Feature("F-CU:inclusive", "several sequences under the convention without the 0", ("CU", "AGREE"), ZOS),
    Feature("F-MASK:placeholder-first", "the first of several sequences is a placeholder", ("SENT",)),
    Feature("F-MASK:placeholder-middle", "a middle sequence is a placeholder", ("SENT",)),
    Feature("F-MASK:placeholder-last", "the last of several sequences is a placeholder", ("SENT",)),
    Feature("F-MASK:placeholders-only", "every sequence is a placeholder", ("SENT", "RANK")),
    Feature("F-MASK:placeholder-drafts", "a placeholder with drafts", ("SENT", "SPEC"), DECODE),
    Feature("F-MASK:placeholder-empty", "a placeholder without rows", ("SENT", "ZERO"), PROMPT),
    Feature("F-QIDX:many", "four sequences or more", tiers=SMALL),
    Feature("F-QIDX:past-a-warp", "more than 32 sequences", tiers=MANY),
    Feature("F-POS:past-a-block", "128 query rows or more: past a block of threads", tiers=MANY),
)


def of_step(step: Step) -> set[str]:
    """Features of the configuration and of the batch as a whole."""
    return holding(_config(step), _layout(step), _placeholders(step))


def _config(step: Step) -> Conditions:
    config = step.config
    dense, sparse = config.dense_ratios, config.sparse_ratios
    shared = bool(set(dense) & set(sparse))
    return {
        "CONFIG:dense-only": not sparse,
        "CONFIG:sparse-only": not dense,
        "CONFIG:both-kinds": bool(dense) and bool(sparse) and not shared,
        "CONFIG:shared-ratio": shared,
        "CONFIG:ratio-twice": len(set(dense)) < len(dense) or len(set(sparse)) < len(sparse),
        "CONFIG:unsorted-ratios": any(list(ratios) != sorted(ratios) for ratios in (dense, sparse)),
        "CONFIG:three-ratios": len(step.ratios) > 2,
        "CONFIG:no-ratio-1": step.ratios[0] > 1,
        "CONFIG:ratio-is-block": config.block_size in step.ratios,
        "CONFIG:odd-block": config.block_size & (config.block_size - 1) != 0,
        "CONFIG:real": config.block_size == config.window_size == REAL_BLOCK,
        "CONFIG:window-1": config.window_size == 1,
        "CONFIG:ring-is-window": config.swa_block_size == config.window_size,
        "CONFIG:ring-beside-window": config.swa_block_size % config.window_size != 0,
        "CONFIG:window-past-longest": config.window_size > config.max_model_len,
        "CONFIG:cp-in-decode": not step.is_prompt and config.cp_size > 1,
        "CONFIG:yoco-in-decode": not step.is_prompt and config.yoco_mode != "off",
        "CONFIG:load-balance": config.force_load_balance,
    }


def _layout(step: Step) -> Conditions:
    lengths = [row.q for row in step.rows]
    several = len(lengths) > 1
    return {
        "I-3:no-rows": step.total_q == 0,
        "F-CU:empty-first": several and lengths[0] == 0,
        "F-CU:empty-middle": 0 in lengths[1:-1],
        "F-CU:empty-last": several and lengths[-1] == 0,
        "F-CU:unequal": len(set(lengths)) > 1,
        "F-CU:inclusive": several and step.path == "decode_zos",
        "F-IDS:mixed-drafts": not step.is_prompt and 1 in lengths and max(lengths) > 1,
        "F-QIDX:many": len(lengths) > 3,
        "F-QIDX:past-a-warp": len(lengths) > 32,
        "F-POS:past-a-block": step.total_q >= 128,
    }


def _placeholders(step: Step) -> Conditions:
    flags = [row.sequence.is_placeholder for row in step.rows]
    several = len(flags) > 1
    return {
        "F-MASK:placeholder-first": several and flags[0],
        "F-MASK:placeholder-middle": any(flags[1:-1]),
        "F-MASK:placeholder-last": several and flags[-1],
        "F-MASK:placeholders-only": all(flags),
        "F-MASK:placeholder-drafts": not step.is_prompt
        and any(r.sequence.is_placeholder and r.q > 1 for r in step.rows),
        "F-MASK:placeholder-empty": any(r.sequence.is_placeholder and r.q == 0 for r in step.rows),
    }


def of_row(step: Step, row: Row) -> set[str]:
    """Features of one sequence's lengths and raw tokens."""
    prompt, longest = step.is_prompt, step.config.max_model_len
    tokens = row.sequence.token_ids
    last_read = row.k - 1 if prompt else row.start
    token = tokens[last_read] if row.q > 0 else 0
    return holding(
        {
            "F-POS:from-0": row.q > 0 and row.start == 0,
            "F-POS:prefix": prompt and row.q > 0 and row.start > 0,
            "F-POS:one-row": row.q == 1,
            "F-POS:no-row": row.q == 0 and row.k > 0,
            "F-POS:nothing": row.k == 0,
            "F-POS:longest": row.k == longest,
            "F-POS:below-longest": row.k == longest - 1,
            "F-POS:drafts-to-longest": not prompt and row.q > 1 and row.k == longest,
            "F-POS:past-65536": row.k > 65_536,
            "F-IDS:draft": not prompt and row.q > 1,
            "F-IDS:no-draft": not prompt and row.q == 1,
            "F-IDS:more-tokens": prompt and len(tokens) > row.k,
            "F-IDS:int32-edge": token in (INT32_MAX, INT32_MIN),
            "F-IDS:negative": token < 0,
        }
    )
