"""F-NCQ, F-CPOS, F-CSLOT, F-CDEC and F-BLOCKS: compressed tokens, their slots and the tables."""

from __future__ import annotations

from collections import Counter

from ..draws import INT32_MAX
from ..int32 import highest_block_slot
from .facts import Row, Step
from .feature import DECODE, PROMPT, Conditions, Feature, hits, holding

FEATURES = (
    Feature("F-CPOS:empty-range", "a chunk that completes none: the one neutral row", ("CMP", "ZERO"), PROMPT),
    Feature("F-CPOS:below-ratio", "seqlen_k below the ratio", ("CMP", "ZERO"), PROMPT),
    Feature("F-CPOS:no-row", "a sequence without rows still has one compressed row", ("ZERO",), PROMPT),
    Feature("F-CPOS:start-on-ratio", "q_start > 0 on a ratio border", ("CMP", "CHUNK"), PROMPT),
    Feature("F-CPOS:start-inside", "a compressed token begun in an earlier chunk", ("CMP", "CHUNK"), PROMPT),
    Feature("F-CPOS:end-on-ratio", "seqlen_k on a ratio border", ("CMP",), PROMPT),
    Feature("F-CPOS:end-before-ratio", "seqlen_k one short of a ratio border", ("CMP",), PROMPT),
    Feature("F-CPOS:end-after-ratio", "seqlen_k one past a ratio border", ("CMP",), PROMPT),
    Feature("F-CPOS:ratios-differ", "the range is empty for one ratio and not for another", ("CMP",), PROMPT),
    Feature("F-CPOS:placeholder", "a placeholder with compressed tokens to drop", ("SENT",), PROMPT),
    Feature("F-CSLOT:block-begin", "a stored slot at offset 0 of a block", ("BT",)),
    Feature("F-CSLOT:block-end", "a stored slot at the last offset of a block", ("BT",)),
    Feature("F-CSLOT:later-block", "a stored slot past the first block", ("BT",)),
    Feature("F-CSLOT:two-blocks", "one step stores into two blocks", ("BT",)),
    Feature("F-CSLOT:last-column", "a stored slot in the last of several table entries", ("BT",)),
    Feature("F-CSLOT:int32-bound", "a slot of exactly 2**31 - 1", ("OVF",)),
    Feature("F-CSLOT:high-id", "a block id whose slots pass 2**30", ("OVF",)),
    Feature("F-CSLOT:wide-block", "a block of more than 2**24 tokens", ("OVF",)),
    Feature("F-CDEC:emits", "a decode row that completes a compressed token", ("CMP",), DECODE),
    Feature("F-CDEC:silent", "a decode row that completes none", ("CMP", "SENT"), DECODE),
    Feature("F-CDEC:both", "rows of one sequence that do and that do not", ("CMP", "SPEC"), DECODE),
    Feature("F-CDEC:draft-emits", "a draft row completes a compressed token", ("CMP", "SPEC"), DECODE),
    Feature("F-CDEC:several", "one sequence completes several of one ratio above 1", ("CMP",), DECODE),
    Feature("F-CDEC:row-after", "the first row follows a ratio border", ("CMP",), DECODE),
    Feature("F-CDEC:placeholder", "a placeholder row on a ratio border: no slot", ("SENT",), DECODE),
    Feature("F-BLOCKS:none", "no full compressed token: no block", ("BT", "ZERO")),
    Feature("F-BLOCKS:exact", "the last block is full", ("BT",)),
    Feature("F-BLOCKS:one-more", "one compressed token in the last block", ("BT",)),
    Feature("F-BLOCKS:one-less", "one compressed token short of a full block", ("BT",)),
    Feature(
        "F-BLOCKS:tail-without-block", "raw tokens past the last block, less than the smallest ratio", ("BT", "CMP")
    ),
    Feature("F-BLOCKS:block-0", "physical block 0 among those in use", ("BT", "ZERO")),
    Feature("F-BLOCKS:longer-table", "a table longer than needed", ("BT",)),
    Feature("F-BLOCKS:shared", "a physical block in two tables: a common prefix", ("BT",)),
    Feature("F-BLOCKS:shared-by-many", "a physical block in three tables or more", ("BT",)),
    Feature("F-BLOCKS:shared-in-part", "tables that part after a common block", ("BT",)),
    Feature("I-4:wider", "block_tables wider than needed", ("BT", "STALE"), DECODE),
    Feature("I-4:ragged", "sequences with different numbers of blocks: undefined cells", ("BT", "STALE"), DECODE),
    Feature("I-4:no-blocks", "no sequence has a block: one undefined column", ("BT", "ZERO"), DECODE),
    Feature("I-4:widest-later", "the widest table is not the first one", ("BT",), DECODE),
)


def of_step(step: Step) -> set[str]:
    """Features of common blocks, and of the width of decode block tables."""
    found = _shared(step)
    if step.is_prompt:
        return found
    blocks = [row.blocks for row in step.rows]
    return found | holding(
        {
            "I-4:wider": step.width > max(1, *blocks),
            "I-4:ragged": len(set(blocks)) > 1,
            "I-4:no-blocks": max(blocks) == 0,
            "I-4:widest-later": max(blocks) > blocks[0],
        }
    )


