"""P-OUT broken: one of the caller's buffers is not what the batch needs."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case, FaultKind, OutFault, oracle_config, oracle_sequences
from inputmeta.conformance.cases.request import affordable_expansions

from .breaking import on_case
from .draws import Draw, pick
from .int32 import block_count


def buffers(case: Case) -> dict[str, oracle.Field]:
    """Declarations by flat key of the tensors that every step writes, those on demand included."""
    config = oracle_config(case.config)
    steps = (affordable_expansions(config, oracle_sequences(step)) for step in case.steps)
    keys = oracle.keys_of(case.path, config, frozenset.intersection(*steps))
    fields = {key: oracle.FIELDS[key.partition(".")[0]] for key in keys}
    return {key: field for key, field in fields.items() if field.rows != "scalar"}


def _matrices(case: Case) -> list[str]:
    """Keys of two dimensions. The columns of tables are a matter of their own (I-4)."""
    return [key for key, field in buffers(case).items() if len(field.shape) == 2 and key != "block_tables"]


def _last_buckets(case: Case) -> list[str]:
    """The last key of every field of which a ZOS step has several buckets in one buffer."""
    names: dict[str, list[str]] = {}
    for key, field in buffers(case).items():
        if case.path == "decode_zos" and field.bucket is not None and field.expansion is None:
            names.setdefault(field.name, []).append(key)
    return [keys[-1] for keys in names.values() if len(keys) > 1]


def _register(fault: FaultKind, keys: Callable[[Case], list[str]]) -> None:
    @on_case(f"P-OUT:{fault}", keys)
    def edit(draw: Draw, case: Case) -> Case:
        key = pick(draw, keys(case))
        return replace(case, out_fault=OutFault(key=key, fault=fault))


_register("missing", lambda case: list(buffers(case)))
_register("short", lambda case: list(buffers(case)))
_register("narrow", _matrices)
_register("dtype", lambda case: list(buffers(case)))
_register("read-only", lambda case: list(buffers(case)))
_register("mis-spaced", _last_buckets)
_register("overlapping", _last_buckets)


def _widest(case: Case) -> int:
    return min(max(block_count(case.config, sequence.seqlen_k) for sequence in step) for step in case.steps)


@on_case("P-OUT:narrow-table", lambda case: case.path != "prompt" and _widest(case) > 1)
def _narrow_table(draw: Draw, case: Case) -> Case:
    """Tables of one column fewer than the step that needs the fewest (I-4)."""
    return replace(case, max_num_blocks=_widest(case) - 1)
