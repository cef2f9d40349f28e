"""What is struck: commands of the tool, each under one fault, from a seed."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from inputmeta.conformance import exits
from inputmeta.conformance.strikes.subjects import BROKEN

SUBJECTS = "inputmeta.conformance.strikes.subjects"
LIMIT = 180.0
"""Seconds after which a strike counts as hung. Most take one to ten; labelling many failures takes up to a minute."""
ENDED = {0, 1}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Strike:
    """One run of the tool under one fault."""

    kind: str
    arguments: tuple[str, ...]
    """Of ``inputmeta``; ``{case}``, ``{wrong}``, ``{trace}``, ``{hostile}`` stand for files that are made for it."""
    codes: frozenset[int]
    """Exit codes that it may end with."""
    verdicts: frozenset[str] | None = None
    """The only verdicts that may be told; None: any."""
    signal: int = 0
    target: str = "tool"
    """Whom the signal strikes: ``tool``, ``worker``, ``all`` (the tool and every process of its session)."""
    delay: float = 0.0
    """Seconds from the start to the signal."""
    after_finding: bool = False
    """The signal strikes when the journal holds a finding, and then after ``delay``."""
    stdout: str = "pipe"
    """``pipe``; ``closed`` after ``closes_after`` bytes; ``full``: a device without space."""
    stderr: str = "pipe"
    closes_after: int = 0
    limits: Mapping[str, int] = field(default_factory=dict)
    """Resource limits by the name of their constant (``RLIMIT_FSIZE``)."""
    hostile: str = ""
    """How the file ``{hostile}`` is spoilt: ``what:how``."""
    twice: bool = False
    """A second such run at the same time, in the same folder."""


def subject(name: str) -> tuple[str, ...]:
    """The options that name one of our subjects."""
    return ("--subject", f"{SUBJECTS}:{name}")


def a_run(rng: random.Random, *names: str) -> tuple[str, ...]:
    """A command that runs cases, on one of the subjects."""
    tested = subject(rng.choice(names))
    seed = ("--seed", str(rng.randrange(1000)))
    return rng.choice(
        [
            ("fuzz", *tested, *seed, "--seconds", "4"),
            ("check", *tested, *seed, "--examples", "100", "--corpus", "{corpus}"),
            ("replay", "{case}", "{wrong}", *tested),
            ("compare", *tested, "--subject", "oracle", *seed, "--cases", "60"),
            ("trace", "{trace}", *tested, "--limit", "6", "--rows", "2"),
            ("fuzz", *tested, *seed, "--seconds", "4", "--in-process"),
        ]
    )


def a_finding_run(rng: random.Random) -> tuple[str, ...]:
    """A campaign that finds something at once."""
    tested = subject(rng.choice(["Wrong", "SlowWrong"]))
    return ("fuzz", *tested, "--seconds", "20", "--seed", str(rng.randrange(99)))


def ended_by(number: int) -> frozenset[int]:
    """Codes of a run that a signal strikes: before it is watched for, while it is, or after its end."""
    return frozenset({-number, 128 + number} | ENDED)


def signalled(rng: random.Random) -> Strike:
    """A signal to the tool at any moment."""
    number = rng.choice(SIGNALS)
    tested = a_run(rng, "Slow", "SlowWrong", "Swallowing", "Hangs")
    return Strike("signal", tested, ended_by(number), signal=number, delay=rng.uniform(0, 5))


def signalled_after_finding(rng: random.Random) -> Strike:
    """A signal to the tool when it has found something."""
    number = rng.choice(SIGNALS)
    arguments = a_finding_run(rng)
    delay = rng.choice([0.0, rng.uniform(0, 3), rng.uniform(0, 20)])
    return Strike("signal, found", arguments, ended_by(number), signal=number, delay=delay, after_finding=True)


def killed(rng: random.Random) -> Strike:
    """SIGKILL to the tool, or to it and all that is in its session."""
    arguments = a_run(rng, "Slow", "SlowWrong", "Wrong")
    target = rng.choice(["tool", "all"])
    return Strike(
        "kill", arguments, ended_by(signal.SIGKILL), signal=signal.SIGKILL, target=target, delay=rng.uniform(0, 5)
    )


def killed_after_finding(rng: random.Random) -> Strike:
    """SIGKILL to the tool when it has found something."""
    arguments = a_finding_run(rng)
    codes = ended_by(signal.SIGKILL)
    return Strike("kill, found", arguments, codes, signal=signal.SIGKILL, delay=rng.uniform(0, 4), after_finding=True)


def worker_struck(rng: random.Random) -> Strike:
    """A signal to a worker: the verdict is on the subject, and no run ends by it."""
    number = rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT])
    arguments = ("fuzz", *subject("Slow"), "--seconds", "5", "--timeout", "2", "--seed", str(rng.randrange(99)))
    verdicts = frozenset({"CRASH", "FLAKY", "HANG"})
    codes = frozenset({0, 1, exits.NO_SUBJECT})
    return Strike("worker", arguments, codes, verdicts, signal=number, target="worker", delay=rng.uniform(0.5, 5))


def pipe_closed(rng: random.Random) -> Strike:
    """The reader of stdout goes away."""
    arguments = a_run(rng, "Wrong", "SlowWrong", "Slow")
    codes = frozenset({exits.CLOSED_PIPE} | ENDED)
    return Strike("closed pipe", arguments, codes, stdout="closed", closes_after=rng.choice([0, 1, 80, 500, 3000]))


def device_full(rng: random.Random) -> Strike:
    """stdout or stderr is a device without space."""
    arguments = a_run(rng, "Wrong", "SlowWrong", "Slow")
    if rng.random() < 0.3:
        return Strike("full device", arguments, frozenset(ENDED), stderr="full")
    return Strike("full device", arguments, frozenset({exits.TOOL_FAILED}), stdout="full")


def files_limited(rng: random.Random) -> Strike:
    """No file may grow beyond some bytes: the journal's device is full."""
    arguments = a_run(rng, "Wrong", "SlowWrong", "Slow")
    codes = frozenset({exits.TOOL_FAILED} | ENDED)
    return Strike("full disk", arguments, codes, limits={"RLIMIT_FSIZE": rng.choice([0, 100, 3000, 40_000])})


