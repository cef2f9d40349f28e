"""F-RING, F-SWAPLAN, F-PIVOT and F-SWADEC: the sliding window."""

from __future__ import annotations

from ..draws import INT32_MAX
from ..int32 import highest_ring_offset, highest_window_row
from .facts import Row, Step
from .feature import DECODE, PROMPT, SMALL, Conditions, Feature, hits, holding

FEATURES = (
    Feature("F-RING:no-wrap", "a context that the ring holds as a whole"),
    Feature("F-RING:wrapped", "the step's stores pass the ring's end", ("RING",)),
    Feature("F-RING:second-round", "a context of more than two rounds of the ring", ("RING",)),
    Feature("F-RING:overwritten", "seqlen_q > B: early rows store nothing", ("RING",), tiers=SMALL),
    Feature("F-RING:exactly-full", "seqlen_q = B: every row is stored", ("RING",), tiers=SMALL),
    Feature("F-RING:last-slot", "a store into the ring's last slot", ("RING",)),
    Feature("F-RING:int32-bound", "a ring slot of exactly 2**31 - 1", ("OVF",)),
    Feature("F-RING:state-0", "stores into the ring of state 0", ("RING", "ZERO")),
    Feature("F-RING:high-state", "a state id whose ring lies past 2**30", ("OVF",)),
    Feature("F-RING:placeholder", "a placeholder's rows store nothing", ("SENT",)),
    Feature("F-RING:drafts-wrap", "drafts pass the ring's end", ("RING", "SPEC"), DECODE),
    Feature("F-RING:no-draft-room", "B < W + drafts: a draft overwrites a key in use", ("RING", "SPEC"), DECODE),
    Feature("F-RING:exact-draft-room", "B = W + drafts, with drafts", ("RING", "SPEC"), DECODE),
    Feature("F-SWAPLAN:no-history", "q_start = 0: zero-fill only", ("WIN", "ZERO"), PROMPT),
    Feature("F-SWAPLAN:short-history", "0 < q_start < W: the history is padded in front", ("WIN",), PROMPT),
    Feature("F-SWAPLAN:no-padding", "W trusted tokens of history", ("WIN",), PROMPT),
    Feature("F-SWAPLAN:partial-by-valid-start", "swa_valid_start cuts a full history", ("WIN",), PROMPT),
    Feature(
        "F-SWAPLAN:full-by-valid-start", "swa_valid_start leaves nothing of a full history", ("WIN", "ZERO"), PROMPT
    ),
    Feature("F-SWAPLAN:split", "the history passes the ring's end: two segments", ("RING",), PROMPT),
    Feature("F-SWAPLAN:ends-at-ring-end", "the history ends with the ring: one segment, none empty", ("RING",), PROMPT),
    Feature("F-SWAPLAN:without-rows", "a sequence without rows loads its history", ("ZERO",), PROMPT),
    Feature("F-SWAPLAN:later-sequence", "history of a later sequence: dst = i * W", ("CHUNK",), PROMPT),
    Feature("F-SWAPLAN:int32-bound", "n_seq * W of exactly 2**31 - 1", ("OVF",), PROMPT, wide_window=True),
    Feature("F-SWAPLAN:wide", "n_seq * W above 2**30", ("OVF",), PROMPT, wide_window=True),
    Feature("F-PIVOT:int32-bound", "a pivot's last key row is 2**31 - 1", ("OVF",), PROMPT, wide_window=True),
    Feature("F-PIVOT:short-window", "a row with fewer than W keys", ("WIN",), PROMPT),
    Feature("F-PIVOT:exact-window", "the row at position W - 1", ("WIN",), PROMPT),
    Feature("F-PIVOT:full-window", "a row past position W - 1", ("WIN",), PROMPT),
    Feature(
        "F-PIVOT:inside-chunk", "a window without history in a chunk with a prefix", ("WIN", "CHUNK"), PROMPT, SMALL
    ),
    Feature("F-PIVOT:valid-start-unused", "0 < swa_valid_start at or below the window", ("WIN",), PROMPT),
    Feature("F-PIVOT:valid-start-in-history", "swa_valid_start inside the history window", ("WIN",), PROMPT),
    Feature("F-PIVOT:valid-start-at-chunk", "swa_valid_start = q_start > 0", ("WIN", "CHUNK"), PROMPT),
    Feature("F-PIVOT:valid-start-in-chunk", "swa_valid_start inside the chunk", ("WIN",), PROMPT),
    Feature("F-PIVOT:valid-start-at-end", "swa_valid_start = seqlen_k", ("WIN",), PROMPT),
    Feature("F-PIVOT:past-row", "swa_valid_start > pos + 1: the row sees nothing (I-5)", ("WIN", "ZERO"), PROMPT),
    Feature("F-PIVOT:past-chunk", "swa_valid_start > seqlen_k", ("WIN",), PROMPT),
    Feature("F-PIVOT:valid-start-wide", "swa_valid_start past int32", ("OVF",), PROMPT),
    Feature("F-SWADEC:short", "a decode row with fewer than W keys", ("WIN",), DECODE),
    Feature("F-SWADEC:exact", "the decode row at position W - 1", ("WIN",), DECODE),
    Feature("F-SWADEC:full", "a decode row past position W - 1", ("WIN",), DECODE),
    Feature("F-SWADEC:wrapped", "a decode window passes the ring's end", ("RING", "WIN"), DECODE),
    Feature("F-SWADEC:from-slot-0", "a later decode window begins at slot 0", ("RING",), DECODE),
    Feature("F-SWADEC:draft", "a full window of a draft row", ("WIN", "SPEC"), DECODE),
    Feature("F-SWADEC:valid-start-ignored", "swa_valid_start above the window's begin, in decode", (), DECODE),
)


