"""Chapter 6, what a row sees as a set, whatever buffer its keys lie in (F-VISIBLE, I-50).

Masks, and windows over buffers of another layout, are held to these sets: a key is named by its sequence and its
absolute position alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .assemble import Batch, batch_of
from .declaration import Bucket, flat_key
from .inputs import GatherInputs, MetadataConfig, Path, SequenceMetadata
from .key_ranges import visible_compressed
from .rows import Query
from .sliding_window import first_visible
from .units import Ratio, Row, SequenceIndex, Token


class VisibleKey(NamedTuple):
    """A key that a row sees: the global query row, the key's sequence in the batch, its absolute position there."""

    row: Row
    sequence: SequenceIndex
    position: Token


@dataclass(frozen=True)
class KeySet:
    """A set of visible keys that a builder may give in place of fields (I-50): ``int64 [pairs, 3]`` by flat key.

    ``fields``: those that say the same in a layout of the specification. ``bucket``: as of a field.
    """

    name: str
    bucket: Bucket | None
    fields: tuple[str, ...]
    meaning: str

    formula = "F-VISIBLE"


KEY_SETS: dict[str, KeySet] = {
    key_set.name: key_set
    for key_set in (
        KeySet("visible_swa", None, ("kv_swa_full_index", "kv_swa_index"), "keys that a row sees in its window"),
        KeySet("visible_ca", "ca", ("kv_ca_index", "ks", "ke", "klen"), "compressed keys that a row sees, by ratio"),
    )
}
"""Every key set by name."""


def key_set_keys(name: str, config: MetadataConfig) -> tuple[str, ...]:
    """The flat keys of a key set: ``visible_swa``, or ``visible_ca.n`` for each ratio, ascending."""
    return (name,) if KEY_SETS[name].bucket is None else tuple(flat_key(name, ratio) for ratio in config.ca_ratios)


def window_positions(pos: Token, window_size: Token, swa_valid_start: Token) -> range:
    """F-VISIBLE, window: positions [lo, pos] with lo of F-PIVOT, without truncation.

    >>> [list(window_positions(Token(9), Token(4), Token(valid))) for valid in (0, 8, 10)]
    [[6, 7, 8, 9], [8, 9], []]
    """
    return range(first_visible(pos, window_size, Token(0), swa_valid_start), pos + 1)


def compressed_positions(pos: Token, ratio: Ratio) -> range:
    """F-VISIBLE, ratio n: c * n of the compressed tokens c < (pos + 1) // n; ratio 1 is causal attention.

    >>> list(compressed_positions(Token(8), Ratio(4))), list(compressed_positions(Token(2), Ratio(1)))
    ([0, 4], [0, 1, 2])
    """
    return range(0, visible_compressed(pos, ratio) * ratio, ratio)


def visible_keys(
    path: Path,
    config: MetadataConfig,
    sequences: Sequence[SequenceMetadata],
    *,
    gather: GatherInputs | None = None,
) -> dict[str, list[VisibleKey]]:
    """F-VISIBLE: every key set of a valid step by its flat key, pairs ascending; on a rank, of its rows (I-50).

    >>> config = MetadataConfig(block_size=4, window_size=2, swa_block_size=2, max_model_len=8, sparse_ratios=(4,))
    >>> found = visible_keys("prompt", config, [SequenceMetadata(seqlen_q=2, seqlen_k=4)])
    >>> [tuple(key) for key in found["visible_swa"]], [tuple(key) for key in found["visible_ca.4"]]
    ([(0, 0, 1), (0, 0, 2), (1, 0, 2), (1, 0, 3)], [(1, 0, 0)])
    """
    batch = batch_of(path, config, sequences, rows=None, expand=frozenset(), gather=gather, max_num_blocks=None)
    found = {"visible_swa": sorted(seen(batch, None))}
    return found | {flat_key("visible_ca", ratio): sorted(seen(batch, ratio)) for ratio in config.ca_ratios}


def seen(batch: Batch, ratio: Ratio | None) -> Iterator[VisibleKey]:
    """The pairs of the window (``ratio`` None), or of a ratio."""
    for query in batch.mirrored.queries:
        if query is not None:
            for pos in positions_of(batch, query, ratio):
                yield VisibleKey(query.row, query.chunk.index, Token(pos))


def positions_of(batch: Batch, query: Query, ratio: Ratio | None) -> range:
    """The positions that one row sees; in decode the ring is trusted, whatever the valid start (F-SWADEC)."""
    if ratio is not None:
        return compressed_positions(query.position, ratio)
    trusted_from = query.chunk.valid_start if batch.path == "prompt" else Token(0)
    return window_positions(query.position, batch.config.window, trusted_from)
