"""Histories of requests that a subject gives tables to (SPEC.md chapter 14)."""

from __future__ import annotations

from inputmeta import oracle
from inputmeta.conformance.cases.model import Allocation, Case

from .feature import DECODE, Feature, holding

FEATURES = (
    Feature("A-LIFE:waits", "a request is not in a step, and goes on later", allocates=True),
    Feature("A-LIFE:ends-waiting", "a request ends that was not in the last step", allocates=True),
    Feature("A-LIFE:again", "an id that ended comes again", allocates=True),
    Feature("A-LIFE:again-at-once", "an id ends and comes again in one step", allocates=True),
    Feature("A-LIFE:moved", "a request stands at another place than in its last step", allocates=True),
    Feature("A-LIFE:goes-back", "a request goes on before its last key: drafts rejected", paths=DECODE, allocates=True),
    Feature("A-LIFE:brings-keys", "a request begins with keys before its first row", allocates=True),
    Feature("A-NEED:grows", "a request needs more blocks than in its last step", allocates=True),
    Feature("A-NEED:tight", "the pool has no block and no slot to spare", allocates=True),
    Feature("A-NEED:blocks-again", "more blocks are needed one after another than there are", allocates=True),
    Feature("A-NEED:states-again", "more requests than state slots, one after another", allocates=True),
)


def of_history(case: Case, allocation: Allocation) -> set[str]:
    """Features of a case with an allocation."""
    block_size = case.config.block_size
    need = oracle.most_needed(case.steps, allocation, block_size)
    found = holding(
        {"A-NEED:tight": (need.blocks, need.states) == (allocation.num_blocks, allocation.num_states)},
    )
    blocks: dict[int, int] = {}
    keys: dict[int, int] = {}
    last: dict[int, tuple[int, int]] = {}
    gone: set[int] = set()
    given = lives = 0
    for step, (sequences, plan) in enumerate(zip(case.steps, allocation.steps, strict=True)):
        for request in plan.ended:
            found |= holding({"A-LIFE:ends-waiting": last[request][0] < step - 1})
            gone.add(request)
            del blocks[request], keys[request], last[request]
        for place, (request, sequence) in enumerate(zip(plan.requests, sequences, strict=True)):
            if request == oracle.NO_REQUEST:
                continue
            start, needed = sequence.seqlen_k - sequence.seqlen_q, oracle.blocks_needed(sequence.seqlen_k, block_size)
            new = request not in last
            lives += new
            found |= holding(
                {
                    "A-LIFE:waits": not new and last[request][0] < step - 1,
                    "A-LIFE:again": new and request in gone,
                    "A-LIFE:again-at-once": request in plan.ended,
                    "A-LIFE:moved": not new and last[request][1] != place,
                    "A-LIFE:goes-back": not new and start < keys[request],
                    "A-LIFE:brings-keys": new and start > 0,
                    "A-NEED:grows": not new and needed > blocks[request] > 0,
                }
            )
            given += max(0, needed - blocks.get(request, 0))
            blocks[request] = max(needed, blocks.get(request, 0))
            keys[request] = max(sequence.seqlen_k, keys.get(request, 0))
            last[request] = (step, place)
    return found | holding(
        {"A-NEED:blocks-again": given > allocation.num_blocks, "A-NEED:states-again": lives > allocation.num_states}
    )
