"""Files of known failures: TOML, and the lines of text that came before it, which are still read.

TOML, which is also what is written, whatever the file's name::

    [[known]]
    signature = "MISMATCH:prompt:F-POS:positions:value"
    reason = "rows of a chunk start one late"
    issue = "ENGINE-812"

    [[known]]
    case = "8911836eaeacb586"
    signatures = ["MISMATCH:prompt:F-PIVOT:pivots:value"]
    reason = "window at the start of a context"
    issue = "https://tracker.example/77"

An entry has a ``signature`` (:class:`inputmeta.conformance.check.verdicts.Signature`) or a ``case``, the id of one,
and says why and where it is tracked. ``signatures``: what the case is known to show; without them, whatever it shows.
``when`` (:mod:`inputmeta.conformance.campaign.known_when`): versions of the subject and configurations for which the
entry holds; another entry may say the same for others. Tables ``[[unsupported]]`` record what is not built
(:mod:`inputmeta.conformance.campaign.known_counts`).
The old lines are ``case id or signature – reason – issue``; their signatures are short ones (:attr:`Signature.short`)
and mean what they did: every path.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import tomli_w

from inputmeta.conformance.campaign.known_counts import MAX_RECORDED, Recorded
from inputmeta.conformance.campaign.known_when import ALWAYS, TomlWhen, When, when_of
from inputmeta.conformance.cases.files import CaseError, read_file, replace_file
from inputmeta.conformance.check.verdicts import NO_FAILURES, Signature, Verdict
from inputmeta.conformance.console import plain_text

MAX_FILE_BYTES = 2**20
MAX_LINE = 2000
"""Characters of a line, of a reason, of an issue."""
MAX_SIGNATURES = 1000
"""Of one case."""
SEPARATOR = re.compile(r"\s+[–—-]\s+")
CASE_ID = re.compile(r"[0-9a-f]{16}")
OLD_SIGNATURE = re.compile(r"[A-Z_]+(:[^\s:]+)+")
TOML_BEGINS = re.compile(r"\s*(#[^\n]*\n\s*)*(\[|known\s*=)")
HEADER = "# Known failures; see `inputmeta check --help`. Written by --write-known-failures: edit reasons and issues.\n"


class KnownFailuresError(ValueError):
    """A known-failures file that cannot be used. ``str()`` is one line: file, entry or line, what is wrong."""

    def __init__(self, text: str) -> None:
        super().__init__(plain_text(text))


@dataclass(frozen=True)
class KnownFailure:
    """One entry: ``key`` is a case id (16 hexadecimal digits) or a signature, a short one from lines of text."""

    key: str
    reason: str
    issue: str
    signatures: frozenset[str] = frozenset()
    """Of a case: the signatures that it is known to show; empty: all."""
    place: str = ""
    """Where it stands in its file, as it follows the file's name: ``:3`` or ``: entry 3``; empty: in none yet."""
    when: When = ALWAYS
    """Versions of the subject and configurations for which it is known."""

    @property
    def name(self) -> str:
        """The key, and when it applies: no two entries have the same."""
        return f"{self.key} when {self.when}" if self.when else self.key

    @property
    def is_case(self) -> bool:
        """Whether the key names a case, rather than a signature."""
        return CASE_ID.fullmatch(self.key) is not None

    def __str__(self) -> str:
        """Key, reason, issue."""
        return f"{self.name} – {self.reason} – {self.issue}"


Text = Annotated[str, msgspec.Meta(max_length=MAX_LINE)]


class TomlEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A table of a TOML file."""

    signature: Text | None = None
    case: Text | None = None
    signatures: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1, max_length=MAX_SIGNATURES)] | None = None
    reason: Text
    issue: Text
    when: TomlWhen | None = None


class Contents(NamedTuple):
    """What a file holds, in its order."""

    entries: tuple[KnownFailure, ...]
    recorded: tuple[Recorded, ...]
    """What is not built."""


def read(path: Path) -> Contents:
    """What a file holds.

    Raises:
        KnownFailuresError: unreadable, no plain file, larger than 1 MiB, not UTF-8, an entry that is none, or a key
            that stands twice.
    """
    try:
        text = read_file(path, MAX_FILE_BYTES, "a known-failures file").decode("utf-8").removeprefix("\ufeff")
    except CaseError as error:
        raise KnownFailuresError(str(error)) from error
    except UnicodeDecodeError as error:
        raise KnownFailuresError(f"{path}: not UTF-8 at byte {error.start}") from error
    try:
        is_toml = path.suffix == ".toml" or TOML_BEGINS.match(text)
        return contents(text) if is_toml else Contents(tuple(distinct(text_entries(text))), ())
    except KnownFailuresError as error:
        raise KnownFailuresError(f"{path}{error}") from error


def distinct(entries: Iterable[KnownFailure]) -> Iterator[KnownFailure]:
    """The entries; KnownFailuresError at a key that stands twice under the same conditions."""
    seen: dict[str, str] = {}
    for entry in entries:
        if entry.name in seen:
            raise KnownFailuresError(f"{entry.place}: {entry.name} stands at {seen[entry.name].lstrip(': ')} already")
        seen[entry.name] = entry.place
        yield entry


def contents(text: str) -> Contents:
    """What a TOML file holds; KnownFailuresError, which begins with the place, at what it may not.

    >>> text = "[[known]]\\ncase = '8911836eaeacb586'\\nreason = 'x'\\nissue = '#7'\\n"
    >>> [entry.key for entry in contents(text).entries]
    ['8911836eaeacb586']
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        what = "nested too deep" if isinstance(error, RecursionError) else error
        raise KnownFailuresError(f": not TOML: {what}") from error
    known, unsupported = (document.pop(name, []) for name in ("known", "unsupported"))
    if document:
        raise KnownFailuresError(f": key {next(iter(document))}: there is none but `known` and `unsupported`, tables")
    for name, tables in (("known", known), ("unsupported", unsupported)):
        if not isinstance(tables, list):
            raise KnownFailuresError(f": key {name}: must be tables [[{name}]]")
    return Contents(tuple(distinct(toml_entries(known))), tuple(recorded_entries(unsupported)))