def of_step(step: Step) -> set[str]:
    """Features of the totals of a prompt near the int32 bound."""
    total = len(step.rows) * step.config.window_size
    if not step.is_prompt or total <= 2**30:
        return set()
    highest = highest_window_row(step.config, [row.sequence for row in step.rows])
    return holding(
        {
            "F-SWAPLAN:int32-bound": total == INT32_MAX,
            "F-SWAPLAN:wide": True,
            "F-PIVOT:int32-bound": step.total_q > 0 and highest == INT32_MAX,
        }
    )


def of_row(step: Step, row: Row) -> set[str]:
    """Features of one sequence's window."""
    found = holding(_bound(step, row), _plan(step, row) if step.is_prompt else {})
    if row.q == 0:
        return found
    return found | holding(_ring(step, row), _pivots(step, row) if step.is_prompt else _decode(step, row))


def _bound(step: Step, row: Row) -> Conditions:
    offset = highest_ring_offset(step.path, step.config, row.sequence)
    if offset is None:
        return {}
    slot = row.sequence.state_id * step.config.swa_block_size + offset
    state_0 = row.stores and row.sequence.state_id == 0
    return {"F-RING:int32-bound": slot == INT32_MAX, "F-RING:high-state": slot > 2**30, "F-RING:state-0": state_0}


def _ring(step: Step, row: Row) -> Conditions:
    ring, window = step.config.swa_block_size, step.config.window_size
    first = max(row.start, row.k - ring)
    stored = row.k - first
    decode = not step.is_prompt
    return {
        "F-RING:no-wrap": row.k <= ring,
        "F-RING:wrapped": row.stores and first % ring + stored > ring,
        "F-RING:second-round": row.k > 2 * ring,
        "F-RING:overwritten": row.q > ring,
        "F-RING:exactly-full": row.q == ring,
        "F-RING:last-slot": row.stores and hits(first, row.k, ring, ring - 1),
        "F-RING:placeholder": not row.stores,
        "F-RING:drafts-wrap": decode and row.q > 1 and first % ring + stored > ring,
        "F-RING:no-draft-room": decode and ring < window + row.q - 1,
        "F-RING:exact-draft-room": decode and row.q > 1 and ring == window + row.q - 1,
    }


def _plan(step: Step, row: Row) -> Conditions:
    ring, window = step.config.swa_block_size, step.config.window_size
    begin = row.start - window
    padding = max(0, min(max(row.sequence.swa_valid_start, 0) - begin, window))
    loaded = window - padding
    return {
        "F-SWAPLAN:no-history": row.start == 0,
        "F-SWAPLAN:short-history": 0 < row.start < window,
        "F-SWAPLAN:no-padding": padding == 0,
        "F-SWAPLAN:partial-by-valid-start": begin >= 0 and 0 < padding < window,
        "F-SWAPLAN:full-by-valid-start": begin >= 0 and padding == window,
        "F-SWAPLAN:split": loaded > 0 and (begin + padding) % ring + loaded > ring,
        "F-SWAPLAN:ends-at-ring-end": loaded > 0 and row.start % ring == 0,
        "F-SWAPLAN:without-rows": row.q == 0 and loaded > 0,
        "F-SWAPLAN:later-sequence": row.index > 0 and loaded > 0,
    }


def _pivots(step: Step, row: Row) -> Conditions:
    window, valid = step.config.window_size, row.sequence.swa_valid_start
    begin = row.start - window
    return {
        "F-PIVOT:short-window": row.start + 1 < window,
        "F-PIVOT:exact-window": row.start < window <= row.k,
        "F-PIVOT:full-window": row.k > window,
        "F-PIVOT:inside-chunk": row.start > 0 and row.q >= window,
        "F-PIVOT:valid-start-unused": 0 < valid <= begin,
        "F-PIVOT:valid-start-in-history": max(0, begin) < valid < row.start,
        "F-PIVOT:valid-start-at-chunk": valid == row.start > 0,
        "F-PIVOT:valid-start-in-chunk": row.start < valid < row.k,
        "F-PIVOT:valid-start-at-end": valid == row.k,
        "F-PIVOT:past-row": valid > row.start + 1,
        "F-PIVOT:past-chunk": valid > row.k,
        "F-PIVOT:valid-start-wide": valid > INT32_MAX,
    }


def _decode(step: Step, row: Row) -> Conditions:
    ring, window = step.config.swa_block_size, step.config.window_size
    first_full = max(row.start + 1, window) - window
    begin = max(0, row.start + 1 - window)
    end_of_first = row.start + 1
    last_begin = max(0, row.k - window)
    return {
        "F-SWADEC:short": row.start + 1 < window,
        "F-SWADEC:exact": row.start < window <= row.k,
        "F-SWADEC:full": row.k > window,
        "F-SWADEC:wrapped": begin // ring != (end_of_first - 1) // ring or last_begin // ring != (row.k - 1) // ring,
        "F-SWADEC:from-slot-0": hits(max(first_full, 1), row.k - window + 1, ring, 0),
        "F-SWADEC:draft": row.q > 1 and row.k > window,
        "F-SWADEC:valid-start-ignored": row.sequence.swa_valid_start > begin,
    }
