"""The journal of a run: every case, written before it is handed over.

JSON lines: ``sent`` with a case as it would be saved, ``failed`` with the signature of a finding on the last case sent;
``drawn`` with what the cases are drawn from that a worker draws itself. Seed, round and place are the case there, for
the version of the suite that wrote them; the worker writes the place into that line, where it stays as long as it is,
before it runs the case.

A run that ends removes its journal, be it by a signal that can be caught: what it found is saved and told then. One
that was killed, or could not save something, leaves it behind; the next run in the same folder saves as case files what
it holds: the smallest case of each signature, and the last case.

A kill loses nothing: what was written is the system's. A power cut may: the journal is not synced, so that a run is not
bound by the disk. Case files are, and their folder, before they are told.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Annotated

import msgspec

from inputmeta.conformance.cases.files import MAX_FILE_BYTES, CaseError, case_id, case_size, decode_case
from inputmeta.conformance.cases.model import Case, Origin, Text
from inputmeta.conformance.cases.request import store_case
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.generate.rounds import ROUND_EXAMPLES, random_round
from inputmeta.conformance.protocol.round_messages import AT
from inputmeta.conformance.version import VERSION

PATTERN = "journal-*.jsonl"
MOST_BYTES = 64 * 2**20
"""Size from which a journal is started afresh if nothing has failed."""


class Sent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="sent"):
    """A case that was about to be run. ``worker``: number of the worker in its run, from 1; 0 in process."""

    worker: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    case: Case


class Failed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="failed"):
    """A finding on the case sent before."""

    signature: Text


class Drawn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="drawn"):
    """Cases of a random round that a worker was about to draw and run."""

    worker: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    at: Annotated[str, msgspec.Meta(pattern=r"\A-?[0-9]{1,10}\.[0-9]{1,6}\Z")]
    """Place in the round of the case that was run, -1 before the first, and the build that was under way, as
    :data:`AT`."""
    version: Text
    """Of the suite: another may draw other cases."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    round: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    profile: Profile

    @property
    def place(self) -> int:
        """Place in the round of the case that was run; -1 before the first."""
        return int(self.at.partition(".")[0])

    def last(self) -> Case | None:
        """The case that was run last; None if there is none. Raises CaseError."""
        if self.version != VERSION:
            raise CaseError(f"cases drawn by version {self.version}, which this version, {VERSION}, may draw otherwise")
        if self.place >= ROUND_EXAMPLES:
            raise CaseError(f"at $.at: a round has {ROUND_EXAMPLES} cases")
        return None if self.place < 0 else random_round(self.profile, self.seed, self.round).case(self.place)


Entry = Sent | Failed | Drawn
NOWHERE = AT % (-1, 0)
"""Before the first case."""
_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


class Journal:
    """The journal of one run, in ``folder`` or, without one, in the system's folder for temporary files.

    A context manager: at the end the file is removed, and the folder if the journal made it and nothing else is in it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Open a new journal.

        Raises:
            CaseError: it cannot be written there.
        """
        self.folder = folder
        self._made = folder is not None and not folder.exists()
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            descriptor, self.path = locked_file(folder)
        except OSError as error:
            raise CaseError(f"{folder or tempfile.gettempdir()}: {error.strerror}") from error
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        self._entries: list[tuple[int, int] | tuple[Drawn, int]] = []
        """Of each case offset and length of its line, or what it was drawn from and its place."""
        self._end = 0
        self._failures = 0
        self.unsaved = False
        """Whether something that was found could not be saved: the journal stays."""

    def __len__(self) -> int:
        """Number of cases sent, or drawn and run."""
        return len(self._entries)

    @property
    def full(self) -> bool:
        """Whether it is time to start afresh."""
        return self._end > MOST_BYTES

    def sent(self, worker: int, case: Case) -> int:
        """Write a case that is about to be run; returns its index."""
        size = self._write(Sent(worker, case))
        self._entries.append((self._end - size, size))
        return len(self._entries) - 1

    def drawn(self, worker: int, profile: Profile, seed: int, index: int) -> DrawnRange:
        """Write that a worker is about to draw and run cases of a round."""
        drawn = Drawn(worker, NOWHERE, VERSION, seed, index, profile)
        line_begin = self._end
        self._write(drawn)
        return DrawnRange(self, drawn, line_begin + msgspec.json.encode(drawn).index(NOWHERE.encode()))

    def ran(self, drawn: Drawn, places: range) -> range:
        """Note that these cases of a round were run; their indices."""
        begin = len(self._entries)
        self._entries += [(drawn, place) for place in places]
        return range(begin, len(self._entries))

    def adopt(self, other: Journal, indices: range) -> range:
        """Have the cases of another journal, all of them drawn, in this one too; their indices here."""
        begin = len(self._entries)
        self._entries += [other._entries[index] for index in indices]
        return range(begin, len(self._entries))

    def read(self, offset: int, size: int) -> bytes:
        """Bytes as they stand in the file now."""
        return os.pread(self._file.fileno(), size, offset)

    def failed(self, signature: str) -> None:
        """Write that the last case failed."""
        self._write(Failed(signature))
        self._failures += 1

    def cases(self, indices: Sequence[int]) -> list[Case]:
        """The cases with these indices, in the order given."""
        found = []
        for index in indices:
            first, second = self._entries[index]
            if isinstance(first, Drawn):
                found.append(random_round(first.profile, first.seed, first.round).case(second))
                continue
            entry = _decoder.decode(self.read(first, second))
            assert isinstance(entry, Sent)
            found.append(entry.case)
        return found

    def clear(self) -> None:
        """Start afresh."""
        self._file.truncate(0)
        self._entries.clear()
        self._end = 0

    def close(self, *, keep: bool = False) -> None:
        """Remove it; with ``keep``, leave it to the next run."""
        self._file.close()
        if keep:
            return
        self.path.unlink(missing_ok=True)
        if self._made and self.folder is not None:
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(keep=self.unsaved or (error is not None and self._failures > 0))

    def _write(self, entry: Entry) -> int:
        line = msgspec.json.encode(entry) + b"\n"
        try:
            written = os.pwrite(self._file.fileno(), line, self._end)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise CaseError(f"{self.path}: {error.strerror}") from error
        self._end += len(line)
        return len(line)


