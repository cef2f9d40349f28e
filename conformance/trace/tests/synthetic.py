"""Small traces and scaled-down constants: a hash block of 16 tokens, blocks of 4, a window of 4."""

from __future__ import annotations

import random
from collections.abc import Iterator

from inputmeta.conformance.trace import TraceOptions, TraceRequest

SMALL = TraceOptions(
    seed=1,
    rows=None,
    chunk_tokens=24,
    max_running=6,
    total_blocks=80,
    drafts=2,
    padding=0.25,
    step_ms=10.0,
    token_ms=0.1,
    block_size=4,
    window_size=4,
    dense_ratios=(1, 4),
    sparse_ratios=(2,),
    max_model_len=200,
    hash_block_tokens=16,
)


def conversations(count: int, seed: int = 0, *, longest: int = 120) -> Iterator[TraceRequest]:
    """``count`` requests in bursts with gaps; most go on from an earlier prompt, so that prefixes are shared.

    Prompts are of 1 to ``longest`` tokens, outputs of 1 to 40.

    """
    chance = random.Random(seed)
    prompts: list[tuple[int, ...]] = [()]
    fresh = 0
    clock = 0
    for _ in range(count):
        clock += chance.choice((0, 0, 0, 20, 3000))
        length = chance.randint(1, longest)
        blocks = -(-length // 16)
        kept = chance.choice(prompts)[:blocks]
        new = tuple(range(fresh, fresh + blocks - len(kept)))
        fresh += len(new)
        hash_ids = kept + new
        prompts.append(hash_ids)
        output = chance.choice((1, 2, 5, 20, 40))
        yield TraceRequest(timestamp=clock, input_length=length, output_length=output, hash_ids=hash_ids)