def recorded_entries(tables: Sequence[object]) -> Iterator[Recorded]:
    """The tables of what is not built; KnownFailuresError, which begins with the place, at what is none."""
    seen = set()
    for number, table in enumerate(tables, 1):
        try:
            entry = msgspec.convert(table, Recorded)
        except ValueError as error:  # msgspec's are
            raise KnownFailuresError(f": unsupported {number}: {error}") from error
        if entry.key in seen or number > MAX_RECORDED:
            raise KnownFailuresError(f": unsupported {number}: {', '.join(entry.key)} stands twice, or one too many")
        seen.add(entry.key)
        yield entry


def toml_entries(tables: Sequence[object]) -> Iterator[KnownFailure]:
    """The tables of known failures; KnownFailuresError, which begins with the place, at what is none."""
    for number, table in enumerate(tables, 1):
        place = f": entry {number}"
        try:
            entry = msgspec.convert(table, TomlEntry)
            when = when_of(entry.when)
            yield KnownFailure(toml_key(entry), entry.reason, entry.issue, toml_signatures(entry), place, when)
        except ValueError as error:  # msgspec's are
            raise KnownFailuresError(f"{place}: {error}") from error


def toml_key(entry: TomlEntry) -> str:
    """The case id or signature of an entry; ValueError, which names key and rule, if it is none."""
    for name in ("reason", "issue"):
        if not getattr(entry, name).isprintable():
            raise ValueError(f"key {name}: must be printable, on one line")
    if (entry.signature is None) == (entry.case is None):
        raise ValueError("want either `signature` or `case`")
    if entry.signature is not None:
        try:
            return str(Signature.parse(entry.signature))
        except ValueError as error:
            raise ValueError(f"key signature: {error}") from error
    assert entry.case is not None
    if not CASE_ID.fullmatch(entry.case):
        raise ValueError("key case: want 16 hexadecimal digits, as `corpus list` shows them")
    return entry.case


def toml_signatures(entry: TomlEntry) -> frozenset[str]:
    """The signatures of an entry of a case; ValueError, which names the key, if one is none."""
    if entry.signatures is not None and entry.case is None:
        raise ValueError("key signatures: belongs to `case`")
    try:
        return frozenset(str(Signature.parse(text)) for text in entry.signatures or ())
    except ValueError as error:
        raise ValueError(f"key signatures: {error}") from error


def text_entries(text: str) -> Iterator[KnownFailure]:
    """The entries of lines of text; KnownFailuresError, which begins with ``:LINE:``, at one that is none.

    >>> [entry.key for entry in text_entries("# ours\\n\\nMISMATCH:F-POS:positions - one late - #7\\n")]
    ['MISMATCH:F-POS:positions']
    """
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield text_entry(stripped, f":{number}")


def text_entry(line: str, place: str) -> KnownFailure:
    """One entry; the reason may hold dashes, key and issue may not stand apart from them by blanks."""
    if len(line) > MAX_LINE or not line.isprintable():
        raise KnownFailuresError(f"{place}: longer than {MAX_LINE} characters, or not printable")
    key, *rest = SEPARATOR.split(line, maxsplit=1)
    marks = list(SEPARATOR.finditer(rest[0])) if rest else []
    if not marks:
        raise KnownFailuresError(f"{place}: want `case id or signature – reason – issue`")
    reason, issue = rest[0][: marks[-1].start()], rest[0][marks[-1].end() :]
    known_verdict = key.partition(":")[0] in set(Verdict) - NO_FAILURES
    if not CASE_ID.fullmatch(key) and not (OLD_SIGNATURE.fullmatch(key) and known_verdict):
        raise KnownFailuresError(f"{place}: {key} is no case id and no signature (VERDICT:FORMULA:FIELD)")
    return KnownFailure(key, reason.strip(), issue.strip(), place=place)


def write(entries: Iterable[KnownFailure], path: Path, recorded: Iterable[Recorded] = ()) -> None:
    """Write entries as TOML, replacing the file in one step; it is on the disk when this returns.

    Raises:
        KnownFailuresError: the file cannot be written.
    """
    tables = [written(entry) for entry in entries]
    text = HEADER + "".join(map(known_text, tables))
    text += "".join(f"\n[[unsupported]]\n{tomli_w.dumps(msgspec.to_builtins(each))}" for each in recorded)
    try:
        replace_file(path.resolve(), text)
    except OSError as error:
        raise KnownFailuresError(f"{path}: {error.strerror}") from error


def known_text(table: dict[str, object]) -> str:
    """The table of an entry as TOML, its conditions behind it."""
    plain = {name: value for name, value in table.items() if name != "when"}
    text = f"\n[[known]]\n{tomli_w.dumps(plain)}"
    return text + f"\n{tomli_w.dumps({'known': {'when': table['when']}})}" if "when" in table else text


def written(entry: KnownFailure) -> dict[str, object]:
    """The table of an entry."""
    table: dict[str, object] = {"case" if entry.is_case else "signature": entry.key}
    if entry.signatures:
        table["signatures"] = sorted(entry.signatures)
    table |= {"reason": entry.reason, "issue": entry.issue}
    return table | {"when": entry.when.table()} if entry.when else table
