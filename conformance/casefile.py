"""Reading, checking, naming and writing case files.

A case file is untrusted: it is bounded in size, decoded straight into the types of :mod:`conformance.cases`, and
checked for what the types cannot say. Every error is one :class:`CaseError` that names the file and the JSON path.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from conformance.cases import Case, Cell, Gather, Sequence

MAX_FILE_BYTES = 64 * 2**20
INLINE_WIDTH = 116


class CaseError(ValueError):
    """A case file that cannot be used. ``str()`` is one line: file, JSON path, what is wrong."""


def load_case(path: Path) -> Case:
    """Read and check one case file.

    Raises:
        CaseError: unreadable, larger than 64 MiB, not JSON, not the schema, or inconsistent in itself.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise CaseError(f"{path}: {size} bytes; a case file has at most {MAX_FILE_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise CaseError(f"{path}: {error.strerror}") from error
    try:
        return decode_case(data)
    except CaseError as error:
        raise CaseError(f"{path}: {error}") from error


def decode_case(data: bytes) -> Case:
    """Decode and check one case from JSON bytes; raises :class:`CaseError` without a file name."""
    try:
        case = msgspec.json.decode(data, type=Case)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        raise CaseError(f"at {where.strip('`') or '$'}: {message}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise CaseError(f"not JSON: {error}") from error
    _check_gather(case)
    _check_expected(case)
    return case


def _check_gather(case: Case) -> None:
    if not case.gather:
        return
    if case.path != "decode_zos":
        raise CaseError(f"at $.gather: belongs to path decode_zos, not {case.path}")
    if len(case.gather) != len(case.steps):
        raise CaseError(f"at $.gather: {len(case.gather)} entries for {len(case.steps)} steps")
    for index, (gather, step) in enumerate(zip(case.gather, case.steps, strict=True)):
        if gather is not None:
            _check_gather_step(gather, step, f"$.gather[{index}]")


def _check_gather_step(gather: Gather, step: tuple[Sequence, ...], where: str) -> None:
    total_q = sum(max(0, sequence.seqlen_q) for sequence in step)
    longest = max((sequence.seqlen_q for sequence in step), default=0)
    if len(gather.fresh_input_ids) != total_q:
        raise CaseError(f"at {where}.fresh_input_ids: {len(gather.fresh_input_ids)} ids for {total_q} query rows")
    if len(gather.remap) != len(step):
        raise CaseError(f"at {where}.remap: {len(gather.remap)} entries for {len(step)} sequences")
    if len(gather.prev_predict) != len(gather.prev_sampled):
        raise CaseError(f"at {where}.prev_predict: {len(gather.prev_predict)} rows, {len(gather.prev_sampled)} sampled")
    for index, source in enumerate(gather.remap):
        if source >= len(gather.prev_sampled):
            raise CaseError(f"at {where}.remap[{index}]: {source}, but there are {len(gather.prev_sampled)} rows")
    for index, row in enumerate(gather.prev_predict):
        if len(row) < longest - 1:
            raise CaseError(f"at {where}.prev_predict[{index}]: {len(row)} drafts, {longest - 1} are read")


def _check_expected(case: Case) -> None:
    if case.expected and len(case.expected) != len(case.steps):
        raise CaseError(f"at $.expected: {len(case.expected)} entries for {len(case.steps)} steps")
    for index, expected in enumerate(case.expected):
        for key, array in expected.fields.items():
            if not _fits(array.data, array.shape):
                raise CaseError(f"at $.expected[{index}].fields.{key}.data: is not of shape {list(array.shape)}")


def _fits(data: Cell | tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    if not shape:
        return not isinstance(data, tuple)
    if not isinstance(data, tuple) or len(data) != shape[0]:
        return False
    return all(_fits(item, shape[1:]) for item in data)


def case_id(case: Case) -> str:
    """Content hash of what the case means: path, configuration, steps, gather inputs and table width.

    Title, tags, origin and the cached expectation do not count. 16 hexadecimal digits.
    """
    meaning = (case.path, case.config, case.steps, case.gather, case.max_num_blocks)
    return hashlib.sha256(msgspec.json.encode(meaning, order="deterministic")).hexdigest()[:16]


def format_case(case: Case) -> str:
    """Canonical JSON text: keys in declaration order, defaults left out, one line a field, newline at the end."""
    return _layout(msgspec.to_builtins(case), "") + "\n"


def _layout(value: object, indent: str) -> str:
    inline = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(inline) <= INLINE_WIDTH:
        return inline
    inner = indent + " "
    if isinstance(value, dict):
        items = [f"{inner}{json.dumps(key)}: {_layout(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict | list | tuple):
        return "[\n" + ",\n".join(f"{inner}{_layout(item, inner)}" for item in value) + f"\n{indent}]"
    return inline


def save_case(case: Case, path: Path) -> None:
    """Write one case in canonical form, replacing the file in one step.

    Raises:
        CaseError: the file cannot be written.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(format_case(case), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise CaseError(f"{path}: {error.strerror}") from error


def case_schema() -> dict[str, Any]:
    """JSON Schema of a case file, generated from the types."""
    schema = msgspec.json.schema(Case)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "inputmeta case"
    return schema