@dataclass(frozen=True)
class DrawnRange:
    """The line of cases that a worker draws and runs."""

    journal: Journal
    drawn: Drawn
    offset: int
    """Of the place in the file, bytes."""

    def at(self) -> tuple[int, int]:
        """Place of the case that is run, -1 before the first, and the build that is under way, 0 if none is."""
        place, _, build = self.journal.read(self.offset, len(NOWHERE)).partition(b".")
        return int(place), int(build)


def locked_file(folder: Path | None) -> tuple[int, Path]:
    """A new journal file, open and locked before it has a name that :func:`recover` looks for. Raises OSError."""
    descriptor, name = tempfile.mkstemp(".tmp", ".journal-", folder)
    unlocked = Path(name)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = unlocked.with_name(unlocked.name.removeprefix(".")).with_suffix(".jsonl")
        os.link(unlocked, path)
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        unlocked.unlink(missing_ok=True)
    return descriptor, path


def recover(folder: Path) -> tuple[list[Path], list[str]]:
    """Save the cases of journals that killed runs left in ``folder``, and remove those journals.

    Returns the case files, and one line for each journal that cannot be used and stays.
    """
    files: list[Path] = []
    problems = []
    for path in sorted(folder.glob(PATTERN)):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
            continue
        with os.fdopen(descriptor, "rb") as file:
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise CaseError("is not a regular file")
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lines = iter(partial(file.readline, MAX_FILE_BYTES + 1), b"")
                files += [store_case(case, folder) for case in left_behind(lines)]
                path.unlink()
            except BlockingIOError:  # its run is alive
                continue
            except OSError as error:
                problems.append(f"{path}: {error.strerror}")
            except CaseError as error:
                problems.append(f"{path}: {error}")
    return files, problems


def left_behind(lines: Iterator[bytes]) -> list[Case]:
    """The cases of a journal that are worth keeping: the smallest of each signature, and the last.

    Raises:
        CaseError: a line that is no entry; a last line that was cut off is none; the last case cannot be drawn again.
    """
    last: Case | None = None
    drawn: Drawn | None = None
    failed: dict[str, Case] = {}
    for entry in entries(lines):
        if isinstance(entry, Drawn):
            drawn = entry
        elif isinstance(entry, Sent):
            last, drawn = entry.case, None
        elif last is not None:
            known = failed.get(entry.signature)
            if known is None or case_size(last) < case_size(known):
                failed[entry.signature] = last
    shown: dict[str, tuple[Case, list[str]]] = {}
    for signature, case in failed.items():  # a case that shows several is one file
        shown.setdefault(case_id(case), (case, []))[1].append(signature)
    kept = [titled(case, f"interrupted run: {', '.join(signatures)}") for case, signatures in shown.values()]
    last = (None if drawn is None else drawn.last()) or last
    if last is not None and last not in failed.values():
        kept.append(titled(last, "interrupted run: the last case"))
    return kept


def entries(lines: Iterator[bytes]) -> Iterator[Entry]:
    """The entries of a journal; raises CaseError."""
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_FILE_BYTES:
            raise CaseError(f"line {number}: longer than {MAX_FILE_BYTES} bytes")
        if not line.endswith(b"\n"):
            return
        try:
            entry = _decoder.decode(line)
            if isinstance(entry, Sent):
                decode_case(msgspec.json.encode(entry.case))  # what the types cannot say
        except (msgspec.MsgspecError, CaseError, RecursionError, UnicodeError) as error:
            raise CaseError(f"line {number}: {' '.join(str(error).split())[:300]}") from error
        yield entry


def titled(case: Case, title: str) -> Case:
    """The case with a title that says where it comes from."""
    origin = Origin(found_by="journal", version=VERSION)
    return msgspec.structs.replace(case, title=title[:4000], origin=origin)
