"""torch's load balancers of context parallel attention (F-ZIGZAG, F-REVERSE).

``torch.distributed.tensor.experimental._context_parallel._load_balancer``: one permutation of all rows and its inverse,
int64. A balancer of documents lays them one behind the other, each with the rows of all ranks; the adapter takes each
rank's part of each document (``all-ranks-per-document``). Lengths are multiples of 2p.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import narrowed
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.subjects import Capabilities, Conditions, Result

FIELDS = frozenset({"cp_mirror_len", "mirror_cp_index", "mirror_cp_reverse_index"})
MULTIPLES = Conditions(least_cp_size=2, cp_chunks="multiples-of-2p", empty_steps=False)
MOST_RANKS = 64


class PerDocument(Adapter):
    """``_PerDocumentHeadTailLoadBalancer``: a batch of any number of sequences."""

    subject = "torch-zigzag"
    package = "torch"
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=FIELDS,
        max_cp_size=MOST_RANKS,
        yoco_modes=frozenset({"off", "mask", "compact"}),
        refuses=frozenset(),
        dialects=frozenset({"int64", "all-ranks-per-document"}),
        conditions=MULTIPLES,
    )

    def load(self) -> None:
        """Import torch's module."""
        from torch.distributed.tensor.experimental._context_parallel import _load_balancer  # noqa: PLC0415

        self.module: Any = _load_balancer

    def balancer(self, lengths: list[int], ranks: int) -> Any:  # noqa: ANN401 - an object of torch's
        """The balancer of a batch."""
        return self.module._PerDocumentHeadTailLoadBalancer([lengths], ranks, "cpu")

    def call(self, request: Request) -> Raw:
        """``order`` and ``restore``, int64 [total_q]."""
        balancer = self.balancer([sequence.seqlen_q for sequence in request.sequences], request.config.cp_size)
        return {
            "order": balancer._generate_indices(restore=False)[0].numpy(),
            "restore": balancer._generate_indices(restore=True)[0].numpy(),
        }

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """A rank's part of each document, and where the rows lie once all ranks are laid end to end."""
        lengths = [sequence.seqlen_q for sequence in request.sequences]
        order, restore = np.asarray(raw["order"]), np.asarray(raw["restore"])
        ranks, rank = request.config.cp_size, request.config.cp_rank
        places = places_by_rank(lengths, ranks)
        mirrored = len(order) // ranks
        return {
            "cp_mirror_len": mirrored,
            "mirror_cp_index": narrowed(
                order[np.argsort(places, kind="stable")][rank * mirrored : (rank + 1) * mirrored]
            ),
            "mirror_cp_reverse_index": narrowed(places[restore]),
        }


class HeadTail(PerDocument):
    """``_HeadTailLoadBalancer``: one sequence."""

    subject = "torch-zigzag-headtail"
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=FIELDS,
        max_cp_size=MOST_RANKS,
        yoco_modes=frozenset({"off", "mask", "compact"}),
        max_num_reqs=1,
        refuses=frozenset(),
        dialects=frozenset({"int64"}),
        conditions=MULTIPLES,
    )

    def balancer(self, lengths: list[int], ranks: int) -> Any:  # noqa: ANN401 - as above
        """The balancer of the only sequence."""
        return self.module._HeadTailLoadBalancer(lengths[0], ranks, "cpu")


def places_by_rank(lengths: Sequence[int], ranks: int) -> np.ndarray:
    """Of each row of a layout of documents, within each the ranks: its place with all of a rank together; int64.

    >>> places_by_rank([4, 8], 2).tolist()
    [0, 1, 6, 7, 2, 3, 4, 5, 8, 9, 10, 11]
    """
    owners = [np.repeat(np.arange(ranks), length // ranks) for length in lengths]
    owner = np.concatenate([np.zeros(0, dtype=np.int64), *owners])
    places = np.empty_like(owner)
    places[np.argsort(owner, kind="stable")] = np.arange(len(owner))
    return places
