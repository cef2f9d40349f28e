"""The command ``inputmeta``. The help text is the contract."""

from __future__ import annotations

import secrets
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from inputmeta import oracle
from inputmeta.conformance import exits
from inputmeta.conformance.campaign.runs import opened, run_check, run_fuzz
from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.cases.files import CaseError
from inputmeta.conformance.commands.cases import corpus_app, print_fields, print_oracle, run_replay
from inputmeta.conformance.commands.compare import compare
from inputmeta.conformance.commands.options import (
    MEMORY_LIMIT,
    SAVE_DIR,
    TIMEOUT,
    CommandOption,
    InProcessOption,
    JsonOption,
    KnownOption,
    MemoryOption,
    SaveDirOption,
    SubjectOption,
    TimeoutOption,
    WriteKnownOption,
    known_in,
    one_line_errors,
)
from inputmeta.conformance.commands.subject import subject_app
from inputmeta.conformance.commands.trace import trace
from inputmeta.conformance.console import fail
from inputmeta.conformance.workers.target import Target

app = typer.Typer(
    name="inputmeta",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=f"""Differential conformance tests for the input metadata of LLM inference engines.

A *subject* builds the integer tensors of a batch; the oracle says what every defined cell must be. Subjects: `engine`
(the bundled C++ engine), `engine-cuda` (the same on a GPU), `oracle` itself, `fault:ID` (the oracle with one planted
fault), `zoo:NAME` (one that is wrong in another way), `package.module:name`, an installed entry point, or any program
that speaks the protocol (`--subject-command`).

A subject runs in a worker process that may crash, hang or grow without harm: it is killed and replaced, and what it did
is the verdict. Every case is in a journal in `--save-dir` before it is handed over; what a killed run leaves there is
saved as case files by the next.

{exits.EXPLANATION}""",
)
app.add_typer(corpus_app, name="corpus")
app.add_typer(subject_app, name="subject")
app.command()(trace)
app.command()(compare)


class ConstructionPath(StrEnum):
    """The paths by which metadata is built, as choices of the command line."""

    PROMPT = "prompt"
    DECODE = "decode"
    DECODE_ZOS = "decode_zos"


PathOption = Annotated[
    list[ConstructionPath] | None,
    typer.Option("--path", "-p", help="construction path; may be repeated; all that the subject claims if left out"),
]


@app.command()
def fuzz(
    subject: SubjectOption = "engine",
    seconds: Annotated[float, typer.Option(min=0, help="how long to generate; shrinking may add 45 s")] = 60.0,
    seed: Annotated[int | None, typer.Option(min=0, help="printed; drawn if left out")] = None,
    path: PathOption = None,
    save_dir: SaveDirOption = SAVE_DIR,
    coverage: Annotated[bool, typer.Option("--coverage", help="print every feature, not a line a formula")] = False,
    command: CommandOption = None,
    json: JsonOption = False,
    in_process: InProcessOption = False,
    timeout: TimeoutOption = TIMEOUT,
    memory_limit: MemoryOption = MEMORY_LIMIT,
    known_failures: KnownOption = None,
    write_known_failures: WriteKnownOption = None,
) -> None:
    """Generate batches until the time is up or the subject differs from the oracle.

    A failure is shrunk, replayed in fresh workers and in a warm one, saved as a case file, described, and printed with
    the command that replays it. Every run prints its seed and a table of the domain features it visited; a reachable
    feature that was not is named. Known failures do not end the run.

    """
    chosen = secrets.randbelow(2**31) if seed is None else seed
    target = Target(subject, command, json, in_process, timeout, memory_limit)
    with one_line_errors(), opened(target, save_dir, known_in(known_failures)) as run:
        code = run_fuzz(run, seconds, chosen, path, full_coverage=coverage)
        run.finish(write_known_failures)
    raise typer.Exit(code)


@app.command()
def check(
    subject: SubjectOption = "engine",
    corpus: Annotated[Path | None, typer.Option(help="folder of cases; the installed corpus if left out")] = None,
    examples: Annotated[int, typer.Option(min=0, help="generated cases, rounded up to hundreds")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="of the generated cases")] = 0,
    path: PathOption = None,
    save_dir: SaveDirOption = SAVE_DIR,
    command: CommandOption = None,
    json: JsonOption = False,
    in_process: InProcessOption = False,
    timeout: TimeoutOption = TIMEOUT,
    memory_limit: MemoryOption = MEMORY_LIMIT,
    known_failures: KnownOption = None,
    write_known_failures: WriteKnownOption = None,
) -> None:
    """Run the corpus, then generated cases: the same ones for the same seed. For CI.

    A known failure that no longer fails, or that nothing in this run could be, is an error.
    """
    target = Target(subject, command, json, in_process, timeout, memory_limit)
    with one_line_errors(), opened(target, save_dir, known_in(known_failures)) as run:
        code = run_check(run, corpus or bundled_corpus(), examples=examples, seed=seed, paths=path)
        run.finish(write_known_failures)
    raise typer.Exit(code)


@app.command()
def replay(
    cases: Annotated[list[Path], typer.Argument(metavar="CASE…", help="case files")],
    subject: SubjectOption = "engine",
    command: CommandOption = None,
    json: JsonOption = False,
    in_process: InProcessOption = False,
    timeout: TimeoutOption = TIMEOUT,
    memory_limit: MemoryOption = MEMORY_LIMIT,
    known_failures: KnownOption = None,
    write_known_failures: WriteKnownOption = None,
) -> None:
    """Run case files, in order and in one worker, and describe every difference. Fits `git bisect run`."""
    target = Target(subject, command, json, in_process, timeout, memory_limit)
    with one_line_errors():
        code = run_replay(cases, target, known_in(known_failures), write_known_failures)
    raise typer.Exit(code)


@app.command("oracle")
def oracle_command(
    case: Annotated[Path, typer.Argument(metavar="CASE", help="case file")],
    output: Annotated[Path, typer.Option("--output", "-o", help="file to write, - for stdout")] = Path("-"),
    step: Annotated[int | None, typer.Option(min=0, help="needed if the case has several steps")] = None,
) -> None:
    """Print every expected field of a case as JSON: `{name: {dtype, shape, data}}`.

    Buckets are named by ratio (`klen.4`); `data` is nested by shape, and null where a cell is not defined.
    """
    try:
        code = print_oracle(case, output, step)
    except CaseError as error:
        raise fail(str(error)) from error
    raise typer.Exit(code)


@app.command()
def fields(
    path: PathOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="the declarations as JSON")] = False,
) -> None:
    """List the declared fields: name, formula, dtype, shape, paths, where they are defined."""
    print_fields(frozenset(path or oracle.PATHS), as_json=as_json)


def main() -> None:
    """Entry point of the command."""
    app()
