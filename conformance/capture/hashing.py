"""Tokens of a case replaced by hashes: which are equal stays, what they are does not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cache

import msgspec

from inputmeta.conformance.cases.model import Case, Config, Gather, Sequence

MASK = 2**31 - 1


def hasher(salt: bytes) -> Callable[[int], int]:
    """A keyed hash of a token to 0 … 2^31 - 1. Without the salt, which is written nowhere, none can be tried out."""

    @cache
    def hashed(token: int) -> int:
        digest = hashlib.blake2b(token.to_bytes(9, "little", signed=True), digest_size=8, key=salt).digest()
        return int.from_bytes(digest, "little") & MASK

    return hashed


def without_tokens(case: Case, salt: bytes) -> Case:
    """The case with hashes for its tokens.

    Raw tokens that F-NGRAM looks up become the places of a table that has these tokens alone; ``image_sentinel`` and
    ``pad_token`` are constants of the engine and stay, in the tables and among compressed tokens too.
    """
    config, hashed = case.config, hasher(salt)
    constants = {config.image_sentinel, config.pad_token}

    def compressed(token: int) -> int:
        return token if token in constants else hashed(token)

    raw = dict.fromkeys(token for step in case.steps for one in step for token in one.recent_tokens)
    # A token beyond the table breaks P-NGRAM: it stays, and keeps doing so.
    inside = [token for token in raw if 0 <= token < len(config.lookup_table)]
    place = {token: index for index, token in enumerate(inside)}
    table = tuple(compressed(config.lookup_table[token]) for token in inside)

    def sequence(one: Sequence) -> Sequence:
        return msgspec.structs.replace(
            one,
            token_ids=tuple(map(hashed, one.token_ids)),
            draft_tokens=tuple(map(hashed, one.draft_tokens)),
            compressed_tokens=tuple(map(compressed, one.compressed_tokens)),
            recent_tokens=tuple(place.get(token, token) for token in one.recent_tokens),
        )

    return msgspec.structs.replace(
        case,
        config=with_table(config, table),
        steps=tuple(tuple(map(sequence, step)) for step in case.steps),
        gather=tuple(None if one is None else gathered(one, hashed) for one in case.gather),
    )


def with_table(config: Config, table: tuple[int, ...]) -> Config:
    """The configuration with another lookup table; one without n-grams needs none."""
    return msgspec.structs.replace(config, lookup_table=table if config.max_ngram_size > 0 else ())


def gathered(gather: Gather, hashed: Callable[[int], int]) -> Gather:
    """Inputs of F-GATHER with hashes for tokens."""

    def tokens(values: Iterable[int]) -> tuple[int, ...]:
        return tuple(map(hashed, values))

    return msgspec.structs.replace(
        gather,
        fresh_input_ids=tokens(gather.fresh_input_ids),
        prev_sampled=tokens(gather.prev_sampled),
        prev_predict=tuple(map(tokens, gather.prev_predict)),
    )
