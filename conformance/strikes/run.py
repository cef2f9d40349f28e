"""One strike: the tool is started, struck, and watched until nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec
import psutil

from inputmeta.conformance.campaign.journal import PATTERN, recover
from inputmeta.conformance.cases.files import CaseError, load_case
from inputmeta.conformance.strikes.files import make_files
from inputmeta.conformance.strikes.plan import LIMIT, Strike

MARK = "INPUTMETA_STRIKE"
"""Environment variable of all processes of a strike."""
PATIENCE = 10.0
"""Seconds that what outlives the tool has to end: a worker that is killed by the reaper, on a busy machine."""
TOOL = "from inputmeta.conformance.commands.main import main; main()"
TURN = 0.02


@dataclass
class Observed:
    """What was seen of a strike."""

    codes: list[int | None] = field(default_factory=list)
    """Exit codes; None of a run that had to be killed."""
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    found: set[str] = field(default_factory=set)
    """Signatures that the journal held when the tool was struck, or still holds after its end."""
    kept: set[str] = field(default_factory=set)
    """Signatures of the cases that are on disk in the end, after the next run's recovery."""
    survivors: list[str] = field(default_factory=list)
    """Command lines of the processes that were left."""
    litter: list[str] = field(default_factory=list)
    """Files that were left and should not be."""
    unsaved: list[str] = field(default_factory=list)
    """Replay lines that name a file which is not there."""


class Files:
    """The folders of a strike."""

    def __init__(self, base: Path) -> None:
        self.work = base / "work"
        self.temporary = base / "tmp"
        self.saved = self.work / "saved"
        for folder in (self.work, self.temporary):
            folder.mkdir()

    def journals(self) -> list[Path]:
        """The journals that are there."""
        return [*self.saved.glob(PATTERN), *self.temporary.glob(PATTERN)]


def carry_out(strike: Strike, seed: int) -> Observed:
    """Strike once."""
    rng = random.Random(f"{seed}:{strike}")
    with tempfile.TemporaryDirectory(prefix="inputmeta-strike-", ignore_cleanup_errors=True) as name:
        base = Path(name)
        files = Files(base)
        paths = make_files(base / "given", strike.hostile, rng)
        mark = f"{os.getpid()}-{rng.randrange(2**60)}"
        observed = Observed()
        begin = time.monotonic()
        try:
            runs = [started(strike, files, paths, mark) for _ in range(2 if strike.twice else 1)]
            watch(strike, runs, files, observed, mark)
        finally:
            observed.seconds = time.monotonic() - begin
            observed.survivors = outlived(mark)
        look_at_files(files, observed)
        return observed


@dataclass
class Started:
    """A run of the tool, its output read beside."""

    process: subprocess.Popen[bytes]
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    readers: list[threading.Thread] = field(default_factory=list)


def started(strike: Strike, files: Files, paths: dict[str, str], mark: str) -> Started:
    """Start the tool under the strike's limits and with its outputs."""
    words = [paths.get(word.strip("{}"), word) if word.startswith("{") else word for word in strike.arguments]
    if words[0] in ("fuzz", "check", "compare", "trace"):
        words += ["--save-dir", str(files.saved)]
    limits = "".join(f"resource.setrlimit(resource.{name}, ({n}, {n})); " for name, n in strike.limits.items())
    environment = os.environ | {MARK: mark, "TMPDIR": str(files.temporary), "OPENBLAS_NUM_THREADS": "1"}
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(Path("/dev/full").open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-c", f"import resource; {limits}{TOOL}", *words],
            stdin=subprocess.DEVNULL,
            stdout=full if strike.stdout == "full" else subprocess.PIPE,
            stderr=full if strike.stderr == "full" else subprocess.PIPE,
            cwd=files.work,
            env=environment,
            start_new_session=True,
            bufsize=0,
        )
    run = Started(process)
    for pipe, into, most in (
        (process.stdout, run.out, strike.closes_after if strike.stdout == "closed" else None),
        (process.stderr, run.err, None),
    ):
        if pipe is not None:
            run.readers.append(threading.Thread(target=read_into, args=(pipe, into, most), daemon=True))
            run.readers[-1].start()
    return run