def descriptors_limited(rng: random.Random) -> Strike:
    """Few files may be open."""
    arguments = a_run(rng, "Wrong", "Slow")
    codes = frozenset({exits.TOOL_FAILED, exits.NO_SUBJECT} | ENDED)
    return Strike("few descriptors", arguments, codes, limits={"RLIMIT_NOFILE": rng.randrange(10, 40)})


def memory_limited(rng: random.Random) -> Strike:
    """Little memory may be addressed, by the tool and its workers."""
    arguments = a_run(rng, "Wrong", "Slow")
    codes = frozenset({exits.TOOL_FAILED, exits.NO_SUBJECT} | ENDED)
    return Strike("little memory", arguments, codes, limits={"RLIMIT_AS": rng.randrange(250, 700) * 2**20})


def broken_subject(rng: random.Random) -> Strike:
    """A subject that breaks."""
    name = rng.choice(list(BROKEN))
    codes, verdicts = BROKEN[name]
    arguments = ("check", *subject(name), "--examples", "0", "--corpus", "{corpus}", "--timeout", "1")
    return Strike("broken subject", arguments, frozenset(codes), frozenset(verdicts))


HOSTILE_FILES = ("case", "corpus", "known", "trace")
SPOILT = ("cut", "bit", "huge", "deep", "fifo", "folder", "empty", "binary", "loop", "endless", "escape")


def hostile_file(rng: random.Random) -> Strike:
    """A file that is none of what it should be."""
    what, how = rng.choice(HOSTILE_FILES), rng.choice(SPOILT)
    check = ("check", *subject("Slow"), "--examples", "0")
    arguments = {
        "case": ("replay", "{hostile}", *subject("Slow")),
        "corpus": (*check, "--corpus", "{folder}"),
        "known": (*check, "--corpus", "{corpus}", "--known-failures", "{hostile}"),
        "trace": ("trace", "{hostile}", *subject("Slow"), "--limit", "2", "--rows", "1"),
    }[what]
    codes = {0, 1, exits.BAD_USAGE, exits.REFUSED, exits.NOTHING_RAN}
    return Strike("hostile file", arguments, frozenset(codes), hostile=f"{what}:{how}")


def two_at_once(rng: random.Random) -> Strike:
    """Two runs in one folder."""
    arguments = ("fuzz", *subject(rng.choice(["Wrong", "Slow"])), "--seconds", "2", "--seed", str(rng.randrange(99)))
    return Strike("two at once", arguments, frozenset(ENDED), twice=True)


KINDS: tuple[Callable[[random.Random], Strike], ...] = (
    signalled,
    signalled_after_finding,
    killed,
    killed_after_finding,
    worker_struck,
    pipe_closed,
    device_full,
    files_limited,
    descriptors_limited,
    memory_limited,
    broken_subject,
    hostile_file,
    two_at_once,
)


def strike(seed: int, index: int) -> Strike:
    """The strike with this index: the kinds in turn, the rest by the seed.

    >>> strike(7, 3) == strike(7, 3), strike(7, 0).kind, strike(7, len(KINDS)).kind
    (True, 'signal', 'signal')
    """
    rng = random.Random(f"{seed}:{index}")
    return KINDS[index % len(KINDS)](rng)
