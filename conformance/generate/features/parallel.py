"""F-ZIGZAG, F-REVERSE, F-MIRRORKS, F-CLIP, F-VIS, F-COMPACT and F-CONTRIB: context parallel and prefill truncation."""

from __future__ import annotations

from functools import partial

from ..draws import INT32_MAX
from .facts import Row, Step
from .feature import COMPACT, MASK_OR_COMPACT, PROMPT, Conditions, Feature, holding

_mirrored = partial(Feature, paths=PROMPT, min_cp_size=2)
_truncated = partial(Feature, paths=PROMPT, yoco_modes=MASK_OR_COMPACT)
_compacted = partial(Feature, paths=PROMPT, yoco_modes=COMPACT)
_contribution = partial(Feature, paths=PROMPT, min_cp_size=2, yoco_modes=COMPACT)

FEATURES = (
    _mirrored("F-ZIGZAG:no-padding", "a chunk that 2p divides", ("CP",)),
    _mirrored("F-ZIGZAG:padding", "a chunk that 2p does not divide", ("CP",)),
    _mirrored("F-ZIGZAG:one-over", "2p divides seqlen_q - 1 > 0", ("CP",)),
    _mirrored("F-ZIGZAG:one-short", "2p divides seqlen_q + 1, above 2p", ("CP",)),
    _mirrored("F-ZIGZAG:shorter", "a chunk of fewer than 2p rows", ("CP", "ZERO")),
    _mirrored("F-ZIGZAG:empty", "a chunk without rows", ("CP", "ZERO")),
    _mirrored("F-ZIGZAG:nothing-for-rank", "this rank gets padding only", ("CP",)),
    _mirrored("F-ZIGZAG:second-block-empty", "this rank's second block is all padding", ("CP",)),
    _mirrored("F-ZIGZAG:first-rank", "rank 0", ("CP",)),
    _mirrored("F-ZIGZAG:last-rank", "rank p - 1", ("CP",)),
    _mirrored("F-ZIGZAG:middle-rank", "a rank in between", ("CP",), min_cp_size=3),
    _mirrored("F-ZIGZAG:odd-group", "p is no power of two", ("CP",), min_cp_size=3),
    _mirrored("F-ZIGZAG:placeholder", "mirrored rows of a placeholder (I-2)", ("CP", "SENT")),
    _mirrored("F-ZIGZAG:no-rows", "a mirror of no rows at all", ("CP", "ZERO")),
    _mirrored("F-REVERSE:unequal", "several sequences of unequal length in the mirror", ("CP",)),
    _mirrored("F-MIRRORKS:prefix", "mirrored key ranges with q_start > 0", ("CP", "CHUNK")),
    _mirrored("F-MIRRORKS:padding", "padding rows 0, 0 of a sparse ratio", ("CP",)),
    _mirrored("F-MIRRORKS:no-sparse", "no sparse ratio", ("CP",)),
    _compacted("F-CLIP:none", "compact keeps the whole chunk", ("CHUNK",)),
    _compacted("F-CLIP:inside", "compact keeps some rows, more than one", ("CHUNK",)),
    _compacted("F-CLIP:last-row", "data_len - k names the last row", ("CHUNK",)),
    _compacted("F-CLIP:clamped", "data_len - k past the chunk: one row stays", ("CHUNK",)),
    _compacted("F-CLIP:no-row", "compact of a sequence without rows", ("ZERO",)),
    Feature(
        "F-CLIP:off",
        "keep_tokens set, the mode off: all is kept",
        (),
        PROMPT,
        yoco_modes=frozenset({"off"}),
        formulas=frozenset({"F-PIVOT"}),
    ),
    _truncated("F-CLIP:keep-0", "keep_tokens = 0", (), formulas=frozenset({"F-CLIP", "F-VIS"})),
    _truncated("F-VIS:all", "data_len <= k: nothing is hidden", ()),
    _truncated("F-VIS:in-history", "the rect begins inside the history window", ("WIN",)),
    _truncated("F-VIS:in-chunk", "the rect begins inside the chunk", ("WIN",)),
    _truncated("F-VIS:past-row", "the rect begins past pos + 1: the row sees nothing", ("WIN",)),
    _truncated("F-VIS:past-chunk", "the rect begins at or past the chunk's end", ("WIN",)),
    _truncated("F-VIS:two-cuts", "rect and swa_valid_start both cut the window", ("WIN",)),
    _truncated("F-VIS:wide", "data_len past int32", ("OVF",)),
    _compacted("F-COMPACT:slot-outside", "a kept row at or past data_len stores nothing", ("SENT",)),
    _compacted("F-COMPACT:slot-inside", "a kept row stores", ()),
    _compacted("F-COMPACT:unequal", "sequences clipped by different lengths", ("CU", "CHUNK")),
    _compacted("F-COMPACT:placeholder", "a placeholder among clipped sequences", ("SENT",)),
    _contribution("F-CONTRIB:whole", "every mirrored row is kept", ("CP",)),
    _contribution("F-CONTRIB:clipped", "some mirrored rows are not kept", ("CP",)),
    _contribution("F-CONTRIB:nothing", "this rank keeps none, another some", ("CP",)),
    _contribution("F-CONTRIB:padded", "this rank keeps fewer than another", ("CP",)),
    _contribution("F-CONTRIB:inside-block", "the clip falls inside a block", ("CP",)),
)


