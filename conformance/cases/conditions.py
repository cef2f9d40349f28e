"""Conditions on a batch: what an engine takes less of than the specification allows, as a subject claims it.

They steer what is drawn (:mod:`inputmeta.conformance.generate`); a batch beyond them, of a file or a trace, is
UNSUPPORTED with the text of :meth:`Conditions.beyond`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields

from inputmeta import oracle
from inputmeta.conformance.cases import model
from inputmeta.conformance.cases.model import Path

CP_CHUNKS = ("any", "at-least-2p", "multiples-of-2p")
VALID_STARTS = ("any", "visible", "zero")
WINDOWS_EXPANDED = frozenset({"kv_swa_full_index", "kv_swa_index"})
CHOICES = {"cp_chunks": CP_CHUNKS, "valid_starts": VALID_STARTS, "expansions": tuple(oracle.EXPANSIONS)}
"""The words that a condition may have."""

SPARE_COLUMNS = 128
"""Columns by which a dense expansion may be wider than its keys."""

Config = oracle.MetadataConfig | model.Config
Rows = oracle.SequenceMetadata | model.Sequence
"""A sequence, in memory or of a case."""


@dataclass(frozen=True)
class Conditions:
    """What a batch must be for a subject to build it. The defaults take every valid batch.

    A set of None takes all values; an empty one takes none (``sparse_ratios=frozenset()``: no sparse ratio in a
    batch). Conditions on ranks, truncation and ``valid_starts`` are of the prompt path alone.
    """

    block_sizes: frozenset[int] | None = None
    """``block_size``, tokens."""
    dense_ratios: frozenset[int] | None = None
    """Each of a configuration's ``dense_ratios``, tokens a compressed token."""
    sparse_ratios: frozenset[int] | None = None
    """Each of its ``sparse_ratios``."""
    window_sizes: frozenset[int] | None = None
    """W, tokens."""
    ring_is_window: bool = False
    """B = W only."""
    block_divides_window: bool = False
    """Only a W that is a multiple of ``block_size``."""
    least_seqlen_q: int = 0
    """Fewest query rows of a sequence; 0 and 1 mean the same but in a prompt."""
    most_seqlen_q: int | None = None
    """Most query rows of a sequence; None: no limit. So are the four below."""
    most_seqlen_k: int | None = None
    """Most key tokens of a sequence."""
    largest_block: int | None = None
    """Largest physical block id in a block table."""
    largest_state: int | None = None
    """Largest ``state_id``."""
    largest_token_slot: int | None = None
    """Largest ``block id * block_size + offset``: raw cell of the cache at ratio 1, whatever the ratios."""
    history: bool = True
    """Takes sequences with keys before their first row (``seqlen_k > seqlen_q``)."""
    placeholders: bool = True
    """Takes sequences with ``is_placeholder``."""
    empty_steps: bool = True
    """Takes steps without a query row."""
    least_cp_size: int = 1
    """Fewest ranks of a prompt."""
    cp_chunks: str = "any"
    """``seqlen_q`` of a prompt on p > 1 ranks: of :data:`CP_CHUNKS`. 0 is a multiple, but not at least 2p."""
    valid_starts: str = "any"
    """``swa_valid_start`` of a prompt: ``any``; ``visible``: at most the first row's position, so that each row sees
    its own key; ``zero``."""
    other_data_len: bool = True
    """Takes a truncated prompt whose ``data_len`` is not ``seqlen_k``."""
    least_keep: int = 0
    """Smallest ``yoco_prefill_keep_tokens`` of a truncated prompt; 1: some row is kept."""
    least_ngram_size: int = 1
    """Smallest ``max_ngram_size`` other than 0."""
    expansions: frozenset[str] = frozenset()
    """Names of the expansions that it always builds: a batch that is asked for without one of them, because that would
    be too large, is beyond it."""

    def __post_init__(self) -> None:
        """A set given as a plain one is as good."""
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, set):
                object.__setattr__(self, each.name, frozenset(value))

    def beyond(
        self, path: Path, config: Config, sequences: Sequence[Rows], expand: Collection[str] = tuple(oracle.EXPANSIONS)
    ) -> str | None:
        """Why a batch is not within the conditions, or None. The text is the same for the same kind of batch.

        ``expand``: names of the expansions that are asked for.

        >>> config = model.Config(block_size=4, dense_ratios=(1,), window_size=4, swa_block_size=6, max_model_len=8)
        >>> Conditions(ring_is_window=True).beyond("decode", config, [])
        'B other than W'
        """
        if self == ANY:
            return None
        problems = (self._of_config(path, config), self._of_expansions(path, config, expand))
        found = (each for problem in problems for each in problem)
        return next(found, None) or next(self._of_sequences(path, config, sequences), None)

    def cells_of_a_row(self, path: Path, config: Config) -> int:
        """Cells of a query row in the widest of the expansions that are always built; 0 if there is none."""
        window = "kv_swa_full_index" if path == "prompt" else "kv_swa_index"
        widths = [config.window_size] if window in self.expansions else []
        if "kv_ca_index" in self.expansions and len(config.dense_ratios) > 0:
            widths.append(config.max_model_len // min(config.dense_ratios) + SPARE_COLUMNS)
        return max(widths, default=0)

    def row_unit(self, path: str, cp_size: int) -> int:
        """What the number of query rows of a sequence is a multiple of, for a prompt on so many ranks."""
        multiples = path == "prompt" and cp_size > 1 and self.cp_chunks == "multiples-of-2p"
        return 2 * cp_size if multiples else 1

    def fewest_rows(self, path: str, cp_size: int) -> int:
        """Fewest query rows of a sequence; a multiple of :meth:`row_unit`."""
        least = max(self.least_seqlen_q, 0 if path == "prompt" else 1)
        if path == "prompt" and cp_size > 1 and self.cp_chunks == "at-least-2p":
            least = max(least, 2 * cp_size)
        unit = self.row_unit(path, cp_size)
        return -(-least // unit) * unit

    def highest_block(self, block_size: int) -> int | None:
        """Highest physical block id, by blocks and by token slots; None: any."""
        slot = self.largest_token_slot
        limits = (self.largest_block, None if slot is None else (slot + 1) // block_size - 1)
        return min((limit for limit in limits if limit is not None), default=None)

    def _of_config(self, path: Path, config: Config) -> Iterator[str]:
        """What of a configuration is not within the conditions."""
        if self.block_sizes is not None and config.block_size not in self.block_sizes:
            yield f"block_size {config.block_size}"
        for name in ("dense", "sparse"):
            allowed, ratios = getattr(self, f"{name}_ratios"), getattr(config, f"{name}_ratios")
            if allowed is not None:
                yield from (f"{name} ratio {ratio}" for ratio in sorted(set(ratios) - allowed))
        if self.window_sizes is not None and config.window_size not in self.window_sizes:
            yield f"window_size {config.window_size}"
        if self.ring_is_window and config.swa_block_size != config.window_size:
            yield "B other than W"
        if self.block_divides_window and config.window_size % max(1, config.block_size):
            yield "W no multiple of block_size"
        if 0 < config.max_ngram_size < self.least_ngram_size:
            yield f"max_ngram_size below {self.least_ngram_size}"
        if path == "prompt":
            if config.cp_size < self.least_cp_size:
                yield f"cp_size below {self.least_cp_size}"
            if config.yoco_mode != "off" and config.yoco_prefill_keep_tokens < self.least_keep:
                yield f"yoco_prefill_keep_tokens below {self.least_keep}"

    def _of_expansions(self, path: Path, config: Config, expand: Collection[str]) -> Iterator[str]:
        """The expansions that the path has, that are always built, and that are not asked for."""
        for name in sorted(self.expansions.difference(expand)):
            field = oracle.FIELDS[name]
            if path in field.paths and (field.bucket != "dense" or len(config.dense_ratios) > 0):
                yield f"too large for {name}"

    def _of_sequences(self, path: Path, config: Config, sequences: Sequence[Rows]) -> Iterator[str]:
        """What of the sequences is not within the conditions."""
        if not self.empty_steps and not any(sequence.seqlen_q > 0 for sequence in sequences):
            yield "a step without rows"
        for sequence in sequences:
            yield from self._of_lengths(path, config, sequence)
            yield from self._of_ids(config, sequence)
            if sequence.is_placeholder and not self.placeholders:
                yield "placeholders"
            if path == "prompt":
                yield from self._of_visibility(config, sequence)

    def _of_lengths(self, path: Path, config: Config, sequence: Rows) -> Iterator[str]:
        """What of a sequence's lengths is not within the conditions."""
        rows, keys = sequence.seqlen_q, sequence.seqlen_k
        if rows < self.least_seqlen_q:
            yield f"seqlen_q below {self.least_seqlen_q}"
        if self.most_seqlen_q is not None and rows > self.most_seqlen_q:
            yield f"seqlen_q above {self.most_seqlen_q}"
        if self.most_seqlen_k is not None and keys > self.most_seqlen_k:
            yield f"seqlen_k above {self.most_seqlen_k}"
        if not self.history and keys > rows:
            yield "history before a chunk"
        if path == "prompt" and config.cp_size > 1:
            if self.cp_chunks == "at-least-2p" and rows < 2 * config.cp_size:
                yield "seqlen_q below 2p"
            if self.cp_chunks == "multiples-of-2p" and rows % (2 * config.cp_size):
                yield "seqlen_q no multiple of 2p"

    def _of_ids(self, config: Config, sequence: Rows) -> Iterator[str]:
        """What of a sequence's ids is not within the conditions."""
        if self.largest_state is not None and sequence.state_id > self.largest_state:
            yield f"state_id above {self.largest_state}"
        if self.largest_block is None and self.largest_token_slot is None:
            return
        block = int(max(sequence.block_table, default=-1))
        if self.largest_block is not None and block > self.largest_block:
            yield f"block id above {self.largest_block}"
        if self.largest_token_slot is not None and (block + 1) * config.block_size - 1 > self.largest_token_slot:
            yield f"token slot above {self.largest_token_slot}"

    def _of_visibility(self, config: Config, sequence: Rows) -> Iterator[str]:
        """What hides keys of a prompt's sequence and is not within the conditions."""
        start = sequence.swa_valid_start
        if self.valid_starts == "zero" and start > 0:
            yield "swa_valid_start above 0"
        if self.valid_starts == "visible" and start > sequence.seqlen_k - sequence.seqlen_q:
            yield "swa_valid_start past the first row"
        if not self.other_data_len and config.yoco_mode != "off" and sequence.data_len != sequence.seqlen_k:
            yield "data_len other than seqlen_k"


ANY = Conditions()
"""Takes every valid batch."""


def conditions_problem(conditions: Conditions) -> str | None:
    """What is wrong with conditions of unknown origin: ``NAME is not …``, or None.

    >>> conditions_problem(Conditions(least_seqlen_q=5, most_seqlen_q=4))
    'least_seqlen_q is 5, above most_seqlen_q 4'
    >>> conditions_problem(Conditions(cp_chunks="even"))
    "cp_chunks is not one of 'any', 'at-least-2p', 'multiples-of-2p'"
    """
    for each in fields(Conditions):
        value = getattr(conditions, each.name)
        least = 1 if each.name.endswith(("sizes", "ratios", "cp_size", "ngram_size")) else 0
        kind = _kind_problem(value, str(each.type), least, CHOICES.get(each.name, ()))
        if kind is not None:
            return f"{each.name} is not {kind}"
    least, most = conditions.least_seqlen_q, conditions.most_seqlen_q
    if most is not None and least > most:
        return f"least_seqlen_q is {least}, above most_seqlen_q {most}"
    return None


def _kind_problem(value: object, kind: str, least: int, words: Sequence[str]) -> str | None:
    """What a value should be, if it is not, by the annotation of its condition."""

    def is_count(number: object) -> bool:
        return isinstance(number, int) and not isinstance(number, bool) and least <= number < 2**62

    listed = ", ".join(map(repr, words))
    if kind == "bool":
        return None if isinstance(value, bool) else "a bool"
    if kind == "str":
        return None if value in words else f"one of {listed}"
    if kind == "frozenset[str]":
        right = isinstance(value, set | frozenset) and all(word in words for word in value)
        return None if right else f"a set of some of {listed}"
    if value is None and kind.endswith("None"):
        return None
    if kind.startswith("frozenset"):
        right = isinstance(value, set | frozenset) and all(map(is_count, value))
        return None if right else f"a set of numbers of at least {least}"
    return None if is_count(value) else f"a number of at least {least}"
