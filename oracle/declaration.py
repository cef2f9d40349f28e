"""What a field declaration says, and what is derived from it: the paths, shapes and row kinds of a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .inputs import MetadataConfig, Path
from .units import Ratio

Dtype = Literal["int32", "bool", "int"]
Bucket = Literal["ca", "sparse", "dense"]
RowKind = Literal[
    "query",
    "sequence",
    "boundary",
    "compressed",
    "segment",
    "mirror",
    "consumer",
    "consumer_mirror",
    "contribution",
    "scalar",
]
Need = Literal["always", "ngram", "cp", "yoco_mask", "yoco_compact", "yoco_compact_cp"]
"""When a path has the field: always, or with n-grams, with cp_size > 1, with a YoCo mode, with compact mode and CP."""

EXPANSIONS: tuple[str, ...] = ("kv_swa_full_index", "kv_swa_index", "kv_ca_index")
"""Fields that are computed on demand from pivots or offsets; ``kv_ca_index_len`` goes with ``kv_ca_index``."""


@dataclass(frozen=True)
class Layout:
    """Kind and symbolic shape of a field's rows; ``total_q`` and the like stand for at least one row (I-3)."""

    rows: RowKind
    shape: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of the metadata, declared once.

    ``shape``: symbolic dimensions; a number stands for itself, the first one counts the rows. ``bucket``: None, or the
    ratios that the field has an entry for each (flat key ``name.ratio``). ``defined``: "every cell", or the rule.
    ``other_layouts``, ``other_formulas``: paths where rows or shape, or the primary formula, differ. ``mirrored``: with
    cp_size > 1 a prompt's rows are the mirrored ones (I-15). ``expansion``: the entry of EXPANSIONS that computes it,
    None if prepare_* writes it.
    """

    name: str
    formula: str
    formulas: tuple[str, ...]
    paths: tuple[Path, ...]
    dtype: Dtype
    rows: RowKind
    shape: tuple[str, ...]
    unit: str
    meaning: str
    bucket: Bucket | None = None
    defined: str = "every cell"
    producer: str = "the step's builder"
    consumer: str
    needs: Need = "always"
    mirrored: bool = False
    expansion: str | None = None
    other_layouts: tuple[tuple[Path, Layout], ...] = ()
    other_formulas: tuple[tuple[Path | Literal["mirror"], str], ...] = ()

    def formula_on(self, path: Path, config: MetadataConfig) -> str:
        """The formula that says what the cells hold on a path; "mirror" is a prompt with cp_size > 1."""
        others = dict(self.other_formulas)
        if path == "prompt" and config.cp_size > 1 and "mirror" in others:
            return others["mirror"]
        return others.get(path, self.formula)

    def layout(self, path: Path, config: MetadataConfig) -> Layout:
        """Row kind and symbolic shape on a path: mirrored rows replace query rows under CP."""
        for other_path, layout in self.other_layouts:
            if other_path == path:
                return layout
        if self.mirrored and path == "prompt" and config.cp_size > 1:
            return Layout("mirror", ("cp_mirror_len", *self.shape[1:]))
        return Layout(self.rows, self.shape)

    def is_present(self, path: Path, config: MetadataConfig) -> bool:
        """Whether a path has the field under this configuration (whatever is expanded)."""
        if path not in self.paths:
            return False
        with_cp = config.cp_size > 1
        return {
            "always": True,
            "ngram": config.max_ngram_size > 0,
            "cp": with_cp,
            "yoco_mask": config.yoco_mode == "mask",
            "yoco_compact": config.yoco_mode == "compact",
            "yoco_compact_cp": config.yoco_mode == "compact" and with_cp,
        }[self.needs]

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
