"""Reading, checking, naming and writing case files.

A case file is untrusted: it is bounded in size, decoded straight into the types of
:mod:`inputmeta.conformance.cases.model`, and checked for what the types cannot say. Every error is one
:class:`CaseError` that names the file and the JSON path. Nothing in a case names a file: it is stored under the hash
of its content.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from inputmeta import oracle
from inputmeta.conformance.cases.allocated import allocation_problem
from inputmeta.conformance.cases.budget import excess
from inputmeta.conformance.cases.model import Case, Cell, Gather, Sequence, oracle_config, oracle_sequences
from inputmeta.conformance.cases.runs import RunsError, expand_runs, schema_with_runs, write_runs
from inputmeta.conformance.console import plain_text

MAX_FILE_BYTES = 64 * 2**20
MAX_BRACKETS = 2**20
"""Arrays and objects of a file: each costs memory, whatever is in it."""
MAX_EXPECTED_CELLS = 2**22
"""Cells of an expectation that is kept with a case."""
MAX_ERROR = 400
"""Characters of an error's text: it may quote the file."""
INLINE_WIDTH = 116


class CaseError(ValueError):
    """A case file that cannot be used. ``str()`` is one line: file, JSON path, what is wrong."""

    def __init__(self, text: str) -> None:
        super().__init__(plain_text(text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]}…"))


def load_case(path: Path) -> Case:
    """Read and check one case file.

    Raises:
        CaseError: unreadable, larger than 64 MiB, not JSON, not the schema, or inconsistent in itself.
    """
    data = read_file(path, MAX_FILE_BYTES, "a case file")
    try:
        return decode_case(data)
    except CaseError as error:
        raise CaseError(f"{path}: {error}") from error


