"""A bare function as a subject: ``--subject inputmeta.conformance.examples.callable_subject:build``.

It builds the lengths and indices of the decode paths with numpy. What it claims is what it answers to the probes; the
prompt path it leaves out by raising NotImplementedError.
"""

from __future__ import annotations

import numpy as np

from inputmeta.conformance.subjects import Rejection, Request, Result


def build(request: Request) -> Result:
    """Positions, contexts and boundaries of a decode step."""
    if request.path == "prompt":
        raise NotImplementedError
    refuse_broken(request)
    queries = np.array([sequence.seqlen_q for sequence in request.sequences], dtype=np.int32)
    keys = np.array([sequence.seqlen_k for sequence in request.sequences], dtype=np.int32)
    ends = np.cumsum(queries, dtype=np.int32)
    offsets = np.arange(ends[-1], dtype=np.int32) - np.repeat(ends - queries, queries)
    positions = np.repeat(keys - queries, queries) + offsets
    eager = request.path == "decode"
    return {
        "num_reqs": len(request.sequences),
        "total_q": int(ends[-1]),
        "is_prompt": False,
        "positions": positions,
        "context_lens": positions + np.int32(1),
        "cu_seqlens_q": np.concatenate([[np.int32(0)], ends]) if eager else ends,
    }


def refuse_broken(request: Request) -> None:
    """Refuse for an engine that checks nothing itself.

    This is the suite's own check, so that nothing is learnt about the engine's. An engine that has one should be asked
    for it: translate its exception into a Rejection.
    """
    for error in request.violations():
        raise Rejection(error.condition, error.sequence, error.field, str(error))