def of_step(step: Step) -> set[str]:
    """Features of the whole batch: the mirror's layout, clips of all sequences, contributions of all ranks."""
    if not step.is_prompt:
        return set()
    found = holding(_mirror(step)) if step.config.cp_size > 1 else set()
    if step.config.yoco_mode == "off" and step.config.yoco_prefill_keep_tokens > 0:
        found.add("F-CLIP:off")
    if step.config.yoco_mode == "compact":
        clips = [clip_of(step, row) for row in step.rows]
        placeholder = any(row.sequence.is_placeholder and row.q > 0 for row in step.rows)
        found |= holding(
            {
                "F-COMPACT:unequal": len({clip for clip, row in zip(clips, step.rows, strict=True) if row.q > 0}) > 1,
                "F-COMPACT:placeholder": placeholder and any(clips),
            }
        )
        if step.config.cp_size > 1:
            found |= holding(_contributions(step, clips))
    return found


def of_row(step: Step, row: Row) -> set[str]:
    """Features of one sequence under context parallelism and truncation."""
    if not step.is_prompt:
        return set()
    found = holding(_zigzag(step, row)) if step.config.cp_size > 1 else set()
    return found | (holding(_truncation(step, row)) if step.config.yoco_mode != "off" else set())


def clip_of(step: Step, row: Row) -> int:
    """F-CLIP of one sequence, rows."""
    edge = row.sequence.data_len - step.config.yoco_prefill_keep_tokens
    return max(0, min(edge - row.start, row.q - 1))


def _mirror(step: Step) -> Conditions:
    size, rank = step.config.cp_size, step.config.cp_rank
    return {
        "F-ZIGZAG:first-rank": rank == 0,
        "F-ZIGZAG:last-rank": rank == size - 1,
        "F-ZIGZAG:middle-rank": 0 < rank < size - 1,
        "F-ZIGZAG:odd-group": size & (size - 1) != 0,
        "F-ZIGZAG:no-rows": step.total_q == 0,
        "F-REVERSE:unequal": len({row.q for row in step.rows}) > 1,
        "F-MIRRORKS:no-sparse": not step.config.sparse_ratios,
    }


def _zigzag(step: Step, row: Row) -> Conditions:
    if row.q == 0:
        return {"F-ZIGZAG:empty": True}
    rank, pieces = step.config.cp_rank, 2 * step.config.cp_size
    length = -(-row.q // pieces)
    second_begin = (pieces - 1 - rank) * length
    padded = row.q % pieces != 0
    sparse = bool(step.config.sparse_ratios)
    return {
        "F-ZIGZAG:no-padding": not padded,
        "F-ZIGZAG:padding": padded,
        "F-ZIGZAG:one-over": row.q > pieces and row.q % pieces == 1,
        "F-ZIGZAG:one-short": row.q > pieces and row.q % pieces == pieces - 1,
        "F-ZIGZAG:shorter": row.q < pieces,
        "F-ZIGZAG:nothing-for-rank": rank * length >= row.q,
        "F-ZIGZAG:second-block-empty": rank * length < row.q <= second_begin,
        "F-ZIGZAG:placeholder": row.sequence.is_placeholder,
        "F-MIRRORKS:prefix": sparse and row.start > 0,
        "F-MIRRORKS:padding": sparse and padded,
    }


def _truncation(step: Step, row: Row) -> Conditions:
    config, sequence = step.config, row.sequence
    edge = sequence.data_len - config.yoco_prefill_keep_tokens
    compact = config.yoco_mode == "compact"
    if row.q == 0:
        return {"F-CLIP:no-row": compact}
    clip = edge - row.start
    begin = row.start + 1 - config.window_size
    first_kept = row.start + clip_of(step, row)
    in_rect = max(first_kept, edge) < min(row.k, sequence.data_len)
    return {
        "F-CLIP:none": compact and clip <= 0,
        "F-CLIP:inside": compact and 0 < clip < row.q - 1,
        "F-CLIP:last-row": compact and 0 < clip == row.q - 1,
        "F-CLIP:clamped": compact and clip >= row.q > 1,
        "F-CLIP:keep-0": config.yoco_prefill_keep_tokens == 0,
        "F-VIS:all": edge <= 0,
        "F-VIS:in-history": max(0, begin) < edge < row.start,
        "F-VIS:in-chunk": row.start < edge < row.k,
        "F-VIS:past-row": edge > row.start + 1,
        "F-VIS:past-chunk": edge >= row.k,
        "F-VIS:two-cuts": min(edge, sequence.swa_valid_start) > max(0, begin),
        "F-VIS:wide": sequence.data_len > INT32_MAX,
        "F-COMPACT:slot-outside": compact and row.stores and sequence.data_len < row.k,
        "F-COMPACT:slot-inside": compact and row.stores and in_rect,
    }


def _contributions(step: Step, clips: list[int]) -> Conditions:
    """F-CONTRIB: rows that each rank keeps."""
    size, rank = step.config.cp_size, step.config.cp_rank
    kept = [0] * size
    inside = False
    for row, clip in zip(step.rows, clips, strict=True):
        length = -(-row.q // (2 * size))
        inside = inside or (length > 1 and clip % length != 0)
        for block in range(2 * size):
            rows = max(0, min(length * (block + 1), row.q) - max(length * block, clip))
            kept[min(block, 2 * size - 1 - block)] += rows
    return {
        "F-CONTRIB:whole": step.total_q > 0 and not any(clips),
        "F-CONTRIB:clipped": any(clips),
        "F-CONTRIB:nothing": kept[rank] == 0 < max(kept),
        "F-CONTRIB:padded": 0 < kept[rank] < max(kept),
        "F-CONTRIB:inside-block": inside,
    }
