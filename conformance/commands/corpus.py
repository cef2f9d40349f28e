"""The commands ``corpus add``, ``lint``, ``fmt`` and ``list``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from inputmeta.conformance import exits
from inputmeta.conformance.cases.corpus import add_case, bundled_corpus, format_corpus, lint_corpus, load_corpus
from inputmeta.conformance.cases.files import check_folder, load_case
from inputmeta.conformance.cases.request import load_wanted
from inputmeta.conformance.commands.options import checked, command_app, one_line_errors
from inputmeta.conformance.console import say

app = command_app(help="Work on the corpus: cases as JSON files.")
FolderOption = Annotated[
    Path | None, typer.Option("--corpus", help="folder of cases; the installed corpus if left out")
]


@app.command()
def add(
    cases: Annotated[list[Path], typer.Argument(metavar="CASE…", help="case files to take in")],
    corpus: Annotated[
        Path,
        typer.Option(
            "--corpus",
            help="folder of cases, of your repository; made if it is absent",
            callback=checked(check_folder),
        ),
    ],
    title: Annotated[str | None, typer.Option(help="what the case guards; replaces its title")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="formula, precondition or bug class; may be repeated")] = None,
) -> None:
    """Complete cases (id, expectation, layout) and store them in the corpus.

    Example: `inputmeta corpus add case.json --corpus tests/cases --title "F-POS: two rows" --tag F-POS`
    """
    with one_line_errors():
        for case in [load_wanted(path) for path in cases]:
            changes = {"title": title or case.title, "tags": tuple(tag or case.tags)}
            say(str(add_case(msgspec.structs.replace(case, **changes), corpus)))


@app.command()
def lint(corpus: FolderOption = None) -> None:
    """Check files, ids, titles, tags, expectations and layout; one line a problem.

    Example: `inputmeta corpus lint --corpus tests/cases`
    """
    with one_line_errors():
        problems = lint_corpus(corpus or bundled_corpus())
    for problem in problems:
        say(problem)
    raise typer.Exit(exits.DIFFERS if problems else exits.CONFORMS)


@app.command()
def fmt(
    corpus: FolderOption = None,
    check: Annotated[bool, typer.Option("--check", help="change nothing; exit 1 if something would change")] = False,
) -> None:
    """Bring ids, expectations, layout and the schema up to date; prints the files that change.

    Example: `inputmeta corpus fmt --corpus tests/cases --check`
    """
    with one_line_errors():
        changed = format_corpus(corpus or bundled_corpus(), check=check)
    for path in changed:
        say(str(path))
    raise typer.Exit(exits.DIFFERS if check and changed else exits.CONFORMS)


@app.command("list")
def list_cases(
    corpus: FolderOption = None,
    tag: Annotated[str | None, typer.Option(help="only cases with this tag")] = None,
) -> None:
    """List the cases: id, path, tags, title.

    Example: `inputmeta corpus list --tag F-RING`
    """
    with one_line_errors():
        for _, case in load_corpus(corpus or bundled_corpus(), load_case):
            if tag is None or tag in case.tags:
                say(f"{case.id}  {case.path:10}  {','.join(case.tags):24}  {case.title}")