def open_file(path: Path) -> BinaryIO:
    """A regular file, opened to be read. A device or a pipe, which may never end, is refused and not waited for.

    Raises:
        CaseError: cannot be opened, or no regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise CaseError(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CaseError(f"{path}: is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_file(path: Path, limit: int, what: str) -> bytes:
    """The bytes of a regular file.

    Raises:
        CaseError: as :func:`open_file`; cannot be read, or more than ``limit`` bytes.
    """
    with open_file(path) as file:
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise CaseError(f"{path}: {error.strerror}") from error
        if len(data) > limit:
            raise CaseError(f"{path}: {os.fstat(file.fileno()).st_size} bytes; {what} has at most {limit}")
    return data


def check_folder(folder: Path) -> None:
    """Whether files can be written in a folder, or it can be made; nothing is made yet.

    Raises:
        CaseError: it cannot be used: no folder, no permission, a name that is too long.
    """
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError as error:
        if folder.parent == folder or folder.is_symlink():
            raise CaseError(f"{folder}: {error.strerror}") from error
        try:
            check_folder(folder.parent)
        except CaseError as above:
            raise CaseError(f"{folder}: cannot be made: {above}") from above
        return
    except OSError as error:
        raise CaseError(f"{folder}: {error.strerror}") from error
    if not stat.S_ISDIR(mode):
        raise CaseError(f"{folder}: is no folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CaseError(f"{folder}: files cannot be written there")


def check_output(file: Path) -> None:
    """Whether a file can be written, or made; nothing is written yet. Raises CaseError."""
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        check_folder(file.parent)
        return
    except OSError as error:
        raise CaseError(f"{file}: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise CaseError(f"{file}: is a folder")
    if not os.access(file, os.W_OK):
        raise CaseError(f"{file}: cannot be written")


def decode_case(data: bytes) -> Case:
    """Decode and check one case from JSON bytes; raises :class:`CaseError` without a file name."""
    brackets = data.count(b"[") + data.count(b"{")
    if brackets > MAX_BRACKETS:
        raise CaseError(f"at $: {brackets} arrays and objects; a case file has at most {MAX_BRACKETS}")
    try:
        case = _decoded(data)
    except msgspec.ValidationError as error:
        message, _, where = str(error).rpartition(" - at ")
        raise CaseError(f"at {where.strip('`')}: {message}" if message else f"at $: {where}") from error
    except RunsError as error:
        raise CaseError(str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise CaseError(f"not JSON: {error}") from error
    _check_keys(data)
    check_case(case)
    return case


def _decoded(data: bytes) -> Case:
    """A case from JSON, arrays that are runs written out; raises msgspec errors and RunsError."""
    if b'"runs"' not in data:
        return msgspec.json.decode(data, type=Case)
    parts = msgspec.json.decode(data)
    expand_runs(parts)
    return msgspec.convert(parts, Case)


def check_case(case: Case) -> None:
    """Refuse a case for what its types cannot say: its text, its size, arrays that do not fit each other.

    Raises:
        CaseError: names the JSON path.
    """
    _check_text(case)
    _check_size(case)
    _check_gather(case)
    _check_out_fault(case)
    _check_allocation(case)
    _check_expected(case)


def _check_keys(data: bytes) -> None:
    """Refuse a key that stands twice in one object: readers disagree on which of the two counts."""

    def unique(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise CaseError(f"not JSON: key `{key}` stands twice in one object")
            seen.add(key)

    # Arrays of plain values hold no key and are most of a file.
    json.loads(re.sub(rb'\[[^][{}"]*\]', b"[]", data), object_pairs_hook=unique)


def _check_text(case: Case) -> None:
    """Text is printed: it may not hold what a terminal takes for a command."""
    origin = case.origin
    texts = [("id", case.id), ("title", case.title), ("origin.found_by", origin.found_by)]
    texts += [("origin.version", origin.version), ("origin.minimised_by", origin.minimised_by)]
    texts += [(f"tags[{index}]", tag) for index, tag in enumerate(case.tags)]
    for step, expected in enumerate(case.expected):
        texts += [(f"expected[{step}].fields", key) for key in expected.fields]
        texts += [(f"expected[{step}].refused", text) for r in expected.refused for text in (r.condition, r.field)]
    for where, text in texts:
        if plain_text(text) != text:
            raise CaseError(f"at $.{where}: holds a character that is not text")


def _check_size(case: Case) -> None:
    """Refuse a case that asks for too much before any of it is done, whatever its preconditions say of it."""
    over = excess(case)
    if over is not None:
        raise CaseError(f"at $.steps: {over}")


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
            _check_varlen(case, gather, step, f"$.gather[{index}].varlen")


def _check_gather_step(gather: Gather, step: tuple[Sequence, ...], where: str) -> None:
    total_q = sum(max(0, sequence.seqlen_q) for sequence in step)
    lengths = gather.varlen.seqlens_q if gather.varlen is not None else [sequence.seqlen_q for sequence in step]
    longest = max(lengths, default=0)
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


def _check_varlen(case: Case, gather: Gather, step: tuple[Sequence, ...], where: str) -> None:
    """I-33 and I-37, of a step that is to be built: one that breaks a precondition is refused for that alone."""
    varlen = gather.varlen
    if varlen is None:
        return
    config, sequences = oracle_config(case.config), oracle_sequences(step)
    if not oracle.violations(case.path, config, sequences):
        for problem in oracle.varlen_problems(config, sequences, gather, varlen):
            raise CaseError(f"at {where}: {problem}")


def _check_out_fault(case: Case) -> None:
    fault = case.out_fault
    if fault is None:
        return
    name, _, ratio = fault.key.partition(".")
    if name not in oracle.FIELDS or not (ratio == "" or ratio.isdecimal()):
        raise CaseError("at $.out_fault.key: is no flat key of a field")
    if fault.fault in {"mis-spaced", "overlapping"} and case.path != "decode_zos":
        raise CaseError(f"at $.out_fault.fault: {fault.fault} belongs to path decode_zos, not {case.path}")


def _check_allocation(case: Case) -> None:
    problem = allocation_problem(case)
    if problem is not None:
        raise CaseError(f"at $.{problem}")


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
    """Content hash of what the case means: path, configuration, steps, gather, table width, buffers' fault, allocation.

    Title, ``wants``, tags, origin and the cached expectation do not count. 16 hexadecimal digits.
    """
    meaning: tuple[object, ...] = (case.path, case.config, case.steps, case.gather, case.max_num_blocks)
    meaning += tuple(part for part in (case.out_fault, case.allocation) if part is not None)
    return hashlib.sha256(msgspec.json.encode(meaning, order="deterministic")).hexdigest()[:16]


def case_size(case: Case) -> tuple[int, int]:
    """Sequences over all steps, and bytes of compact JSON."""
    return sum(len(step) for step in case.steps), len(msgspec.json.encode(case))


def format_case(case: Case) -> str:
    """Canonical JSON text: keys in declaration order, defaults left out, one line a field, newline at the end.

    An array is written as runs where :func:`inputmeta.conformance.cases.runs.as_runs` gives any.
    """
    parts = msgspec.to_builtins(case)
    write_runs(parts)
    return _layout(parts, "") + "\n"


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


def replace_file(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, also after a power cut. Raises OSError.

    What is there and no file, a device or a pipe, is written to: put in its place, a file would take it from everybody.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    # A new file of a name nobody can guess: one that is there already may be a link to somewhere else.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def save_case(case: Case, path: Path) -> None:
    """Write one case in canonical form, replacing the file in one step. Its title and origin become plain text.

    Raises:
        CaseError: the file cannot be written.
    """
    origin = case.origin
    found_by, version = plain_text(origin.found_by), plain_text(origin.version)
    origin = msgspec.structs.replace(origin, found_by=found_by, version=version)
    case = msgspec.structs.replace(case, title=plain_text(case.title), origin=origin)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, format_case(case))
    except OSError as error:
        raise CaseError(f"{path}: {error.strerror}") from error


def case_schema() -> dict[str, Any]:
    """JSON Schema of a case file, generated from the types."""
    schema = msgspec.json.schema(Case)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "inputmeta case"
    schema_with_runs(schema)
    return schema
