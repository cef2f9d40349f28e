"""The README's table of engines and fields, from the adapters' claims, the known failures and the expectations.

``python -m inputmeta.conformance.engines.table README.md`` writes it anew between its marks; a test holds it.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from inputmeta import oracle
from inputmeta.conformance.check.verdicts import Signature
from inputmeta.conformance.dialects import DIALECTS
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.adapter import Adapter
from inputmeta.conformance.engines.expectations import Expectation, expectations, subjects
from inputmeta.conformance.engines.recorded import adapter_of

BEGIN, END = "<!-- engines: begin -->", "<!-- engines: end -->"
YES, UNDER, DIFFERS, NOT_BUILT = "✓", "~", "≠", ""
LEGEND = f"`{YES}` conforms, `{UNDER}` conforms under its dialects, `{DIFFERS}` differs (below), empty: not built."


def differing(expected: Expectation) -> Iterator[tuple[str, str]]:
    """Field and reason of each known failure of a subject."""
    if expected.known is not None:
        for entry in tomllib.loads(expected.known.read_text(encoding="utf-8"))["known"]:
            for text in [entry["signature"]] if "signature" in entry else entry.get("signatures", []):
                yield Signature.parse(text).field, entry["reason"]


def cell(adapter: type[Adapter], field: str) -> str:
    """What the claims of an adapter say of a field."""
    if field not in adapter.capabilities.fields:
        return NOT_BUILT
    told = [DIALECTS[name].fields if name in DIALECTS else None for name in adapter.capabilities.dialects]
    return UNDER if any(fields is None or field in fields for fields in told) else YES


def columns() -> dict[str, list[type[Adapter]]]:
    """The adapters of each engine that has some, by the engine's name."""
    found = {name: [adapter_of(each) for each in subjects() if p.gives(each)] for name, p in packages.PACKAGES.items()}
    return {name: adapters for name, adapters in found.items() if adapters}


def rows() -> Iterator[list[str]]:
    """A row a field or key set that some engine builds: its name, and a cell an engine."""
    wrong = {(each.subject, field) for each in expectations() for field, _ in differing(each)}
    wrong |= {(each.subject, field) for each in expectations() if each.fails for field in of_formulas(each)}
    engines = columns()
    for field in (*oracle.FIELDS, *oracle.KEY_SETS):
        cells = []
        for adapters in engines.values():
            said = {DIFFERS if (a.subject, field) in wrong else cell(a, field) for a in adapters} - {NOT_BUILT}
            cells.append("".join(mark for mark in (YES, UNDER, DIFFERS) if mark in said))
        if any(cells):
            yield [f"`{field}`", *cells]


def of_formulas(expected: Expectation) -> Iterator[str]:
    """The fields that a subject builds by the formulas that it has wrong; none of another release than the first."""
    if "==" not in expected.subject:
        for field in adapter_of(expected.subject).capabilities.fields:
            formulas = oracle.FIELDS[field].formulas if field in oracle.FIELDS else (oracle.KEY_SETS[field].formula,)
            if set(formulas) & set(expected.fails):
                yield field


def notes() -> Iterator[str]:
    """A line a subject: what it is under; then a line a difference."""
    for name, adapters in columns().items():
        version = packages.PACKAGES[name].versions[0]
        each = (f"`{a.subject}` ({a.capabilities.under.removeprefix(' under: ') or 'as it is'})" for a in adapters)
        yield f"- {name} {version}: {', '.join(each)}"
    for expected in expectations():
        reasons = [f"`{field}`: {reason}" for field, reason in differing(expected)]
        reasons += [expected.says] if expected.fails else []
        if reasons:
            cases = ", ".join(f"`{name}…`" for name in expected.cases)
            yield f"- {DIFFERS} `{expected.subject}` {'; '.join(reasons)}{f' (corpus: {cases})' if cases else ''}"


def table() -> str:
    """The table with its legend and its notes, as Markdown."""
    heads = ["field", *columns()]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows()]
    return "\n".join([LEGEND, "", *lines, "", *notes()])


def with_table(text: str) -> str:
    """A text with the table between its marks. Raises ValueError if it has not the marks."""
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"the text has not the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(with_table(file.read_text(encoding="utf-8")), encoding="utf-8")
