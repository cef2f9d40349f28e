"""The forms of wide batches, by name: what production has and what lies beside the powers of two of narrow integers.

Batch ``index`` of a seed has form ``index`` modulo their number; it depends on seed, index and claims alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.model import Gather, Path
from inputmeta.conformance.cases.request import Request, affordable_expansions
from inputmeta.conformance.generate.scales import Constants, Tier
from inputmeta.conformance.subjects.base import Capabilities
from inputmeta.conformance.wide.pools import (
    INT32_MAX,
    SENTINEL,
    Int64s,
    Lengths,
    Pools,
    generator,
    pools_of,
    sequences_of,
    table_lengths,
)

Ratios = tuple[int, ...]
Mode = Literal["off", "mask", "compact"]
LONGEST = 131_072
"""Context of the deep forms, tokens."""
SHORTEST_WINDOW = 64
MOST_CELLS = (2**16 + 1) * SHORTEST_WINDOW
"""Cells of an expansion or a block table, at most: 16 MiB, the shortest window of 65,537 rows."""
MOST_COLUMNS = 100_000
LARGEST_CP = 64
CONSTANTS = Tier(
    (16, 64, 128, 256), (1, 2, 4, 8, 128), (SHORTEST_WINDOW, 128, 512, 4_096), surpluses=(), max_model_lens=(1,)
)
"""Block sizes, ratios, windows; the rings and contexts are the forms'."""
BUCKETS = (256, 512, 1_024)
"""Sequences of a captured graph."""
SEGMENTS = 65_535


@dataclass(frozen=True)
class Claims:
    """What of the forms a subject can be given."""

    able: Capabilities
    paths: tuple[Path, ...]
    """The paths to draw, in the oracle's order."""

    def some_of(self, *paths: Path) -> tuple[Path, ...]:
        """Those of the paths that are to be drawn."""
        return tuple(path for path in paths if path in self.paths)

    @cached_property
    def constants(self) -> Constants:
        """The constants within the conditions; without a block size there is nothing to draw."""
        return Constants(self.able.conditions, CONSTANTS)

    def ratios_of(self, block_size: int) -> list[int]:
        """Ratios that divide a block size; the block size itself, of one token a block, where no usual one does."""
        constants = self.constants
        usual = [ratio for ratio in constants.ratios_of(block_size) if ratio in constants.ratios]
        return usual or constants.ratios_of(block_size)

    def split(self, dense: Sequence[int], sparse: Sequence[int], chosen: Sequence[int]) -> tuple[Ratios, Ratios]:
        """Dense and sparse ratios as the conditions take them; where nothing is left, the first that was chosen."""
        constants = self.constants
        kept = tuple(filter(constants.takes_dense, dense)), tuple(filter(constants.takes_sparse, sparse))
        if any(kept):
            return kept
        return (tuple(chosen[:1]), ()) if constants.takes_dense(chosen[0]) else ((), tuple(chosen[:1]))


