"""Compressed rows of a prompt laid out a row a query token."""

from __future__ import annotations

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects.base import (
    Dialect,
    DialectError,
    Fields,
    Invisible,
    Value,
    keys_in,
    ratio_of,
    require_shape,
)
from inputmeta.conformance.dialects.rows import Rows, query_rows

NAME = "token-rows"
BLANKS = {"slot_mapping_store_ca": -1, "positions_c": 0}
"""Field -> what a row holds that completes no compressed token."""
COUNTS = "cu_compressed_seqlens_q"


def compact_rows(q: np.ndarray, k: np.ndarray, ratio: int) -> np.ndarray:
    """F-NCQ: rows of each sequence, ``max(1, k // n - (k - q) // n)``, int64 [n_seq]."""
    rows: np.ndarray = np.maximum(1, k // ratio - (k - q) // ratio)
    return rows


def to_token_rows(key: str, compact: np.ndarray, rows: Rows, blank: int) -> np.ndarray:
    """Compact rows [Σ max(1, …)] -> one a query row [total_q, at least 1].

    A compressed token stands at the query row that completes it, ``(pos + 1) % n == 0``. ``blank``: what all other
    rows hold. The row of a sequence that completes none is left out; if it is not blank it stands at the sequence's
    last query.
    """
    ratio, q, k = ratio_of(key), rows.seqlen_q, rows.seqlen_k
    counts = compact_rows(q, k, ratio)
    require_shape(NAME, key, compact, (int(counts.sum()),), "max(1, seqlen_k // n - q_start // n) rows a sequence")
    found = np.full(len(rows), blank, dtype=compact.dtype)
    ends = np.flatnonzero(rows.queries & ((rows.position + 1) % ratio == 0))
    completing = k // ratio > (k - q) // ratio
    kept = np.repeat(completing, counts)
    found[ends] = compact[kept]
    begins = np.cumsum(counts) - counts
    for index in np.flatnonzero(~completing & (compact[begins] != blank)):
        if not q[index]:
            raise DialectError(f"{NAME}: {key}: sequence {index} has {compact[begins[index]]} and no query row for it")
        found[int(q[: index + 1].sum()) - 1] = compact[begins[index]]
    return found


def to_compact_rows(key: str, tokens: np.ndarray, rows: Rows, blank: int) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of :func:`to_token_rows`, and the rows that each sequence has then.

    A row that completes no compressed token and is not ``blank`` is kept as well: what is stored where nothing should
    be makes a row too many, or takes the place of the blank one.
    """
    ratio, count = ratio_of(key), len(rows.seqlen_q)
    require_shape(NAME, key, tokens, (len(rows),), "a row a query row (I-3: at least one)")
    kept = (rows.queries & ((rows.position + 1) % ratio == 0)) | (tokens != blank)
    sequences = np.where(rows.queries, rows.sequence, count)[kept]  # what belongs to no sequence comes last
    missing = np.setdiff1d(np.arange(count), sequences)
    owners = np.concatenate([sequences, missing])
    values = np.concatenate([tokens[kept], np.full(len(missing), blank, dtype=tokens.dtype)])
    return values[np.argsort(owners, kind="stable")], np.bincount(owners, minlength=count)


def forward(request: Request, fields: Fields) -> dict[str, Value]:
    """See :data:`TOKEN_ROWS`. Its row counts an engine has not: ``cu_compressed_seqlens_q`` is left out."""
    if request.path != "prompt":
        return dict(fields)
    rows = query_rows(request)
    changed: dict[str, Value] = {key: value for key, value in fields.items() if key.partition(".")[0] != COUNTS}
    for key in keys_in(fields, BLANKS):
        compact = np.asarray(fields[key])
        changed[key] = to_token_rows(key, compact, rows, BLANKS[key.partition(".")[0]])
    return changed


def translate(request: Request, fields: Fields) -> dict[str, Value]:
    """See :data:`TOKEN_ROWS`. ``cu_compressed_seqlens_q`` counts the rows of the slots, or else of the positions."""
    if request.path != "prompt":
        return dict(fields)
    rows = query_rows(request)
    changed = dict(fields)
    for key in sorted(keys_in(fields, BLANKS)):  # positions_c before slots
        name, _, ratio = key.partition(".")
        changed[key], counts = to_compact_rows(key, np.asarray(fields[key]), rows, BLANKS[name])
        changed[f"{COUNTS}.{ratio}"] = np.append(0, np.cumsum(counts)).astype(np.int32)
    return changed


TOKEN_ROWS = Dialect(
    name=NAME,
    says="compressed rows of a prompt are one a query token, -1 (position 0) where no compressed token is complete",
    fields=frozenset({*BLANKS, COUNTS}),
    forward=forward,
    translate=translate,
    invisible=(Invisible("", COUNTS, "the engine has no such field: it is counted from the rows"),),
)