def _shared(step: Step) -> set[str]:
    """Features of blocks in several tables; cheap where the first block tells that there are none: it is a prefix."""
    heads = Counter(row.sequence.block_table[0] for row in step.rows if row.blocks)
    most = max(heads.values(), default=0)
    if most < 2:
        return set()
    tables = {row.sequence.block_table[: row.blocks] for row in step.rows if row.blocks}
    return holding(
        {
            "F-BLOCKS:shared": True,
            "F-BLOCKS:shared-by-many": most > 2,
            "F-BLOCKS:shared-in-part": len({table[0] for table in tables}) < len(tables),
        }
    )


def of_row(step: Step, row: Row) -> set[str]:
    """Features of one sequence's compressed tokens, all ratios, and of its table."""
    found = holding(_blocks(step, row), _slots(step, row))
    emitting = []
    for ratio in step.ratios:
        emitting.append(row.k // ratio > row.start // ratio)
        found |= holding(_prompt_ratio(row, ratio) if step.is_prompt else _decode_ratio(row, ratio))
        if row.stores:
            found |= holding(_stored(row, ratio, step.config.block_size // ratio))
    if step.is_prompt and any(emitting) and not all(emitting):
        found.add("F-CPOS:ratios-differ")
    return found


def _prompt_ratio(row: Row, ratio: int) -> Conditions:
    first, end = row.start // ratio, row.k // ratio
    if row.q == 0:
        return {"F-CPOS:no-row": True}
    compresses = ratio > 1
    return {
        "F-CPOS:empty-range": end == first,
        "F-CPOS:below-ratio": end == 0,
        "F-CPOS:start-on-ratio": compresses and row.start > 0 and row.start % ratio == 0,
        "F-CPOS:start-inside": row.start % ratio != 0 and end > first,
        "F-CPOS:end-on-ratio": compresses and row.k % ratio == 0,
        "F-CPOS:end-before-ratio": compresses and row.k % ratio == ratio - 1,
        "F-CPOS:end-after-ratio": compresses and row.k % ratio == 1 < row.k,
        "F-CPOS:placeholder": row.sequence.is_placeholder and end > first,
    }


def _decode_ratio(row: Row, ratio: int) -> Conditions:
    completed = row.k // ratio - row.start // ratio
    placeholder = row.sequence.is_placeholder
    return {
        "F-CDEC:emits": completed > 0 and not placeholder,
        "F-CDEC:silent": completed < row.q,
        "F-CDEC:both": 0 < completed < row.q,
        "F-CDEC:draft-emits": ratio > 1 and row.k // ratio > (row.start + 1) // ratio,
        "F-CDEC:several": ratio > 1 and completed > 1,
        "F-CDEC:row-after": ratio > 1 and row.start > 0 and row.start % ratio == 0,
        "F-CDEC:placeholder": completed > 0 and placeholder,
    }


def _stored(row: Row, ratio: int, per_block: int) -> Conditions:
    """Features of the slots of the compressed tokens that the step stores."""
    first, end = row.start // ratio, row.k // ratio
    if first == end:
        return {}
    last_block = (end - 1) // per_block
    return {
        "F-CSLOT:block-begin": per_block > 1 and hits(first, end, per_block, 0),
        "F-CSLOT:block-end": per_block > 1 and hits(first, end, per_block, per_block - 1),
        "F-CSLOT:later-block": last_block > 0,
        "F-CSLOT:two-blocks": first // per_block < last_block,
        "F-CSLOT:last-column": last_block > 0 and last_block == len(row.sequence.block_table) - 1,
    }


def _slots(step: Step, row: Row) -> Conditions:
    """Features of slots near the int32 bound; cheap, for most tables hold low ids."""
    table = row.sequence.block_table[: row.blocks]
    widest = step.config.block_size // step.ratios[0]
    if not table or (max(table) + 1) * widest <= 2**30:
        return {"F-CSLOT:wide-block": step.config.block_size > 2**24}
    high = [block for block, physical in enumerate(table) if (physical + 1) * widest > 2**30]
    slots = [highest_block_slot(step.path, step.config, row.sequence, block) or 0 for block in high]
    return {
        "F-CSLOT:int32-bound": INT32_MAX in slots,
        "F-CSLOT:high-id": max(slots) > 2**30,
        "F-CSLOT:wide-block": step.config.block_size > 2**24,
    }


def _blocks(step: Step, row: Row) -> Conditions:
    config = step.config
    smallest = step.ratios[0]
    per_block = config.block_size // smallest
    compressed = row.k // smallest
    in_last = compressed % per_block
    return {
        "F-BLOCKS:none": compressed == 0,
        "F-BLOCKS:exact": compressed > 0 and in_last == 0,
        "F-BLOCKS:one-more": per_block > 1 and compressed > 1 and in_last == 1,
        "F-BLOCKS:one-less": per_block > 1 and in_last == per_block - 1,
        "F-BLOCKS:tail-without-block": row.k > row.blocks * config.block_size,
        "F-BLOCKS:block-0": 0 in row.sequence.block_table[: row.blocks],
        "F-BLOCKS:longer-table": len(row.sequence.block_table) > row.blocks,
    }