@dataclass
class Draw:
    """A batch in the making."""

    rng: np.random.Generator
    pools: Pools
    claims: Claims
    path: Path

    def pick(self, *values: int) -> int:
        """One of the values."""
        return values[int(self.rng.integers(len(values)))]

    def near(self, *values: int) -> int:
        """One of the values, or one beside it."""
        return self.pick(*values) + int(self.rng.integers(-1, 2))

    def between(self, least: int, most: int, count: int) -> Int64s:
        """``count`` numbers in [least, most], half of them beside a multiple of 64."""
        values = self.rng.integers(least, most + 1, count)
        beside = (values + 32) // 64 * 64 + self.rng.integers(-1, 2, count)
        return np.clip(np.where(self.rng.random(count) < 0.5, beside, values), least, most)

    def config(
        self, longest: int, *, block: int = 0, dense: Sequence[int] = (), window: int = 0
    ) -> oracle.MetadataConfig:
        """Constants of a real engine for contexts to ``longest`` tokens; those that are given are not drawn."""
        claimed, constants = self.claims.able.conditions, self.claims.constants
        block = block if block in constants.block_sizes else self.pick(*constants.block_sizes)
        chosen = self.rng.permutation(self.claims.ratios_of(block))[: self.pick(1, 2, 3)].tolist()
        split = self.pick(0, 1, len(chosen))
        dense_ratios, sparse_ratios = self.claims.split(tuple(dense) or chosen[:split], chosen[split:], chosen)
        windows = constants.windows_of(block)
        window = window if window in windows else self.pick(*windows)
        unit = 128 * self.pick(*chosen)
        prompt = self.path == "prompt"
        able = self.claims.able
        ranks = self.pick(1, 1, 1, 2, 3, 8, 33, LARGEST_CP) if prompt else 1
        ranks = max(min(ranks, able.max_cp_size), claimed.least_cp_size if prompt else 1)
        ring = self.pick(window, window + 1, window + 64, window * 3 // 2, 2 * window)
        modes: list[Mode] = [mode for mode in ("off", "mask", "compact") if mode in able.yoco_modes]
        return oracle.MetadataConfig(
            block_size=block,
            dense_ratios=dense_ratios,
            sparse_ratios=sparse_ratios,
            window_size=window,
            swa_block_size=window if claimed.ring_is_window else ring,
            max_model_len=max(longest, -(-longest // unit) * unit + self.pick(-1, 0, 1)),
            max_ngram_size=self.pick(*(size for size in (0, 3, 4) if size == 0 or size >= claimed.least_ngram_size)),
            pad_token=2,
            image_sentinel=SENTINEL,
            lookup_table=self.pools.lookup,
            cp_size=ranks,
            cp_rank=self.pick(0, ranks - 1, int(self.rng.integers(ranks))),
            yoco_prefill_keep_tokens=max(self.pick(0, 1, 200, 4_096), claimed.least_keep),
            yoco_mode=modes[int(self.rng.integers(len(modes)))] if prompt else "off",
            force_load_balance=self.pick(0, 1) == 1,
        )

    def lengths(self, rows: Int64s, context: Int64s) -> Lengths:
        """Lengths with a share of placeholders and, in a prompt, of chunks without a row."""
        count = len(rows)
        if self.path == "prompt":
            rows = np.where(self.rng.random(count) < self.pick(0, 1) / 16, 0, rows)
        return Lengths(rows, context + rows, self.rng.random(count) < self.pick(0, 1, 8) / 16)

    def request(self, config: oracle.MetadataConfig, lengths: Lengths, *, bucket: bool = False) -> Request:
        """The step with these lengths, cut to what the subject and the memory can hold."""
        lengths = fitted(self.claims.able, self.path, config, lengths)
        claimed = self.claims.able.conditions
        sequences = sequences_of(self.rng, self.pools, self.path, config, lengths, conditions=claimed)
        columns = None
        if bucket and self.path != "prompt" and self.claims.able.in_place:
            columns = self.padded_columns(config, lengths)
        expand = affordable_expansions(config, sequences, MOST_CELLS)
        return Request(self.path, config, sequences, max_num_blocks=columns, expand=expand)

    def padded_columns(self, config: oracle.MetadataConfig, lengths: Lengths) -> int | None:
        """Columns of a captured table, more than the batch needs; None where that would be too wide."""
        needed = max(1, int(table_lengths(config, lengths.seqlen_k).max()))
        columns = 1 << needed.bit_length()
        limit = self.claims.able.max_table_columns or INT32_MAX
        return columns if columns <= min(limit, most_columns(config, int(lengths.seqlen_q.sum()))) else None


def most_columns(config: oracle.MetadataConfig, total_q: int) -> int:
    """Columns that a decode step of so many rows may have: by memory, and by the product bound of F-LIMIT."""
    per_block = config.block_size // min(config.dense_ratios) if config.dense_ratios else 1
    return max(1, min(MOST_CELLS // max(total_q, 1), INT32_MAX // (max(total_q, 1) * per_block)))


def most_rows(able: Capabilities, path: Path, config: oracle.MetadataConfig) -> int:
    """Query rows that a step may have, by the claims and by the expansions that are always built."""
    limit = able.max_total_q or INT32_MAX
    cells = able.conditions.cells_of_a_row(path, config)
    return limit if cells == 0 else max(1, min(limit, MOST_CELLS // cells))


def fitted(able: Capabilities, path: Path, config: oracle.MetadataConfig, lengths: Lengths) -> Lengths:
    """The lengths cut to the subject's limits and conditions and, in decode, to tables that fit into MOST_CELLS."""
    claimed = able.conditions
    count = min(len(lengths.seqlen_q), able.max_num_reqs or INT32_MAX)
    rows, keys = lengths.seqlen_q[:count].copy(), lengths.seqlen_k[:count]
    context = keys - rows if claimed.history else np.zeros_like(rows)
    least, unit = claimed.fewest_rows(path, config.cp_size), claimed.row_unit(path, config.cp_size)
    longest = INT32_MAX if claimed.most_seqlen_k is None else claimed.most_seqlen_k
    rows = np.clip(
        rows, least, max(least, min(longest, INT32_MAX if claimed.most_seqlen_q is None else claimed.most_seqlen_q))
    )
    most = most_rows(able, path, config)
    if rows.sum() > most:
        count = max(1, min(count, most // least)) if least else count
        rows, context = rows[:count], context[:count]
        room = max(most - least * count, 0)
        extra = rows - least
        rows = least + np.minimum(extra, np.maximum(room - (np.cumsum(extra) - extra), 0))
    rows -= rows % unit
    if not claimed.empty_steps and not rows.any():
        rows[0] = unit
    limit = able.max_table_columns or INT32_MAX
    if path != "prompt":
        limit = min(limit, most_columns(config, int(rows.sum())))
    # Two spare blocks that a table may have count as columns of the subject's.
    most_keys = min(config.max_model_len, longest, max(limit - 2, 0) * config.block_size)
    keys = np.minimum(context + rows, np.maximum(most_keys, rows))
    return Lengths(rows, keys, lengths.placeholder[:count] & claimed.placeholders)


def rows_of(draw: Draw, count: int, most: int) -> Int64s:
    """Query rows of many sequences: a row and drafts in decode, short chunks in a prompt."""
    return draw.rng.integers(0 if draw.path == "prompt" else 1, most + 1, count)


def many_short(draw: Draw) -> list[Request]:
    """256, 1,024 or 4,096 sequences ± 1 with contexts to 3,000 tokens; on a device, which is fast at it, 16,384 too."""
    most = [2**14] * 12 if draw.claims.able.devices - {"cpu"} else []
    count = draw.near(256, 256, 1_024, 1_024, 1_024, 4_096, *most)
    rows = rows_of(draw, count, 12 if draw.path == "prompt" else 4)
    context = draw.between(0, 3_000, count)
    return [draw.request(draw.config(3_012), draw.lengths(rows, context))]


def few_deep(draw: Draw) -> list[Request]:
    """Up to six sequences of some 131,072 keys, twice or eight times as many."""
    count = draw.pick(1, 2, 3, 6)
    deepest = draw.pick(LONGEST, LONGEST, 2 * LONGEST, 8 * LONGEST)
    rows = rows_of(draw, count, draw.pick(60, 600) if draw.path == "prompt" else 4)
    context = draw.between(deepest - 8_192, deepest, count)
    return [draw.request(draw.config(deepest + 600), draw.lengths(rows, context))]


def wide_tables(draw: Draw) -> list[Request]:
    """Tables of 32,768 ± 1, 65,536 ± 1 and 10⁵ columns: blocks of 16 tokens."""
    count = draw.pick(1, 2, 3)
    columns = np.array([draw.near(2**15, 2**16, MOST_COLUMNS) for _ in range(count)])
    rows = rows_of(draw, count, 4)
    context = np.maximum(columns * 16 - rows, 0)
    return [draw.request(draw.config(int(context.max()) + 16, block=16), draw.lengths(rows, context))]


def long_chunks(draw: Draw) -> list[Request]:
    """Chunks of W·k ± 1 rows, 512 and more of them."""
    count = draw.pick(1, 2, 4, 8)
    config = draw.config(LONGEST)
    window = config.window_size
    times = draw.rng.integers(1, max(2, 4_096 // window) + 1, count)
    rows = np.maximum(times * window, 512) + draw.rng.integers(-1, 2, count)
    return [draw.request(config, draw.lengths(rows, draw.between(0, 9_000, count)))]


def wide_expansions(draw: Draw) -> list[Request]:
    """Dense keys one by one at ratio 1 past 2¹⁵ columns: a few rows of contexts to 131,072."""
    count = draw.pick(1, 2, 3)
    longest = draw.pick(2**15, 2**16, LONGEST) + draw.pick(1, 127, 129)
    rows = rows_of(draw, count, 4)
    context = np.maximum(longest - rows - draw.rng.integers(0, 64, count), 0)
    return [draw.request(draw.config(longest, dense=(1,)), draw.lengths(rows, context))]


def many_segments(draw: Draw) -> list[Request]:
    """A load plan of 65,535 ± 1 segments and some more: blocks of 16 tokens."""
    wanted = draw.near(SEGMENTS, SEGMENTS, SEGMENTS + 200)
    count = draw.pick(8, 9, 12)
    cuts = np.sort(draw.rng.integers(0, wanted // 8, count - 1)) + np.arange(1, count) * (wanted - wanted // 8) // count
    blocks = np.diff(np.concatenate([[0], cuts, [wanted]]))
    rows = draw.rng.integers(0, 8, count)
    context = np.maximum(blocks * 16 - rows, 0)
    longest = int((context + rows).max())
    lengths = Lengths(np.minimum(rows, blocks * 16), blocks * 16, np.zeros(count, dtype=np.bool_))
    return [draw.request(draw.config(longest, block=16), lengths)]


def captured(draw: Draw) -> list[Request]:
    """A captured graph's bucket of up to 1,024 sequences: the last ones are placeholders; tables wider than needed."""
    count = draw.pick(*BUCKETS)
    real = count - draw.pick(0, 1, 24, count // 3)
    inside = np.arange(count) < real
    rows = np.where(inside, draw.pick(1, 2, 4), 1)
    context = np.where(inside, draw.between(0, 8_000, count), 0)
    lengths = Lengths(rows, context + rows, ~inside)
    return [draw.request(draw.config(8_008), lengths, bucket=True)]


def counts_of_rows(draw: Draw) -> list[Request]:
    """Rows of a batch around 2⁸, 2¹⁰, 2¹², 2¹⁵ and 2¹⁶; in decode drafts of a few sequences, 2¹⁶ of 1,024 of them."""
    prompt = draw.path == "prompt"
    total = (
        draw.near(2**8, 2**10, 2**12, 2**15, *[2**16] * 6) if prompt else draw.near(2**8, 2**10, 2**12, *[2**16] * 3)
    )
    large = total >= 2**15
    count = 1_024 if large and not prompt else draw.pick(1, 2, 5)
    rows = np.full(count, total // count)
    rows[-1] += total - rows.sum()
    # So many rows are expanded where the window is short.
    config = draw.config(total + 2_000, window=draw.pick(0, *[SHORTEST_WINDOW] * 3) if large else 0)
    lengths = Lengths(rows, draw.between(0, 2_000, count) + rows, np.zeros(count, dtype=np.bool_))
    return [draw.request(config, lengths)]


def gathers(draw: Draw) -> list[Request]:
    """Up to 64 drafts a sequence; the tokens of a ZOS step come from the last step's samples and predictions."""
    count = draw.near(32, 64, 256)
    rows = rows_of(draw, count, draw.pick(2, 8, 64))
    request = draw.request(draw.config(4_096), draw.lengths(rows, draw.between(0, 4_000, count)))
    return [dataclasses.replace(request, gather=gather_of(draw, request)) if draw.path == "decode_zos" else request]


def gather_of(draw: Draw, request: Request) -> Gather:
    """Inputs of F-GATHER for a step: every second sequence or so continues a row of the last one."""
    rows = [sequence.seqlen_q for sequence in request.sequences]
    count, width = len(rows), max(rows) - 1
    cells = draw.rng.integers(-(2**31), 2**31, (count, width + 1))
    places = np.where(draw.rng.random(count) < 0.5, draw.rng.permutation(count), -1)
    return Gather(
        fresh_input_ids=tuple(draw.rng.integers(-(2**31), 2**31, sum(rows)).tolist()),
        prev_sampled=tuple(cells[:, 0].tolist()),
        prev_predict=tuple(map(tuple, cells[:, 1:].tolist())),
        remap=tuple(places.tolist()),
    )


def several_steps(draw: Draw) -> list[Request]:
    """Three steps of other sizes on one set of buffers."""
    config = draw.config(3_012)
    steps = []
    for count in (draw.near(256), draw.pick(3, 40), draw.near(64, 256, 512)):
        rows = rows_of(draw, count, 4)
        steps.append(draw.request(config, draw.lengths(rows, draw.between(0, 3_000, count))))
    return steps


@dataclass(frozen=True)
class Form:
    """A kind of batches: its name, the paths on which it exists, and what draws the steps of one."""

    name: str
    paths: tuple[Path, ...]
    """One that stands twice is drawn twice as often."""
    draw: Callable[[Draw], list[Request]]


ALL: tuple[Path, ...] = ("prompt", "decode", "decode_zos")
DECODE: tuple[Path, ...] = ("decode", "decode_zos")
FORMS = (
    Form("many short", ALL, many_short),
    Form("few deep", ALL, few_deep),
    Form("wide tables", DECODE, wide_tables),
    Form("long chunks", ("prompt",), long_chunks),
    Form("wide expansions", ALL, wide_expansions),
    Form("many segments", ("prompt",), many_segments),
    Form("captured", DECODE, captured),
    Form("counts of rows", ("prompt", "prompt", *ALL), counts_of_rows),
    Form("gathers", DECODE, gathers),
    Form("several steps", ALL, several_steps),
)


@dataclass(frozen=True)
class Batch:
    """Batch ``index`` of a seed: its steps run on one set of buffers."""

    seed: int
    index: int
    form: str
    steps: tuple[Request, ...]


def forms_of(claims: Claims) -> list[Form]:
    """The forms that exist on the paths to draw; none, if the conditions leave no constants."""
    if not claims.constants.block_sizes:
        return []
    return [form for form in FORMS if claims.some_of(*form.paths)]


def draw_batch(claims: Claims, seed: int, index: int) -> Batch:
    """Batch ``index`` of a seed, all of its steps valid.

    Raises:
        ValueError: there is no path to draw.
    """
    forms = forms_of(claims)
    if not forms:
        raise ValueError("there is no path to draw")
    form = forms[index % len(forms)]
    rng = generator(seed, index)
    paths = claims.some_of(*form.paths)
    draw = Draw(rng, pools_of(seed), claims, paths[int(rng.integers(len(paths)))])
    return Batch(seed, index, form.name, tuple(form.draw(draw)))
