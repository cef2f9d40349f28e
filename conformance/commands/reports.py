"""Reports of a run as files: written when it is over, whatever ended it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.judging import reason_of
from inputmeta.conformance.campaign.summary import Summary
from inputmeta.conformance.cases.files import CaseError, replace_file
from inputmeta.conformance.interrupts import noted


@contextmanager
def reported(summary: Summary, command: str, *, html: Path | None) -> Iterator[None]:
    """Within, a command runs, fills ``summary`` and sets its exit code; behind it the files that were asked for are
    written. A run that was interrupted, or that could not go on, leaves what it had found in them.

    Raises:
        CaseError: a file cannot be written.
    """
    summary.command = command
    failed: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failed = error
        raise
    finally:
        stop = noted()
        if stop is not None:
            summary.close(stop.code, str(stop))
        elif failed is not None:
            summary.close(exits.TOOL_FAILED, reason_of(failed))
        else:
            summary.close(summary.code or exits.CONFORMS)
        if html is not None:
            write_html(summary, html)


def write_html(summary: Summary, file: Path) -> None:
    """Write a run as a page, its folder too; a reader sees the old file or the new one. Raises CaseError."""
    from inputmeta.conformance.report.html import page  # noqa: PLC0415 - whoever wants no page pays for no template

    text = page(summary)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, text)
    except OSError as error:
        raise CaseError(f"{file}: {error.strerror}") from error
