"""Zigzag in another flavour, as dialects: what no rank can translate alone is held to relations."""

from __future__ import annotations

from inputmeta import oracle
from inputmeta.conformance.dialects.base import Dialect
from inputmeta.conformance.dialects.zigzag import BALANCED, ROUND_ROBIN, Flavour

MIRRORED_FIELDS = frozenset(
    name
    for name, field in oracle.FIELDS.items()
    if field.mirrored
    or field.rows in ("mirror", "consumer_mirror", "contribution")
    or not {"F-ZIGZAG", "F-REVERSE", "F-CONTRIB"}.isdisjoint(field.formulas)
)
"""Fields whose rows are a rank's own, or that say which these are."""


def zigzag(flavour: Flavour, says: str) -> Dialect:
    """The dialect of a flavour."""
    return Dialect(
        name=f"zigzag-{flavour.name}",
        says=says,
        fields=MIRRORED_FIELDS,
        no_inverse="a rank holds other rows than the specification's, so none can be translated without the others; "
        "all ranks together are held to relations: partition, balance, order in a rank, inverse of the reverse index",
    )


FLAVOURS: dict[str, Flavour] = {f"zigzag-{flavour.name}": flavour for flavour in (BALANCED, ROUND_ROBIN)}
"""The flavour of each dialect."""
FLAVOURED = (
    zigzag(BALANCED, "zigzag blocks differ by at most a row, and a rank holds all first blocks before all second ones"),
    zigzag(ROUND_ROBIN, "rows of a chunk go to the ranks in turn, row j to rank j % p"),
)
