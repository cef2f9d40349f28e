"""The corpus: cases as files, one JSON file each, installed with the package."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import msgspec

from inputmeta import oracle
from inputmeta.conformance.cases.files import CaseError, case_id, case_schema, format_case, load_case, save_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import WantsError, complete_case, load_wanted, require_wanted, wants_of

SCHEMA_FILE = "case.schema.json"
BUG_CLASSES = {
    "SPEC": "draft and accept accounting, the edge at the longest length",
    "STALE": "the tail of a reused buffer keeps the last step's values",
    "SENT": "a padding or dummy sentinel reaches a real slot",
    "BT": "block-table width, stride or block-size namespace",
    "WIN": "window edge off by one, or two conventions mixed",
    "CHUNK": "partial chunk, prefix hit, truncated prefill",
    "OVF": "an int32 product wraps before it is widened or checked",
    "CMP": "compression boundary, compressed and raw units mixed",
    "ZERO": "zero-length query, key or range",
    "CU": "cu_seqlens with and without the leading 0, lengths taken for ends",
    "RING": "ring wrap, ring without room for drafts",
    "CP": "zigzag padding and reordering",
    "AGREE": "two builders of the same batch disagree",
    "ALIAS": "aliasing, asynchronous copies, a cached derived view",
    "DTYPE": "dtype, strides or layout reinterpreted",
    "LOOK": "n-gram look-back crosses a sequence, a chunk or a draft",
    "RANK": "ranks disagree after a broadcast",
}
"""Classes of fault that a case may guard against -> what goes wrong. The corpus README has the same table."""


def bundled_corpus() -> Path:
    """Folder of the corpus that is installed with the package."""
    return Path(str(files("inputmeta.corpus"))) / "cases"


def case_files(folder: Path) -> list[Path]:
    """The case files of a corpus folder, in name order.

    Raises:
        CaseError: the folder is not there, cannot be read, or holds no case.
    """
    try:
        found = sorted(folder.glob("*.json"))
    except OSError as error:
        raise CaseError(f"{folder}: {error.strerror}") from error
    if not found:
        raise CaseError(f"{folder}: no case files")
    return found


def load_corpus(folder: Path, load: Callable[[Path], Case] = load_wanted) -> Iterator[tuple[Path, Case]]:
    """Every case of a corpus with its file; raises :class:`CaseError` at the first that cannot be used.

    ``load``: reads a file; as it is, or (by default) as one to be run.
    """
    for path in case_files(folder):
        yield path, load(path)


def schema_text() -> str:
    """The JSON Schema of case files as it is kept beside the cases."""
    return json.dumps(case_schema(), indent=1, ensure_ascii=False) + "\n"


def add_case(case: Case, folder: Path) -> Path:
    """Complete a case, what it wants included, and store it under a name made from its title. Returns the new file.

    Raises:
        CaseError: it has no title, or the corpus already holds the same content.
    """
    if not case.title:
        raise CaseError("at $.title: a corpus case says what it guards")
    complete = complete_case(msgspec.structs.replace(case, wants=wants_of(case)))
    for path in sorted(folder.glob("*.json")):
        if load_case(path).id == complete.id:
            raise CaseError(f"{path}: already holds this case")
    name = slug(case.title) or complete.id  # a title may hold no letter that a file name takes
    target = folder / f"{name}.json"
    if target.exists():
        target = folder / f"{name}-{complete.id[:6]}.json"
    save_case(complete, target)
    return target


def slug(title: str, most: int = 80) -> str:
    """Name made of a title: lower case, words joined by hyphens, at most ``most`` characters of ASCII.

    >>> slug("F-NCQ: a chunk inside one group has one row")
    'f-ncq-a-chunk-inside-one-group-has-one-row'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:most].rstrip("-")


def format_corpus(folder: Path, *, check: bool) -> list[Path]:
    """Bring ids, expectations, layout and the schema up to date; returns the files that (would) change."""
    changed = []
    for path, case in load_corpus(folder, load_case):
        text = format_case(complete_case(case))
        if path.read_text(encoding="utf-8") != text:
            changed.append(path)
            if not check:
                path.write_text(text, encoding="utf-8")
    schema = folder.parent / SCHEMA_FILE
    if not schema.exists() or schema.read_text(encoding="utf-8") != schema_text():
        changed.append(schema)
        if not check:
            schema.write_text(schema_text(), encoding="utf-8")
    return changed


def lint_corpus(folder: Path) -> list[str]:
    """Everything that is wrong with a corpus, one line each: files, ids, titles, tags, stale expectations."""
    problems = []
    ids: dict[str, list[str]] = defaultdict(list)
    titles: dict[str, list[str]] = defaultdict(list)
    for path in case_files(folder):
        try:
            case = load_case(path)
        except CaseError as error:
            problems.append(str(error))
            continue
        ids[case_id(case)].append(path.name)
        titles[case.title].append(path.name)
        problems += [f"{path.name}: {problem}" for problem in lint_case(case, path)]
    problems += [f"{', '.join(names)}: the same case" for names in ids.values() if len(names) > 1]
    problems += [f"{', '.join(names)}: the same title" for names in titles.values() if len(names) > 1]
    schema = folder.parent / SCHEMA_FILE
    if not schema.exists() or schema.read_text(encoding="utf-8") != schema_text():
        problems.append(f"{schema.name}: is not the schema of this version; run corpus fmt")
    return problems


def lint_case(case: Case, path: Path) -> Iterator[str]:
    """What is wrong with one case of a corpus."""
    if not case.title:
        yield "at $.title: a corpus case says what it guards"
    if not case.tags:
        yield "at $.tags: a corpus case names the formulas, preconditions or bug classes it guards"
    known = {*oracle.FORMULAS, *oracle.PRECONDITIONS, *oracle.ALLOCATION, *BUG_CLASSES}
    yield from (f"at $.tags: {tag} is no formula, precondition or bug class" for tag in case.tags if tag not in known)
    try:
        require_wanted(case)
    except WantsError as error:
        yield str(error)
    if case.id != case_id(case):
        yield f"at $.id: {case.id!r}, but the content has {case_id(case)}; run corpus fmt"
    complete = complete_case(case)
    if case.expected != complete.expected:
        yield "at $.expected: is not what the oracle says; run corpus fmt if the specification changed"
    elif path.read_text(encoding="utf-8") != format_case(complete):
        yield "is not in canonical form; run corpus fmt"
