"""What of an observed strike may not be: something lost, a run that hung, what was left behind, a wrong label."""

from __future__ import annotations

import re
import signal

from inputmeta.conformance import exits
from inputmeta.conformance.check.verdicts import Signature, Verdict
from inputmeta.conformance.strikes.plan import Strike
from inputmeta.conformance.strikes.run import Observed

LOST, HUNG, LEFT, MISLABELLED = FAULTS = ("lost", "hung", "left behind", "mislabelled")
TOLD = re.compile(rf"^\s*(?:KNOWN )?({'|'.join(verdict for verdict in Verdict)}): ", re.MULTILINE)


def faults(strike: Strike, observed: Observed) -> list[tuple[str, str]]:
    """Each fault with one line of what was seen."""
    found = [(LOST, text) for text in lost(strike, observed)]
    if None in observed.codes:
        found.append((HUNG, f"did not end in {observed.seconds:.0f} s"))
    found += [(LEFT, f"process {name}") for name in observed.survivors]
    found += [(LEFT, f"file {name}") for name in observed.litter]
    return found + [(MISLABELLED, text) for text in mislabelled(strike, observed)]


def lost(strike: Strike, observed: Observed) -> list[str]:
    """Findings that were made and neither told nor kept; files that are told and not there."""
    missing = [f"told, but not there: {path}" for path in observed.unsaved]
    text = observed.out + observed.err
    for signature in sorted(observed.found):
        parts = Signature.parse(signature)
        told = not {parts.verdict, str(Verdict.FLAKY)}.isdisjoint(TOLD.findall(text))
        kept = any(signature in title or title.startswith(parts.verdict) for title in observed.kept)
        unheard = strike.stdout == "full" and strike.stderr == "full"
        if not (told or kept or unheard):
            missing.append(f"found, neither told nor kept: {signature}")
    return missing


def mislabelled(strike: Strike, observed: Observed) -> list[str]:
    """Exit codes, verdicts and texts that this strike may not give."""
    wrong = [
        f"exit code {code}, not one of {sorted(strike.codes)}: {last_line(observed)}"
        for code in observed.codes
        if code is not None and code not in strike.codes
    ]
    if strike.verdicts is not None:
        said = set(TOLD.findall(observed.out))
        wrong += [f"verdict {verdict}" for verdict in sorted(said - strike.verdicts)]
        if strike.codes == {exits.DIFFERS} and not said:
            wrong.append("differs, and no verdict is told")
    if "Traceback" in observed.err and not may_trace(strike, observed):
        lines = observed.err[observed.err.index("Traceback") :].splitlines()
        wrong.append(f"a traceback: {next((line for line in lines[1:] if not line.startswith(' ')), lines[-1])}")
    if "\x1b" in observed.out or "\x07" in observed.out:
        wrong.append("an escape in stdout")
    return wrong


def may_trace(strike: Strike, observed: Observed) -> bool:
    """Whether the interpreter itself may have written a traceback: struck before our first line ran."""
    if strike.signal == signal.SIGINT and "KeyboardInterrupt" in observed.err:
        return not observed.out
    starved = ("MemoryError", "annot allocate memory", "ImportError", "Too many open files", "failed to map")
    return bool(strike.limits) and any(text in observed.err for text in starved)


def last_line(observed: Observed) -> str:
    """The last line of stderr."""
    lines = observed.err.strip().splitlines() or observed.out.strip().splitlines() or [""]
    return lines[-1][:200]
