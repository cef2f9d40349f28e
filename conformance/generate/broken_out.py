"""P-OUT broken: one of the caller's buffers is not what the batch needs."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from msgspec.structs import replace

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case, OutFault, oracle_config, oracle_sequences

from .breaking import on_case
from .draws import pick
from .int32 import block_count, ca_ratios

Shape = tuple[int, ...]


def buffers(case: Case) -> dict[str, Shape]:
    """Shapes by flat key, at the first step, of the tensors that a builder writes in one call, whatever the subject.

    Expansions are written on demand, and a rank's mirror after the full layout: by then cells have been written.
    """
    config, sequences = oracle_config(case.config), oracle_sequences(case.steps[0])
    shapes = oracle.field_shapes(case.path, config, sequences, case.max_num_blocks)
    on_demand = {name for name, field in oracle.FIELDS.items() if field.expansion} | {"klen"}
    return {key: shape for key, (field, shape) in shapes.items() if shape and field.name not in on_demand}


def _without_mirror(case: Case) -> bool:
    return case.path != "prompt" or case.config.cp_size == 1


def _is_matrix(key: str, shape: Shape) -> bool:
    """The columns of tables are a matter of their own (I-4)."""
    return len(shape) == 2 and key != "block_tables"


def _has_stacks(case: Case) -> bool:
    return case.path == "decode_zos" and len(ca_ratios(case.config)) > 1


def _last_buckets(case: Case) -> list[str]:
    """The last key of every field that has several buckets."""
    names: dict[str, list[str]] = {}
    for key in buffers(case):
        if "." in key:
            names.setdefault(key.partition(".")[0], []).append(key)
    return [keys[-1] for keys in names.values() if len(keys) > 1]


def _register(fault: str, keys: Callable[[Case], list[str]], when: Callable[[Case], object]) -> None:
    @on_case(f"P-OUT:{fault}", when)
    def edit(draw: st.DrawFn, case: Case) -> Case:
        key = pick(draw, keys(case))
        return replace(case, out_fault=OutFault(key=key, fault=fault))  # type: ignore[arg-type]


_register("missing", lambda case: list(buffers(case)), _without_mirror)
_register("short", lambda case: list(buffers(case)), _without_mirror)
_register(
    "narrow",
    lambda case: [key for key, shape in buffers(case).items() if _is_matrix(key, shape)],
    lambda case: _without_mirror(case) and (case.path == "prompt" or case.config.dense_ratios),
)
_register("dtype", lambda case: list(buffers(case)), _without_mirror)
_register("mis-spaced", _last_buckets, _has_stacks)
_register("overlapping", _last_buckets, _has_stacks)


def _widest(case: Case) -> int:
    return min(max(block_count(case.config, sequence.seqlen_k) for sequence in step) for step in case.steps)


@on_case("P-OUT:narrow-table", lambda case: case.path != "prompt" and _widest(case) > 1)
def _narrow_table(draw: st.DrawFn, case: Case) -> Case:
    """Tables of one column fewer than the step that needs the fewest (I-4)."""
    return replace(case, max_num_blocks=_widest(case) - 1)
