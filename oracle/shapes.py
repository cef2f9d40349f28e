"""The shapes of a batch's fields without their cells."""

from __future__ import annotations

from collections.abc import Sequence

from . import assemble
from .declaration import COMPACT, COMPACT_CP, EXPANSIONS, Field, flat_key
from .fields import FIELDS
from .inputs import MetadataConfig, Path, SequenceMetadata
from .preconditions import ratio_violations


def field_shapes(
    path: Path,
    config: MetadataConfig,
    sequences: Sequence[SequenceMetadata],
    max_num_blocks: int | None = None,
) -> dict[str, tuple[Field, tuple[int, ...]]]:
    """Declaration and shape of every field by flat key, expansions included, whether or not the batch is valid.

    Of a batch that breaks a precondition they are what its lengths give, which may be negative. A configuration that
    breaks P-RATIO has no shapes at all: the result is empty. Fields of the compact layout are left out: their sizes
    take the whole truncation.

    >>> config = MetadataConfig(block_size=4, window_size=2, swa_block_size=2, max_model_len=8, sparse_ratios=(2,))
    >>> shapes = field_shapes("decode", config, [SequenceMetadata(seqlen_q=1, seqlen_k=5)])
    >>> shapes["kv_swa_index"][1], shapes["klen.2"][1], shapes["total_q"][1]
    ((1, 2), (1,), ())
    """
    if list(ratio_violations(config)):
        return {}
    batch = assemble.batch_of(
        path,
        config,
        sequences,
        rows=(),
        expand=frozenset(EXPANSIONS),
        gather=None,
        max_num_blocks=max_num_blocks,
    )
    sheet = assemble.sheet_of(batch)
    shapes = {}
    for field in FIELDS.values():
        if field.is_present(path, config) and field.where not in (COMPACT, COMPACT_CP):
            for bucket in field.buckets(config):
                shapes[flat_key(field.name, bucket)] = (field, sheet.shape_of(field, bucket))
    return shapes