def read_into(pipe: IO[bytes], into: bytearray, most: int | None) -> None:
    """Read to the end, or close after so many bytes."""
    with pipe:
        while most is None or len(into) < most:
            data = pipe.read(65536 if most is None else most - len(into))
            if not data:
                return
            into += data


def watch(strike: Strike, runs: list[Started], files: Files, observed: Observed, mark: str) -> None:
    """Strike at the moment of the plan, and wait for the end; kill what takes too long."""
    end = time.monotonic() + LIMIT
    moment = None if strike.after_finding else time.monotonic() + strike.delay
    waiting = bool(strike.signal)
    while any(run.process.poll() is None for run in runs) and time.monotonic() < end:
        if waiting and moment is None and (found := journalled(files)):
            observed.found |= found
            moment = time.monotonic() + strike.delay
        if waiting and moment is not None and time.monotonic() >= moment:
            waiting = False
            observed.found |= journalled(files)
            for process in targets(strike, runs[0].process, mark):
                with contextlib.suppress(psutil.Error):
                    process.send_signal(strike.signal)
        time.sleep(TURN)
    for run in runs:
        observed.codes.append(run.process.poll())
        if observed.codes[-1] is None:
            run.process.kill()
            run.process.wait()
        for reader in run.readers:
            reader.join(PATIENCE)
        observed.out += run.out.decode("utf-8", "replace")
        observed.err += run.err.decode("utf-8", "replace")


def targets(strike: Strike, tool: subprocess.Popen[bytes], mark: str) -> list[psutil.Process]:
    """Whom the signal strikes."""
    if strike.target == "tool":
        return [psutil.Process(tool.pid)] if tool.poll() is None else []
    if strike.target == "all":
        return [process for process in marked(mark) if os.getsid(process.pid) == tool.pid]
    serving = {"inputmeta.conformance.protocol.serve", "inputmeta.conformance.protocol.host"}
    return [process for process in marked(mark) if serving.intersection(words_of(process))][:1]


def marked(mark: str) -> list[psutil.Process]:
    """The living processes of a strike."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def words_of(process: psutil.Process) -> str:
    """The command line of a process; empty if it is gone."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def outlived(mark: str) -> list[str]:
    """The processes that do not end when the tool has; they are killed."""
    end = time.monotonic() + PATIENCE
    while marked(mark) and time.monotonic() < end:
        time.sleep(TURN)
    left = marked(mark)
    names = [words_of(process)[:200] for process in left]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return names


def journalled(files: Files) -> set[str]:
    """Signatures of the findings that the journals hold at this moment."""
    found = set()
    for path in files.journals():
        with contextlib.suppress(OSError):
            for line in path.read_bytes().splitlines():
                with contextlib.suppress(msgspec.MsgspecError):
                    entry = msgspec.json.decode(line)
                    if isinstance(entry, dict) and entry.get("type") == "failed":
                        found.add(entry["signature"])
    return found


def look_at_files(files: Files, observed: Observed) -> None:
    """What is kept, after the recovery that the next run begins with, and what should not be there."""
    observed.found |= journalled(files)
    killed = observed.codes[0] == -signal.SIGKILL
    if files.saved.exists():
        observed.litter += [str(path.name) for path in files.journals()] if not killed and not failed(observed) else []
        _, problems = recover(files.saved)
        observed.litter += problems
        for path in files.saved.iterdir():
            try:
                observed.kept.add(load_case(path).title)
            except CaseError as error:
                observed.litter.append(str(error))
    observed.litter += [path.name for path in files.work.iterdir() if path != files.saved]
    if not killed:
        observed.litter += [path.name for path in files.temporary.iterdir()]
    for line in (observed.out + observed.err).splitlines():
        if line.strip().startswith("replay   inputmeta replay "):
            words = line.split()[3:]
            named = [Path(word) for word in words[: words.index("--subject")]] if "--subject" in words else []
            observed.unsaved += [str(path) for path in named if not (files.work / path).exists()]
    shutil.rmtree(files.saved, ignore_errors=True)


def failed(observed: Observed) -> bool:
    """Whether the tool said that it failed itself: what it could not save it keeps in its journal."""
    return observed.codes[0] not in (0, 1)
