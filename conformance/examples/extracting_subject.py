"""A subject that shows the first stage of its ZOS steps: ``--subject
inputmeta.conformance.examples.extracting_subject:ExtractingSubject``.

``extract`` gives what the host takes from the sequences before a kernel writes the fields (F-EXTRACT). The suite looks
at the members that there are, by their names in SPEC.md chapter 10.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from inputmeta.conformance.examples.callable_subject import build
from inputmeta.conformance.subjects import Capabilities, Request, Result


class ExtractingSubject:
    """Positions and boundaries of ZOS steps, and what they are made of."""

    name = "extracting-example"
    capabilities = Capabilities(
        paths=frozenset({"decode_zos"}),
        fields=frozenset({"num_reqs", "total_q", "positions", "context_lens", "cu_seqlens_q"}),
    )

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        return build(request)

    def extract(self, request: Request) -> dict[str, np.ndarray]:
        """See :meth:`inputmeta.conformance.check.promises.ContainerSubject.extract`."""
        sequences, config = request.sequences, request.config
        queries = np.array([sequence.seqlen_q for sequence in sequences], dtype=np.int32)
        keys = np.array([sequence.seqlen_k for sequence in sequences], dtype=np.int32)
        ratio = min((*config.dense_ratios, *config.sparse_ratios))
        counts = -(-(keys // ratio) // (config.block_size // ratio))
        tables = [sequence.block_table[:count] for sequence, count in zip(sequences, counts.tolist(), strict=True)]
        tokens = [(sequence.token_ids[-1], *sequence.draft_tokens) for sequence in sequences]
        return {
            "seqlens_q": queries,
            "seqlens_k": keys,
            "cu_seqlens_q": np.cumsum(queries, dtype=np.int32),
            "block_tables": np.array(list(chain.from_iterable(tables)), dtype=np.int32),
            "block_tables_offsets": np.concatenate([[0], np.cumsum(counts)]),
            "state_ids": np.array([sequence.state_id for sequence in sequences], dtype=np.int32),
            "is_placeholder": np.array([sequence.is_placeholder for sequence in sequences]),
            "input_ids": np.array(list(chain.from_iterable(tokens)), dtype=np.int32),
        }
