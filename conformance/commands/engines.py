"""``inputmeta engines``: which public engines there are, and getting one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from inputmeta.conformance.commands import options
from inputmeta.conformance.console import fail, progress, quieted, remark, say
from inputmeta.conformance.engines import packages
from inputmeta.conformance.exits import code_for
from inputmeta.conformance.subjects.entry_points import installed

app = options.command_app(
    help="""List public engines, and get them to be judged.

Their releases lie in `$INPUTMETA_ENGINES` (else `$XDG_CACHE_HOME/inputmeta/engines`), a folder each, beside the
environment and not in it: several releases of one engine do not stand in each other's way. A subject of another
release is `--subject NAME==VERSION`."""
)


@app.command("list")
def list_engines(as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False) -> None:
    """List engines and releases: where they are, and the subjects that they give. Nothing is imported.

    Example: `inputmeta engines list --json`
    """
    rows = [row for package in packages.PACKAGES.values() for row in rows_of(package)]
    if as_json:
        say(json.dumps(rows, indent=1))
        return
    widths = [max(len(str(row[column])) for row in rows) for column in ("release", "state")]
    for row in rows:
        say(f"{row['release']:{widths[0]}}  {row['state']:{widths[1]}}  {', '.join(row['subjects'])}".rstrip())


def rows_of(package: packages.Package) -> list[dict[str, str | list[str]]]:
    """A row a release: its name, whether it is here, the subjects that it gives."""
    subjects = [point.name for point in installed() if package.gives(point.name)]
    rows: list[dict[str, str | list[str]]] = []
    for version in package.versions:
        here = packages.place(package.name, version).is_dir()
        state = "environment" if package.bundled else "here" if here else "not here"
        rows.append({"release": f"{package.name}=={version}", "state": state, "subjects": subjects})
    return rows


ReleasesArgument = Annotated[
    list[str],
    typer.Argument(metavar="RELEASE…", help="NAME or NAME==VERSION; without one the first of the list"),
]


@app.command()
def fetch(releases: ReleasesArgument, quiet: options.QuietOption = False) -> None:
    """Get releases by pip: the engine and the pinned packages that its import needs, nothing else, into a folder.

    One that is here already is left alone; one that was not got whole is not there at all.

    Example: `inputmeta engines fetch transformers==5.16.1`
    """
    with quieted(quiet), options.one_line_errors():
        wanted = [(name, version or None) for name, _, version in (release.partition("==") for release in releases)]
        for name, version in wanted:
            packages.version_of(name, version)
        for name, version in wanted:
            remark(f"{name}=={packages.version_of(name, version)}: {fetched(name, version)}")


def fetched(name: str, version: str | None) -> Path:
    """The folder of a release, got if it was not here; what pip says is shown as it comes."""
    with progress(None) as bar:
        bar.update(bar.task_ids[0], description=name)
        try:
            return packages.fetch(
                name, version, lambda line: bar.update(bar.task_ids[0], description=f"{name}: {line[:60]}")
            )
        except OSError as error:
            raise fail(f"{error.filename}: {error.strerror}", code_for(error)) from error
