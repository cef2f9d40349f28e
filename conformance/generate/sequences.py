"""What is drawn of one sequence: lengths at the boundaries and options; values are filled in by ``assembly``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inputmeta.conformance.cases.conditions import Conditions
from inputmeta.conformance.cases.model import Config, Path
from inputmeta.conformance.cases.request import MAX_EXPANDED_CELLS

from .configs import RAW_SENTINEL
from .draws import INT32_MAX, Draw, chance, clipped, draw_length, length_marks, pick
from .int32 import block_count
from .profile import Profile

ROWS = {"small": 24, "real": 64, "many": 24}
"""Most query rows of a sequence; with small constants past every block, ring and 2p of the tier."""
STEP_ROWS = {"small": 120, "real": 64, "many": 520}
"""Most query rows of a step, all sequences together."""
MAX_DRAFTS = 18


@dataclass(frozen=True)
class Scope:
    """What the draws of every sequence of a case share."""

    path: Path
    config: Config
    tier: str
    rows: int
    """Most query rows of one sequence."""
    marks: tuple[int, ...]
    profile: Profile
    fewest: int
    """Fewest query rows of one sequence."""
    unit: int
    """What its number of query rows is a multiple of."""
    longest: int
    """Most keys of one sequence, tokens."""

    @staticmethod
    def of(profile: Profile, path: Path, config: Config, tier: str) -> Scope:
        """The scope of a case, with the boundary lengths of its configuration."""
        claimed = profile.conditions
        fewest, unit = claimed.fewest_rows(path, config.cp_size), claimed.row_unit(path, config.cp_size)
        highest = claimed.highest_block(config.block_size)
        blocks = lowest(INT32_MAX, profile.max_table_columns, None if highest is None else max(1, highest + 1))
        longest = lowest(config.max_model_len, claimed.most_seqlen_k, blocks * config.block_size)
        most = lowest(max(ROWS[tier], fewest, unit), longest, claimed.most_seqlen_q, most_total(profile, path, config))
        marks = length_marks(config, ROWS[tier])
        return Scope(path, config, tier, most, marks, profile, fewest, unit, longest)

    @property
    def conditions(self) -> Conditions:
        """Those of the profile."""
        return self.profile.conditions

    @property
    def most_sequences(self) -> int:
        """Most sequences of a step, each with the fewest rows, or with one."""
        total = most_total(self.profile, self.path, self.config)
        return lowest(self.profile.most_sequences, None if total is None else max(1, total // max(self.fewest, 1)))

    def shared_by(self, count: int) -> Scope:
        """The scope of one of ``count`` sequences of a step."""
        most = lowest(STEP_ROWS[self.tier], most_total(self.profile, self.path, self.config))
        return replace(self, rows=min(self.rows, max(most // count, self.fewest)))

    def with_rows(self) -> Scope:
        """The scope of a sequence that has a query row."""
        return replace(self, fewest=max(self.fewest, self.unit), rows=max(self.rows, self.unit))


@dataclass(frozen=True)
class Draft:
    """One sequence before its tables, ids and tokens are filled in. Lengths in tokens."""

    seqlen_q: int
    q_start: int
    is_placeholder: bool = False
    swa_valid_start: int = 0
    data_len: int = 0
    more_tokens: int = 0
    """Prompt: raw tokens known beyond seqlen_k."""
    more_blocks: int = 0
    """Table entries beyond those that F-BLOCKS counts."""
    compressed_len: int = 0
    """L, the length of the compressed n-gram history."""
    more_history: int = 0
    """N-gram history beyond seqlen_k."""
    sentinel_at: int | None = None
    """Position of an image token in the n-gram history."""
    raw_sentinel_at: int | None = None
    """Position whose raw token has the sentinel's value, but not its look-up."""

    @property
    def seqlen_k(self) -> int:
        """Key length after the step, tokens."""
        return self.q_start + self.seqlen_q


def lowest(limit: int, *limits: int | None) -> int:
    """The lowest of several limits, None of which is no limit."""
    return min((limit, *(each for each in limits if each is not None)))


