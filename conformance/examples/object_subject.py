"""An object with claims as a subject: ``--subject inputmeta.conformance.examples.object_subject:BoundarySubject``.

It fills the caller's buffers, rows past the batch included, and says how large a batch may be.
"""

from __future__ import annotations

import numpy as np

from inputmeta.conformance.examples.callable_subject import refuse_broken
from inputmeta.conformance.subjects import Capabilities, Rejection, Request, Result

NEUTRAL = {"positions": 0, "query_indices": 998244353, "valid_token_mask": 0}
"""What the rows past ``total_q`` hold, of each query-aligned field."""


class BoundarySubject:
    """Positions, sequence indices and masks of eager decode steps, in place."""

    name = "boundary-example"
    version = "1.0"
    capabilities = Capabilities(
        paths=frozenset({"decode"}),
        fields=frozenset({"total_q", "cu_seqlens_k", *NEUTRAL}),
        in_place=True,
        neutral_tails=True,
        read_only=True,
        max_num_reqs=1024,
    )

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        refuse_broken(request)
        queries = np.array([sequence.seqlen_q for sequence in request.sequences])
        keys = np.array([sequence.seqlen_k for sequence in request.sequences])
        valid = np.array([not sequence.is_placeholder for sequence in request.sequences])
        rows = np.repeat(np.arange(len(queries)), queries)
        first_rows = np.cumsum(queries) - queries
        positions = (keys - queries)[rows] + np.arange(len(rows)) - first_rows[rows]
        fields = {
            "cu_seqlens_k": np.concatenate([[0], np.cumsum(keys)]),
            "positions": positions,
            "query_indices": np.where(valid[rows], rows, NEUTRAL["query_indices"]),
            "valid_token_mask": valid[rows],
        }
        return {"total_q": len(rows), **stored(fields, request.out)}


def stored(fields: dict[str, np.ndarray], out: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """The fields in the caller's buffers, or in new arrays of their dtypes; P-OUT before anything is written."""
    if out is None:
        return {key: value.astype(np.bool_ if value.dtype == np.bool_ else np.int32) for key, value in fields.items()}
    for key, value in fields.items():
        rows = out[key].shape[0] if key in out else -1
        if rows >= 0 and (out[key].dtype == np.bool_) != (value.dtype == np.bool_):
            raise Rejection("P-OUT", None, key, f"P-OUT: {key} is of {out[key].dtype}")
        if rows != len(value) and (key not in NEUTRAL or rows < len(value)):
            raise Rejection("P-OUT", None, key, f"P-OUT: {key} is missing or has not {len(value)} rows")
        if not out[key].flags.writeable:
            raise Rejection("P-OUT", None, key, f"P-OUT: {key} is read-only")
    for key, value in fields.items():
        out[key][: len(value)] = value
        out[key][len(value) :] = NEUTRAL.get(key, 0)
    return {key: out[key] for key in fields}
