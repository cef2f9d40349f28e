"""Token ids of a replay. A trace has lengths and hashes only, so ids are made: the same for the same hash id.

A prompt token is a function of (seed, hash id, offset in the hash block); a generated token of (seed, request,
position). Both are stateless, so neither scheduling nor preemption changes what a request says.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

VOCABULARY = 4096
"""Raw token ids are from 0 to this, exclusive. Small, so that a saved case with its lookup table stays readable."""

COMPRESSED_VOCABULARY = 1024
"""Compressed ids (after ``lookup_table``) are from 0 to this, exclusive."""

_GENERATED = 0x5851_F42D_4C95_7F2D
"""Keeps generated tokens apart from prompt tokens of an equal number."""

Words = npt.NDArray[np.uint64]


def mix(words: Words) -> Words:
    """SplitMix64's finaliser: 64 bits in, 64 well mixed bits out, element by element; wraps on purpose."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return words ^ (words >> np.uint64(31))


def prompt_tokens(hash_ids: Sequence[int], length: int, block: int, seed: int) -> array[int]:
    """``length`` raw tokens of a prompt; hash id k covers tokens [k * block, k * block + block).

    >>> long, short = prompt_tokens((7, 8), 8, 4, seed=0), prompt_tokens((7, 9), 6, 4, seed=0)
    >>> long[:4] == short[:4], long[4:6] == short[4:6]
    (True, False)
    """
    bases = mix(np.array(hash_ids, dtype=np.uint64) + np.uint64(seed))
    offsets = np.arange(block, dtype=np.uint64)
    return _tokens((bases[:, None] + offsets[None, :]).reshape(-1)[:length])


def generated_tokens(request: int, first: int, count: int, seed: int) -> array[int]:
    """Raw tokens that request number ``request`` generates at positions [first, first + count)."""
    base: Words = mix((np.array([request], dtype=np.uint64) + np.uint64(seed)) ^ np.uint64(_GENERATED))
    positions: Words = np.arange(first, first + count).astype(np.uint64)
    return _tokens(base + positions)


def _tokens(words: Words) -> array[int]:
    return _array((mix(words) % np.uint64(VOCABULARY)).astype(np.int32))


def _array(values: npt.NDArray[np.int32]) -> array[int]:
    result = array("i")
    result.frombytes(values.tobytes())
    return result


@cache
def lookup_table() -> tuple[int, ...]:
    """Compressed id of every raw id: many to one, and not monotonic."""
    words = mix(np.arange(VOCABULARY, dtype=np.uint64))
    return tuple(int(word) for word in words % np.uint64(COMPRESSED_VOCABULARY))


@cache
def _lookup_words() -> npt.NDArray[np.int32]:
    return np.array(lookup_table(), dtype=np.int32)


def compress(tokens: array[int]) -> array[int]:
    """The tokens through ``lookup_table``.

    >>> compress(array("i", [3, 0])).tolist() == [lookup_table()[3], lookup_table()[0]]
    True
    """
    if len(tokens) <= 32:
        table = lookup_table()
        return array("i", [table[token] for token in tokens])
    return _array(_lookup_words()[np.frombuffer(tokens, dtype=np.int32)])