def most_total(profile: Profile, path: Path, config: Config) -> int | None:
    """Most query rows of a step, by the profile and by the expansions that are always built; None: no limit."""
    cells = profile.conditions.cells_of_a_row(path, config)
    limits = (profile.max_total_q, MAX_EXPANDED_CELLS // cells if cells else None)
    given = [each for each in limits if each is not None]
    return max(1, min(given)) if given else None


def drafts(draw: Draw, scope: Scope) -> Draft:
    """One valid sequence of the path; the simplest is the shortest one with no option set."""
    seqlen_q = queries(draw, scope)
    return draft_at(draw, scope, seqlen_q, _start(draw, scope, seqlen_q))


def queries(draw: Draw, scope: Scope) -> int:
    """seqlen_q of a sequence."""
    return _prompt_queries(draw, scope) if scope.path == "prompt" else _decode_queries(draw, scope)


def draft_at(draw: Draw, scope: Scope, seqlen_q: int, q_start: int) -> Draft:
    """A sequence of these lengths."""
    seqlen_k = q_start + seqlen_q
    compressed_len = _history_split(draw, scope, q_start, seqlen_k)
    return Draft(
        seqlen_q=seqlen_q,
        q_start=q_start,
        is_placeholder=chance(draw, 1, 6) and scope.conditions.placeholders,
        swa_valid_start=_valid_start(draw, scope, q_start, seqlen_k),
        data_len=_data_len(draw, scope, q_start, seqlen_k),
        more_tokens=pick(draw, (0, 0, 1, scope.rows)),
        more_blocks=min(pick(draw, (0, 0, 0, 1, 3)), spare_columns(scope, seqlen_k)),
        compressed_len=compressed_len,
        more_history=pick(draw, (0, 0, 1, 3)),
        sentinel_at=_sentinel(draw, scope, q_start, seqlen_k, compressed_len),
        raw_sentinel_at=_raw_sentinel(draw, scope, q_start, seqlen_k, compressed_len),
    )


def spare_columns(scope: Scope, seqlen_k: int) -> int:
    """Entries that a sequence's block table may have beyond those that it needs."""
    most = scope.profile.max_table_columns
    return INT32_MAX if most is None else max(0, most - block_count(scope.config, seqlen_k))


def takes_idle_steps(scope: Scope) -> bool:
    """Whether a step may be of one sequence that brings no work."""
    if scope.path == "prompt":
        return scope.conditions.empty_steps and scope.fewest == 0
    return scope.conditions.placeholders and scope.fewest == 1


def empty_draft(path: Path) -> Draft:
    """A sequence that brings no work: nothing at all in a prompt, a placeholder of one row in a decode."""
    return Draft(0, 0) if path == "prompt" else Draft(1, 0, is_placeholder=True)


def _prompt_queries(draw: Draw, scope: Scope) -> int:
    """seqlen_q of a chunk, 0 included."""
    length = draw_length(draw, scope.marks, scope.fewest, scope.rows)
    return length - length % scope.unit


def _decode_queries(draw: Draw, scope: Scope) -> int:
    """1 + drafts: none, few, just inside the ring's room for them, past it, past the whole ring."""
    ring = scope.config.swa_block_size
    room = ring - scope.config.window_size
    most = max(min(MAX_DRAFTS, scope.rows - 1), scope.fewest - 1)
    return 1 + draw_length(draw, (0, 1, 2, 3, room, room + 1, ring - 1, ring, ring + 1), scope.fewest - 1, most)


def _start(draw: Draw, scope: Scope, seqlen_q: int) -> int:
    """q_start at a boundary, or such that seqlen_k is at one; the longest context is one of them."""
    latest = scope.longest - seqlen_q if scope.conditions.history else 0
    ends = (mark - seqlen_q for mark in scope.marks)
    return draw_length(draw, (*scope.marks, *ends), 0, latest)


def _valid_start(draw: Draw, scope: Scope, q_start: int, seqlen_k: int) -> int:
    """swa_valid_start: none, below the window, inside it, in the chunk, past the row, past the chunk, past int32."""
    some = chance(draw, 4 if scope.path == "prompt" else 1, 6)
    history = q_start - scope.config.window_size
    places = (  # those that a short sequence has not are last, so that the others keep their numbers
        *(q_start, q_start + 1, q_start + 2, (q_start + seqlen_k) // 2, seqlen_k, seqlen_k + 1),
        *(seqlen_k + scope.config.window_size, INT32_MAX + 2, seqlen_k - 1, q_start - 1),
        *(history + 1, history, history - 1),
    )
    place = pick(draw, [place for place in places if place >= 0])
    if scope.path != "prompt" or not some or scope.conditions.valid_starts == "any":
        return place if some else 0
    return 0 if scope.conditions.valid_starts == "zero" else min(place, q_start)


def _data_len(draw: Draw, scope: Scope, q_start: int, seqlen_k: int) -> int:
    """data_len past int32, or such that it, or the first kept position data_len - keep, is a border of the chunk."""
    middle = (q_start + seqlen_k) // 2
    places = (q_start - 1, q_start, q_start + 1, middle, seqlen_k - 1, seqlen_k, seqlen_k + 1, 2 * seqlen_k)
    border = pick(draw, (*clipped(places, 0, 2 * seqlen_k + 1), INT32_MAX + 2))
    moved = chance(draw, 1, 2)
    if not scope.conditions.other_data_len:
        return seqlen_k
    if scope.config.yoco_mode == "off" or scope.path != "prompt":
        return border if border == seqlen_k else 0
    return border + scope.config.yoco_prefill_keep_tokens if moved else border


def _history_split(draw: Draw, scope: Scope, q_start: int, seqlen_k: int) -> int:
    """L at a border of the chunk or of the first row's look-back; without meaning if n-grams are off."""
    size = scope.config.max_ngram_size
    borders = (1, q_start - size, q_start - size + 1, q_start - 1, q_start, q_start + 1, seqlen_k - 1, seqlen_k)
    return pick(draw, clipped(borders, 0, seqlen_k + 2))


def _sentinel(draw: Draw, scope: Scope, q_start: int, seqlen_k: int, border: int) -> int | None:
    """Where the history has an image token: nowhere, in a row, in the look-back, just out of reach, at the border."""
    size = scope.config.max_ngram_size
    places = (q_start, seqlen_k - 1, q_start - 1, q_start - size + 1, q_start - size, border - 1, border)
    place = pick(draw, (None, *_known(places, seqlen_k)))
    return None if scope.config.image_sentinel is None else place


def _raw_sentinel(draw: Draw, scope: Scope, q_start: int, seqlen_k: int, border: int) -> int | None:
    """Where the history not yet compressed has a raw token of the sentinel's value."""
    places = (seqlen_k - 1, q_start, q_start - 1, border)
    place = pick(draw, (None, *(place for place in _known(places, seqlen_k) if place >= border)))
    return place if scope.config.image_sentinel == RAW_SENTINEL else None


def _known(places: Sequence[int], seqlen_k: int) -> list[int]:
    """The places that are positions of the sequence, each once, as listed."""
    return [place for place in dict.fromkeys(places) if 0 <= place < seqlen_k]
