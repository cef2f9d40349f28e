"""Live batches as case files: chosen and copied in the engine's thread, hashed and written in one beside it."""

from __future__ import annotations

import logging
import queue
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from inputmeta.conformance.capture.batch import Copier, TooLargeError, copied
from inputmeta.conformance.capture.hashing import without_tokens
from inputmeta.conformance.capture.settings import Settings, from_environment
from inputmeta.conformance.cases.files import case_id, save_case
from inputmeta.conformance.cases.model import SCHEMA, Case, Gather, Origin, Path, Sequence
from inputmeta.conformance.version import VERSION

LOG = logging.getLogger("inputmeta.capture")
WAITING = 2
"""Cases that may wait to be written; further ones are dropped, the engine never waits."""

MOST_OF_CONFIG = 2**22
"""Entries of the configuration's arrays: a lookup table has one a token of the vocabulary."""


@dataclass
class Counts:
    """What became of the steps that were chosen."""

    written: int = 0
    dropped: int = 0
    """Too large, or chosen while others were still being written."""
    failed: int = 0
    """Not understood, or not written; the log has the reason of the first."""


class Capture:
    """Writes some of an engine's steps as case files.

    It is true while it wants the next step, so that an engine pays one test a step where it is off::

        capture = Capture.from_environment(config)
        …
        if capture.wants():
            capture.step("decode", sequences)

    ``config``: a mapping or an object with the members of MetadataConfig (SPEC.md 1), read once; one that means nothing
    raises here. Steps raise nothing into the engine: what goes wrong is counted, and logged once.
    """

    def __init__(self, config: object, settings: Settings | None) -> None:
        self.settings = settings
        self.counts = Counts()
        self._config = None if settings is None else Copier(MOST_OF_CONFIG).config(config)
        self._seen = 0
        self._salt = secrets.token_bytes(32)
        self._collected: list[tuple[tuple[Sequence, ...], Gather | None]] = []
        self._as: tuple[Path, int | None] | None = None
        self._queue: queue.Queue[Case | None] = queue.Queue(WAITING)
        self._writer: threading.Thread | None = None

    @classmethod
    def from_environment(cls, config: object) -> Capture:
        """As ``INPUTMETA_CAPTURE…`` say; off where no folder is named, and where a variable means nothing (logged)."""
        try:
            return cls(config, from_environment())
        except Exception as error:
            # The engine goes on.
            LOG.warning("nothing is captured: %s: %s", type(error).__name__, error)
            return cls(None, None)

    def wants(self) -> bool:
        """Whether the step that comes is to be handed over; counts it."""
        if self.settings is None:
            return False
        place = self._seen
        self._seen += 1
        if self.counts.written + self.counts.dropped + self.counts.failed >= self.settings.most:
            return False
        return bool(self._collected) or place % self.settings.every == 0

    def step(
        self,
        path: Literal["prompt", "decode", "decode_zos"],
        sequences: Iterable[object],
        *,
        gather: object = None,
        max_num_blocks: int | None = None,
    ) -> None:
        """Copy a step, and hand the case to the writer once it has all its steps.

        ``sequences``: mappings or objects with the members of SequenceMetadata; ``gather``: of F-GATHER's inputs;
        ``max_num_blocks``: columns of the engine's ``block_tables``.
        """
        if self.settings is None:
            return
        try:
            self._take(self.settings, path, sequences, gather, max_num_blocks)
        except TooLargeError:
            self.counts.dropped += 1
            self._collected.clear()
        except Exception as error:
            # The engine goes on, whatever it handed over.
            self._fail(error)
            self._collected.clear()

    def close(self, timeout: float = 10.0) -> Counts:
        """Write what was collected, and wait for it at most so many seconds; returns the counts."""
        if self._collected:
            self._hand_over()
        if self._writer is not None:
            self._queue.put(None)
            self._writer.join(timeout)
            self._writer = None
        return self.counts

    def _take(
        self,
        settings: Settings,
        path: Path,
        sequences: Iterable[object],
        gather: object,
        max_num_blocks: int | None,
    ) -> None:
        """Copy one step; a case's steps have one path and one width of tables."""
        copier = Copier(settings.most_entries)
        if self._collected and self._as != (path, max_num_blocks):
            self._hand_over()
        self._as = (path, max_num_blocks)
        self._collected.append((copied(sequences, copier), copier.gather(gather)))
        if len(self._collected) == settings.steps:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the writer the case of the collected steps; if it has enough to do, drop it."""
        assert self._as is not None
        assert self._config is not None
        path, width = self._as
        gather = tuple(one for _, one in self._collected)
        case = Case(
            schema=SCHEMA,
            title="captured from a running engine",
            path=path,
            config=self._config,
            steps=tuple(step for step, _ in self._collected),
            gather=gather if any(gather) else (),
            max_num_blocks=width,
            origin=Origin(found_by="capture", version=VERSION),
        )
        self._collected.clear()
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="inputmeta-capture", daemon=True)
            self._writer.start()
        try:
            self._queue.put_nowait(case)
        except queue.Full:
            self.counts.dropped += 1

    def _write(self) -> None:
        """The writer's thread."""
        assert self.settings is not None
        while (case := self._queue.get()) is not None:
            try:
                if self.settings.tokens == "hash":
                    case = without_tokens(case, self._salt)
                # What the engine handed over is typed and bounded from here on.
                case = msgspec.convert(msgspec.to_builtins(case), Case)
                case = msgspec.structs.replace(case, id=case_id(case))
                save_case(case, self.settings.folder / f"{case.id}.json")
                self.counts.written += 1
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Count a failure; the first is logged."""
        self.counts.failed += 1
        if self.counts.failed == 1:
            LOG.warning("a step was not captured, further ones are only counted: %s: %s", type(error).__name__, error)
