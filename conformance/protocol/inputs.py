"""Whether a subject writes to what it is given: the values of a request, before and after."""

from __future__ import annotations

import numpy as np

from inputmeta.conformance.cases.inputs import fixed
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.protocol import messages as wire


def inputs_of(request: Request) -> dict[str, object]:
    """Every value of a request by its place, lists as they are now: none can be written to, only be replaced."""
    inputs: dict[str, object] = {name: getattr(request, name, None) for name in ("path", "max_num_blocks", "expand")}
    inputs["sequences"] = len(request.sequences)
    parts = [(f"sequences[{index}]", sequence) for index, sequence in enumerate(request.sequences)]
    for place, part, kind in (
        ("config", request.config, wire.Config),
        ("gather", request.gather, wire.Gather),
        ("allocation", request.allocation, wire.Allocation),
        *((place, sequence, wire.Sequence) for place, sequence in parts),
    ):
        inputs |= {f"{place}.{name}": fixed(getattr(part, name, None)) for name in kind.__struct_fields__}
    inputs |= {f"out[{key}]": getattr(view, "shape", None) for key, view in (request.out or {}).items()}
    return inputs


def changed_input(before: dict[str, object], now: dict[str, object]) -> str | None:
    """The first place of a request that holds another value than before, None if there is none."""
    for place in [*before, *now]:
        if place not in before or place not in now:
            return place
        old, new = before[place], now[place]
        if old is not new and (type(old) is not type(new) or differ(old, new)):
            return place
    return None


def differ(old: object, new: object) -> bool:
    """Whether two values of one type are not equal."""
    return not np.array_equal(old, new) if isinstance(old, np.ndarray) else old != new  # type: ignore[arg-type]
