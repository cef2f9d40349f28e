"""Chapter 1: what a scheduler hands over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, Protocol

from .units import CompressedToken, Rank, Ratio, Token, ceiling_division

Path = Literal["prompt", "decode", "decode_zos"]
PATHS: tuple[Path, ...] = ("prompt", "decode", "decode_zos")


@dataclass(frozen=True, kw_only=True)
class MetadataConfig:
    """What is fixed for an engine. Lengths in original tokens unless said otherwise.

    ``image_sentinel`` may be None (I-12: no image token). A ratio in both lists is one ca ratio (I-18). The properties
    are the members with their units.
    """

    block_size: int
    window_size: int
    swa_block_size: int
    max_model_len: int
    dense_ratios: Sequence[int] = ()
    sparse_ratios: Sequence[int] = ()
    max_ngram_size: int = 0
    pad_token: int = 0
    image_sentinel: int | None = None
    lookup_table: Sequence[int] = ()
    cp_size: int = 1
    cp_rank: int = 0
    yoco_prefill_keep_tokens: int = 0
    yoco_mode: Literal["off", "mask", "compact"] = "off"
    force_load_balance: bool = False

    @property
    def block(self) -> Token:
        """``block_size``."""
        return Token(self.block_size)

    @property
    def window(self) -> Token:
        """``window_size``, W."""
        return Token(self.window_size)

    @property
    def ring(self) -> Token:
        """``swa_block_size``, B."""
        return Token(self.swa_block_size)

    @property
    def longest(self) -> Token:
        """``max_model_len``."""
        return Token(self.max_model_len)

    @property
    def keep(self) -> Token:
        """``yoco_prefill_keep_tokens``, k."""
        return Token(self.yoco_prefill_keep_tokens)

    @property
    def rank(self) -> Rank:
        """``cp_rank``, r."""
        return Rank(self.cp_rank)

    @property
    def dense(self) -> tuple[Ratio, ...]:
        """Ratios of the dense layers, ascending, each once."""
        return tuple(Ratio(ratio) for ratio in sorted(set(self.dense_ratios)))

    @property
    def sparse(self) -> tuple[Ratio, ...]:
        """Ratios of the sparse layers, ascending, each once."""
        return tuple(Ratio(ratio) for ratio in sorted(set(self.sparse_ratios)))

    @property
    def ca_ratios(self) -> tuple[Ratio, ...]:
        """All compression ratios: the sorted union.

        >>> MetadataConfig(block_size=8, window_size=1, swa_block_size=1, max_model_len=9,
        ...                dense_ratios=(4, 1), sparse_ratios=(4, 4, 2)).ca_ratios
        (1, 2, 4)
        """
        return tuple(sorted(set(self.dense) | set(self.sparse)))


@dataclass(frozen=True, kw_only=True)
class SequenceMetadata:
    """One sequence of one step. Arrays hold int32 values (I-10); scalars may be any integer and are checked first."""

    seqlen_q: int
    seqlen_k: int
    block_table: Sequence[int] = ()
    state_id: int = 0
    is_placeholder: bool = False
    swa_valid_start: int = 0
    token_ids: Sequence[int] = ()
    draft_tokens: Sequence[int] = ()
    compressed_tokens: Sequence[int] = ()
    recent_tokens: Sequence[int] = ()
    data_len: int = 0


def array_names(kind: type[MetadataConfig] | type[SequenceMetadata]) -> tuple[str, ...]:
    """The members that hold arrays of integers, in the order in which they are declared.

    >>> array_names(MetadataConfig)
    ('dense_ratios', 'sparse_ratios', 'lookup_table')
    """
    return tuple(member.name for member in fields(kind) if str(member.type).startswith("Sequence["))


CONFIG_ARRAYS = array_names(MetadataConfig)
SEQUENCE_ARRAYS = array_names(SequenceMetadata)


class VarlenInputs(Protocol):
    """Inputs of F-REMAP and F-VARLEN: what the last step's sampler left on the device."""

    @property
    def seqlens_q(self) -> Sequence[int]:
        """[n_seq] rows that this step has of each sequence, at most the extracted ones."""

    @property
    def prev_seqlens_q(self) -> Sequence[int]:
        """[m] rows that the last step had of each of its m sequences."""

    @property
    def prev_num_accepted_tokens(self) -> Sequence[int]:
        """[m] drafts of the last step that were accepted."""


class GatherInputs(Protocol):
    """Inputs of F-GATHER: this step's fresh tokens, and what the last step left on the device."""

    @property
    def fresh_input_ids(self) -> Sequence[int]:
        """[total_q] tokens of rows whose sequence is new."""

    @property
    def prev_sampled(self) -> Sequence[int]:
        """[m] the token that the last step sampled for each of its m sequences."""

    @property
    def prev_predict(self) -> Sequence[Sequence[int]]:
        """[m, width] the drafts that the last step predicted."""

    @property
    def remap(self) -> Sequence[int]:
        """[n_seq] where the sequence stood in the last step, negative for a new one."""

    @property
    def varlen(self) -> VarlenInputs | None:
        """What makes it a step of variable length; None: the extracted lengths hold."""


def query_start(seqlen_q: Token, seqlen_k: Token) -> Token:
    """``q_start = seqlen_k - seqlen_q``: the absolute position of a sequence's first query.

    >>> query_start(Token(3), Token(8))
    5
    """
    return Token(seqlen_k - seqlen_q)


def compressed_per_block(block_size: Token, ratio: Ratio) -> CompressedToken:
    """``b_c = block_size // n``: the compressed tokens that fit one physical block.

    >>> compressed_per_block(Token(128), Ratio(4))
    32
    """
    return CompressedToken(block_size // ratio)


def dense_width(max_model_len: Token, ratio: Ratio) -> CompressedToken:
    """F-CAOFF ``width = cdiv(max_model_len // n, 128) * 128, at least 128``: columns of ``kv_ca_index``.

    >>> dense_width(Token(1024), Ratio(4)), dense_width(Token(516), Ratio(4)), dense_width(Token(3), Ratio(4))
    (256, 256, 128)
    """
    longest = max_model_len // ratio
    tiles = ceiling_division(longest, 128)
    return CompressedToken(max(128, tiles * 128))
