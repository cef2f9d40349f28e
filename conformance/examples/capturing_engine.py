"""A toy engine that captures live batches: ``python -m inputmeta.conformance.examples.capturing_engine``.

It decodes requests of a paged pool until all have ended. Its slots are wrong in one way, which its tokens do not show:
a row whose context fills its last block is stored in the block before. ``Builder`` is the same builder as a subject.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from inputmeta.capture import Capture
from inputmeta.conformance.cases.conditions import Conditions
from inputmeta.conformance.examples.callable_subject import refuse_broken
from inputmeta.conformance.subjects import Capabilities, Request, Result

BLOCK, RING = 4, 8
CONFIG = {
    "block_size": BLOCK,
    "window_size": RING,
    "swa_block_size": RING,
    "max_model_len": 256,
    "dense_ratios": (1,),
}
"""MetadataConfig of this engine."""
FORWARD = 0.005
"""Seconds that a step of the model takes."""


@dataclass
class Running:
    """A request between two steps; its members are named as the specification names them."""

    state_id: int
    seqlen_k: int = 0
    seqlen_q: int = 1
    block_table: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)

    def append(self, token: int, free: list[int]) -> None:
        """One token more, in a block of its own every BLOCK tokens."""
        if self.seqlen_k % BLOCK == 0:
            self.block_table.append(free.pop())
        self.seqlen_k += 1
        self.token_ids.append(token)


def slots(lengths: Sequence[int], tables: Sequence[Sequence[int]], block_size: int) -> list[int]:
    """Where each request's new token is stored: one row a request."""
    found = []
    for length, table in zip(lengths, tables, strict=True):
        position = length - 1
        block = position // block_size
        if length % block_size == 0 and block > 0:  # the fault: the last cell of a block
            block -= 1
        found.append(table[block] * block_size + position % block_size)
    return found


class Builder:
    """The engine's builder as a subject: decode steps of one row a request, at ratio 1."""

    name = "capturing-example"
    version = "1.0"
    capabilities = Capabilities(
        paths=frozenset({"decode"}),
        fields=frozenset({"slot_mapping_store_ca"}),
        conditions=Conditions(
            dense_ratios=frozenset({1}),
            sparse_ratios=frozenset(),
            least_seqlen_q=1,
            most_seqlen_q=1,
            placeholders=False,
            empty_steps=False,
        ),
    )

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        refuse_broken(request)
        lengths = [one.seqlen_k for one in request.sequences]
        found = slots(lengths, [one.block_table for one in request.sequences], request.config.block_size)
        return {"slot_mapping_store_ca.1": np.array(found, dtype=np.int32)}


def serve(requests: int, tokens: int, seed: int) -> None:
    """Run the engine's loop; ``INPUTMETA_CAPTURE=FOLDER`` captures from it."""
    capture = Capture.from_environment(CONFIG)
    chosen = random.Random(seed)
    free = list(range(1, 1 + requests * (tokens // BLOCK + 1)))
    chosen.shuffle(free)
    running = [Running(state_id=place) for place in range(requests)]
    for one in running:
        for _ in range(chosen.randint(0, tokens // 2)):  # what a prompt step has left
            one.append(chosen.randrange(32_000), free)
    lengths = [chosen.randint(tokens // 2 + 1, tokens) for _ in running]
    while running:
        for one in running:
            one.append(chosen.randrange(32_000), free)
        if capture.wants():
            capture.step("decode", running)
        slots([one.seqlen_k for one in running], [one.block_table for one in running], BLOCK)
        time.sleep(FORWARD)
        running = [one for one in running if one.seqlen_k < lengths[one.state_id]]
    counts = capture.close()
    sys.stdout.write(f"captured {counts.written}, dropped {counts.dropped}, failed {counts.failed}\n")


if __name__ == "__main__":
    logging.basicConfig()
    serve(requests=40, tokens=60, seed=1)
