"""F-EXTRACT, the first stage of a ZOS step, of a subject that shows it: what the host takes from the sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.promises import ContainerSubject, require
from inputmeta.oracle import zos

MEMBERS = tuple(field.name for field in fields(zos.MetadataZOS))
"""What is extracted, by the names of SPEC.md chapter 10."""


def extracts_as_the_oracle(subject: ContainerSubject, request: Request) -> None:
    """I-22: each member holds what F-EXTRACT says, in its first cells; what the subject has no member for is left out.

    An array may be longer: of no block at all it may have a cell. Dtypes and shapes are the subject's own.
    """
    wanted = zos.extract(request.config, request.sequences)
    step = subject.extract(request)
    found = {name: member(step, name) for name in MEMBERS}
    require(any(value is not None for value in found.values()), f"extract: has none of {', '.join(MEMBERS)}")
    for name, value in found.items():
        if value is None:
            continue
        cells = np.asarray(value).reshape(-1)
        want = np.asarray(getattr(wanted, name), dtype=np.int64)
        count = len(want)
        require(len(cells) >= count, f"extract: {name} has {len(cells)} cells, want {count}", name)
        wrong = np.flatnonzero(cells[:count] != want)
        if wrong.size:
            place = int(wrong[0])
            require(False, f"extract: {name}[{place}] is {cells[place]}, want {want[place]}", name)


def member(step: Any, name: str) -> Any:  # noqa: ANN401 - the subject's own
    """A member of what was extracted, which has them as attributes or by key; None if it has it not."""
    return step.get(name) if isinstance(step, Mapping) else getattr(step, name, None)
