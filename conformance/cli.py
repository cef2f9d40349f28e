"""The command ``inputmeta``. The help text is the contract."""

from __future__ import annotations

import secrets
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import oracle
from conformance import exits
from conformance.campaigns import run_check, run_fuzz
from conformance.casefile import CaseError
from conformance.cli_cases import corpus_app, print_fields, print_oracle, run_replay
from conformance.cli_trace import trace
from conformance.console import fail
from conformance.corpus_tools import bundled_corpus
from conformance.subjects import Subject, SubjectError, load_subject

app = typer.Typer(
    name="inputmeta",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=f"""Differential conformance tests for the input metadata of LLM inference engines.

A *subject* builds the integer tensors of a batch; the oracle says what every defined cell must be. Subjects: `engine`
(the bundled C++ engine), `engine-cuda` (the same on a GPU), `oracle` itself, `fault:ID` (the oracle with one planted
fault), `package.module:attribute`.

{exits.EXPLANATION}""",
)
app.add_typer(corpus_app, name="corpus")
app.command()(trace)


class ConstructionPath(StrEnum):
    """The paths by which metadata is built, as choices of the command line."""

    PROMPT = "prompt"
    DECODE = "decode"
    DECODE_ZOS = "decode_zos"


SubjectOption = Annotated[str, typer.Option("--subject", "-s", help="what is tested")]
PathOption = Annotated[
    list[ConstructionPath] | None,
    typer.Option("--path", "-p", help="construction path; may be repeated; all that the subject claims if left out"),
]


def subject_named(name: str) -> Subject:
    """The subject, or the end of the command with exit code 125."""
    try:
        return load_subject(name)
    except SubjectError as error:
        raise fail(str(error), exits.NO_SUBJECT) from error


@app.command()
def fuzz(
    subject: SubjectOption = "engine",
    seconds: Annotated[float, typer.Option(min=0, help="how long to generate; shrinking may add 45 s")] = 60.0,
    seed: Annotated[int | None, typer.Option(min=0, help="printed; drawn if left out")] = None,
    path: PathOption = None,
    save_dir: Annotated[Path, typer.Option(help="where failing cases are saved")] = Path("inputmeta-failures"),
    coverage: Annotated[bool, typer.Option("--coverage", help="print every feature, not a line a formula")] = False,
) -> None:
    """Generate batches until the time is up or the subject differs from the oracle.

    A failure is shrunk, saved as a case file, described, and printed with the command that replays it. Every run
    prints its seed and a table of the domain features it visited; a reachable feature that was not is named.
    """
    chosen = secrets.randbelow(2**31) if seed is None else seed
    try:
        code = run_fuzz(subject_named(subject), seconds, chosen, path, save_dir, full_coverage=coverage)
    except CaseError as error:
        raise fail(str(error)) from error
    raise typer.Exit(code)


@app.command()
def check(
    subject: SubjectOption = "engine",
    corpus: Annotated[Path | None, typer.Option(help="folder of cases; the installed corpus if left out")] = None,
    examples: Annotated[int, typer.Option(min=0, help="generated cases, rounded up to hundreds")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="of the generated cases")] = 0,
    path: PathOption = None,
    save_dir: Annotated[Path, typer.Option(help="where failing cases are saved")] = Path("inputmeta-failures"),
) -> None:
    """Run the corpus, then generated cases: the same ones for the same seed. For CI."""
    try:
        code = run_check(
            subject_named(subject),
            corpus or bundled_corpus(),
            examples=examples,
            seed=seed,
            paths=path,
            save_dir=save_dir,
        )
    except CaseError as error:
        raise fail(str(error)) from error
    raise typer.Exit(code)


@app.command()
def replay(
    cases: Annotated[list[Path], typer.Argument(metavar="CASE…", help="case files")],
    subject: SubjectOption = "engine",
) -> None:
    """Run case files and describe every difference. Fits `git bisect run`."""
    try:
        code = run_replay(cases, subject_named(subject))
    except CaseError as error:
        raise fail(str(error)) from error
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
