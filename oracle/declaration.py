"""What a field declaration says, and what is derived from it: the paths, shapes, rows and neutral values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .formulas import READS
from .inputs import PATHS, MetadataConfig, Path
from .units import Ratio

Cell = int | bool | None
"""A cell of a field; None is not defined."""

Dtype = Literal["int32", "bool", "int"]
Bucket = Literal["ca", "sparse", "dense"]
RowKind = Literal[
    "query",
    "sequence",
    "boundary",
    "compressed",
    "swa_segment",
    "ca_segment",
    "mirror",
    "consumer",
    "consumer_mirror",
    "contribution",
    "scalar",
]
ROW_COUNTS: dict[RowKind, tuple[str, ...]] = {
    "query": ("total_q",),
    "sequence": ("n_seq",),
    "boundary": ("n_seq + 1",),
    "compressed": ("compressed_rows",),
    "swa_segment": ("swa_segments",),
    "ca_segment": ("ca_segments",),
    "mirror": ("cp_mirror_len",),
    "consumer": ("consumer_total_q",),
    "consumer_mirror": ("consumer_mirror_len",),
    "contribution": ("contrib_pad_len",),
    "scalar": (),
}
"""Kind of rows -> the symbolic dimension that counts them; a scalar has none."""

EXPANSIONS: tuple[str, ...] = ("kv_swa_full_index", "kv_swa_index", "kv_ca_index")
"""Fields that are computed on demand from pivots or offsets; ``kv_ca_index_len`` goes with ``kv_ca_index``."""


class Columns(NamedTuple):
    """The cells of one row: the symbolic dimension that counts them ("" for one cell), and their names if they have."""

    width: str
    names: tuple[str, ...] = ()


SINGLE = Columns("")
RUN = Columns("2", ("offset", "len"))
PIVOTS = Columns("4", ("P0", "P1", "P2", "P3"))
SEGMENT = Columns("4", ("src_block_id", "src_begin", "src_end", "dst_offset"))
LOOK_BACK = Columns("max_ngram_size")
TABLE = Columns("max_num_blocks")
WINDOW = Columns("window_size")
DENSE = Columns("ca_width")

Call = Literal["prepare", "mirror", "expand"]
CALLS: tuple[Call, ...] = ("prepare", "mirror", "expand")
"""What builds a step, in order: preparation, the mirror of a prompt with CP, expansion on demand (I-49)."""


@dataclass(frozen=True)
class Presence:
    """Where a field exists: its paths, and which configurations of these have it."""

    paths: tuple[Path, ...]
    has: Callable[[MetadataConfig], bool] = lambda _: True


ALL = Presence(PATHS)
NGRAM = Presence(PATHS, lambda config: config.max_ngram_size > 0)
EAGER = Presence(("prompt", "decode"))
DECODE = Presence(("decode", "decode_zos"))
PROMPT = Presence(("prompt",))
CP = Presence(("prompt",), lambda config: config.cp_size > 1)
MASK = Presence(("prompt",), lambda config: config.yoco_mode == "mask")
COMPACT = Presence(("prompt",), lambda config: config.yoco_mode == "compact")
COMPACT_CP = Presence(("prompt",), lambda config: config.yoco_mode == "compact" and config.cp_size > 1)

A_QUERY: tuple[tuple[Path, RowKind], ...] = (("decode", "query"), ("decode_zos", "query"))
"""Decode has a row a query row."""
A_SEQUENCE: tuple[tuple[Path, RowKind], ...] = (("decode_zos", "sequence"),)
"""ZOS decode has a row a sequence."""


@dataclass(frozen=True)
class Layout:
    """Kind and symbolic shape of a field's rows; ``total_q`` and the like stand for at least one row (I-3)."""

    rows: RowKind
    shape: tuple[str, ...]


