"""Template of an adapter: copy it, and edit what is marked EDIT.

As it stands it conforms: ``my_engine`` below stands for an engine with a dialect of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inputmeta.conformance.subjects import Capabilities, Rejection, Request, Result

NO_SEQUENCE = 998244353


# EDIT: delete this part, and import your engine instead. Its dialect: -1 for rows of a dummy request, 64-bit cells.
@dataclass
class EngineBatch:
    """What the engine's scheduler hands to its metadata builder."""

    query_lengths: list[int]
    context_lengths: list[int]
    dummy: list[bool]


class EngineError(Exception):
    """What the engine raises for a batch that it does not take."""


def my_engine(batch: EngineBatch) -> dict[str, np.ndarray]:
    """The engine's metadata builder."""
    if not batch.query_lengths:
        raise EngineError("an empty batch")
    lengths = np.array(batch.query_lengths)
    request_ids = np.where(batch.dummy, -1, np.arange(len(lengths)))
    return {
        "query_start_loc": np.concatenate([[0], np.cumsum(lengths)]),
        "req_ids": np.repeat(request_ids, lengths),
        "seq_lens": np.array(batch.context_lengths),
    }


class MyEngineSubject:
    """The engine as a subject."""

    name = "my-engine"
    version = "1.0"  # EDIT: your engine's version or commit
    capabilities = Capabilities(
        paths=frozenset({"decode"}),  # EDIT: of "prompt", "decode", "decode_zos"
        fields=frozenset({"num_reqs", "cu_seqlens_q", "query_indices"}),  # EDIT: names as in `inputmeta fields`
    )

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        self.refuse(request)
        # EDIT: from the specification's names to your engine's.
        batch = EngineBatch(
            query_lengths=[sequence.seqlen_q for sequence in request.sequences],
            context_lengths=[sequence.seqlen_k for sequence in request.sequences],
            dummy=[sequence.is_placeholder for sequence in request.sequences],
        )
        try:
            built = my_engine(batch)
        except EngineError as error:
            # EDIT: the condition (SPEC.md chapter 1), the sequence and the input that your engine's error speaks of.
            raise Rejection("P-LEN", None, "sequences", str(error)) from error
        # EDIT: from your engine's dialect to the specification's form. Ratios go into the key: f"klen.{ratio}".
        # Device tensors: .cpu().numpy(). Do not repair what is wrong: that is what is tested.
        indices = built["req_ids"]
        return {
            "num_reqs": len(request.sequences),
            "cu_seqlens_q": built["query_start_loc"].astype(np.int32),
            "query_indices": np.where(indices == -1, NO_SEQUENCE, indices).astype(np.int32),
        }

    def refuse(self, request: Request) -> None:
        """EDIT: delete this if your engine refuses broken batches itself; until then the suite's own check does."""
        for error in request.violations():
            raise Rejection(error.condition, error.sequence, error.field, str(error))
