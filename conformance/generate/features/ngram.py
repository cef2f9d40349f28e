"""F-NGRAM: where the look-back of a row crosses a border or an image token."""

from __future__ import annotations

from .facts import Row, Step
from .feature import DECODE, PROMPT, Conditions, Feature, holding

FEATURES = (
    Feature("F-NGRAM:size-1", "the row's own token only"),
    Feature("F-NGRAM:size-past-8", "a look-back of more than eight tokens", ("LOOK",)),
    Feature("F-NGRAM:before-start", "look-back before position 0", ("LOOK",)),
    Feature("F-NGRAM:neighbour", "look-back before position 0 of a later sequence", ("LOOK",)),
    Feature("F-NGRAM:previous-chunk", "look-back from a chunk into the one before", ("LOOK", "CHUNK"), PROMPT),
    Feature("F-NGRAM:draft", "look-back of a draft row over drafts", ("LOOK", "SPEC"), DECODE),
    Feature("F-NGRAM:compressed-only", "all in reach is compressed history"),
    Feature("F-NGRAM:recent-only", "nothing in reach is compressed history"),
    Feature("F-NGRAM:border-crossed", "one row looks back from recent into compressed tokens", ("LOOK",)),
    Feature("F-NGRAM:border-at-start", "L = q_start > 0"),
    Feature("F-NGRAM:border-at-end", "L = seqlen_k > 0"),
    Feature("F-NGRAM:border-past-end", "L > seqlen_k"),
    Feature("F-NGRAM:more-history", "more history than keys"),
    Feature("F-NGRAM:pad-token", "a pad_token other than 0 fills cells"),
    Feature("F-NGRAM:no-sentinel", "n-grams on, image_sentinel not given (I-12)"),
    Feature("F-NGRAM:sentinel-absent", "image_sentinel given, no image token in reach"),
    Feature("F-NGRAM:sentinel-itself", "a row's own token is an image: cut at r = 0"),
    Feature("F-NGRAM:sentinel-behind", "a row is cut at r > 0"),
    Feature("F-NGRAM:sentinel-before-chunk", "an image token before q_start cuts a row", ("LOOK",)),
    Feature("F-NGRAM:sentinel-compressed", "an image token in reach in compressed history"),
    Feature("F-NGRAM:sentinel-recent", "an image token in reach that shows after the look-up only (I-9)"),
    Feature("F-NGRAM:sentinel-out-of-reach", "an image token just before what the first row reaches"),
    Feature("F-NGRAM:sentinel-raw", "a raw token in reach has the sentinel's value, its look-up has not (I-9)"),
)


def of_row(step: Step, row: Row) -> set[str]:
    """Features of one sequence's look-back."""
    size = step.config.max_ngram_size
    if size == 0 or row.q == 0:
        return set()
    return holding(_borders(step, row, size), _sentinels(step, row, size))


def _borders(step: Step, row: Row, size: int) -> Conditions:
    border = len(row.sequence.compressed_tokens)
    history = border + len(row.sequence.recent_tokens)
    before_start = row.start < size - 1
    crossing_rows = range(max(row.start, border), min(row.k, border + size - 1))
    return {
        "F-NGRAM:size-1": size == 1,
        "F-NGRAM:size-past-8": size > 8,
        "F-NGRAM:before-start": before_start,
        "F-NGRAM:neighbour": before_start and row.index > 0,
        "F-NGRAM:previous-chunk": step.is_prompt and row.start > 0 and size > 1,
        "F-NGRAM:draft": not step.is_prompt and row.q > 1 and size > 1,
        "F-NGRAM:compressed-only": row.k <= border,
        "F-NGRAM:recent-only": border <= max(0, row.start - size + 1),
        "F-NGRAM:border-crossed": border > 0 and len(crossing_rows) > 0,
        "F-NGRAM:border-at-start": border == row.start > 0,
        "F-NGRAM:border-at-end": border == row.k,
        "F-NGRAM:border-past-end": border > row.k,
        "F-NGRAM:more-history": history > row.k,
        "F-NGRAM:pad-token": before_start and step.config.pad_token != 0,
    }


def _sentinels(step: Step, row: Row, size: int) -> Conditions:
    sentinel = step.config.image_sentinel
    if sentinel is None:
        return {"F-NGRAM:no-sentinel": True}
    border = len(row.sequence.compressed_tokens)
    recent, lookup = row.sequence.recent_tokens, step.config.lookup_table
    first = max(0, row.start - size + 1)
    raw = recent[max(0, first - border) : max(0, row.k - border)]
    looked_up = tuple(lookup[token] for token in raw)
    reach = row.sequence.compressed_tokens[first : row.k] + looked_up
    images = [first + place for place, value in enumerate(reach) if value == sentinel] if sentinel in reach else []
    behind = [image for image in images if image + 1 < row.k and image + size > max(row.start, image + 1)]
    beyond = row.start - size
    return {
        "F-NGRAM:sentinel-absent": not images,
        "F-NGRAM:sentinel-itself": any(image >= row.start for image in images),
        "F-NGRAM:sentinel-behind": bool(behind),
        "F-NGRAM:sentinel-before-chunk": any(image < row.start for image in images),
        "F-NGRAM:sentinel-compressed": any(image < border for image in images),
        "F-NGRAM:sentinel-recent": any(image >= border for image in images),
        "F-NGRAM:sentinel-out-of-reach": beyond >= 0 and _value(row, lookup, beyond) == sentinel,
        "F-NGRAM:sentinel-raw": any(t == sentinel != value for t, value in zip(raw, looked_up, strict=True)),
    }


def _value(row: Row, lookup: tuple[int, ...], position: int) -> int:
    """The compressed token at a position of the history."""
    compressed = row.sequence.compressed_tokens
    if position < len(compressed):
        return compressed[position]
    return lookup[row.sequence.recent_tokens[position - len(compressed)]]