@dataclass(frozen=True)
class Field:
    """One field of the metadata, declared once.

    ``bucket``: None, or the ratios that the field has an entry for each (flat key ``name.ratio``). ``neutral``: every
    cell of a row without a query (I-3, I-8, I-14), "pad_token" the configuration's; None: not defined, or the field
    has no such row. ``formulas``: the one that says what the cells hold, then those that it rests on. ``unit``: of each
    column. ``defined``: "every cell", or the rule. ``other_rows``, ``other_formulas``: paths where the kind of rows, or
    the first formula, differ. ``mirrored``: with cp_size > 1 a prompt's rows are the mirrored ones (I-15).
    ``expansion``: the entry of EXPANSIONS that computes it, None if prepare_* writes it.
    """

    name: str
    where: Presence
    dtype: Dtype
    rows: RowKind
    row_columns: Columns
    bucket: Bucket | None
    neutral: Cell | Literal["pad_token"]
    formulas: tuple[str, ...]
    unit: str
    meaning: str
    mirrored: bool = False
    expansion: str | None = None
    defined: str = "every cell"
    other_rows: tuple[tuple[Path, RowKind], ...] = ()
    other_formulas: tuple[tuple[Path | Literal["mirror"], str], ...] = ()

    @property
    def formula(self) -> str:
        """The formula that says what the cells hold, on most paths."""
        return self.formulas[0]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths that have the field under some configuration."""
        return self.where.paths

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, () where they have none."""
        return self.row_columns.names

    @property
    def shape(self) -> tuple[str, ...]:
        """Symbolic dimensions on most paths; a number stands for itself, the first one counts the rows."""
        return self.shape_of(self.rows)

    def shape_of(self, rows: RowKind) -> tuple[str, ...]:
        """Symbolic dimensions for a kind of rows."""
        width = self.row_columns.width
        return (*ROW_COUNTS[rows], width) if width else ROW_COUNTS[rows]

    def formula_on(self, path: Path, config: MetadataConfig) -> str:
        """The formula that says what the cells hold on a path; "mirror" is a prompt with cp_size > 1."""
        others = dict(self.other_formulas)
        if path == "prompt" and config.cp_size > 1 and "mirror" in others:
            return others["mirror"]
        return others.get(path, self.formula)

    def reads(self, path: Path, config: MetadataConfig) -> frozenset[str]:
        """The formulas from whose values the cells are computed on a path, directly or not, the field's own left out.

        Mirrored rows are chosen by F-ZIGZAG.
        """
        own = self.formula_on(path, config)
        found: set[str] = set()
        waiting = [own, *self.formulas]
        if self.layout(path, config).rows in ("mirror", "consumer_mirror"):
            waiting.append("F-ZIGZAG")
        while waiting:
            formula = waiting.pop()
            if formula not in found:
                found.add(formula)
                waiting += READS.get(formula, ())
        return frozenset(found - {own})

    def layout(self, path: Path, config: MetadataConfig) -> Layout:
        """Row kind and symbolic shape on a path: mirrored rows replace query rows under CP."""
        rows = dict(self.other_rows).get(path, self.rows)
        if self.mirrored and path == "prompt" and config.cp_size > 1:
            rows = "mirror"
        return Layout(rows, self.shape_of(rows))

    def written_by(self, path: Path, config: MetadataConfig) -> Call:
        """The call that fills the field's buffer (I-49)."""
        if self.expansion is not None or (path == "prompt" and self.formula == "F-KLEN"):
            return "expand"
        rows = self.layout(path, config).rows
        return "mirror" if rows == "mirror" or (self.where is CP and self.formula == "F-REVERSE") else "prepare"

    def neutral_cell(self, config: MetadataConfig) -> Cell:
        """Every cell of a row without a query."""
        return config.pad_token if self.neutral == "pad_token" else self.neutral

    def is_present(self, path: Path, config: MetadataConfig) -> bool:
        """Whether a path has the field under this configuration (whatever is expanded)."""
        return path in self.paths and self.where.has(config)

    def buckets(self, config: MetadataConfig) -> tuple[Ratio | None, ...]:
        """The ratios that the field has an entry for, ascending; (None,) for a field without buckets."""
        if self.bucket is None:
            return (None,)
        return {"ca": config.ca_ratios, "sparse": config.sparse, "dense": config.dense}[self.bucket]

    def keys(self, config: MetadataConfig) -> tuple[str, ...]:
        """Flat keys of the field: ``name``, or ``name.ratio`` for each ratio of its bucket."""
        return tuple(flat_key(self.name, ratio) for ratio in self.buckets(config))


def flat_key(name: str, bucket: int | None) -> str:
    """The flat key of a field's bucket.

    >>> flat_key("klen", 4), flat_key("positions", None)
    ('klen.4', 'positions')
    """
    return name if bucket is None else f"{name}.{bucket}"
