"""The command ``fields``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from inputmeta import oracle
from inputmeta.conformance.commands.options import PathOption, command_app
from inputmeta.conformance.console import say

app = command_app()


@app.command()
def fields(
    path: PathOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="the declarations as JSON")] = False,
) -> None:
    """List the declared fields: name, formula, dtype, shape, paths, where they are defined.

    Example: `inputmeta fields --path decode`
    """
    print_fields(frozenset(path or oracle.PATHS), as_json=as_json)


def print_fields(paths: frozenset[str], *, as_json: bool) -> None:
    """List the declarations of the fields that exist on one of ``paths``."""
    chosen = [field for field in oracle.FIELDS.values() if paths & frozenset(field.paths)]
    if as_json:
        say(json.dumps([field_facts(field) for field in chosen], indent=1))
        return
    for field in chosen:
        bucket = f".<{field.bucket} ratio>" if field.bucket else ""
        say(f"{field.name}{bucket}  {field.dtype}[{', '.join(field.shape)}]  {field.formula}  {', '.join(field.paths)}")
        say(f"    {field.meaning} Unit: {field.unit}. Defined: {field.defined}.")
    for key_set in oracle.KEY_SETS.values():
        bucket = f".<{key_set.bucket} ratio>" if key_set.bucket else ""
        say(f"{key_set.name}{bucket}  int64[pairs, 3]  {key_set.formula}  in place of {', '.join(key_set.fields)}")
        say(f"    {key_set.meaning}: row, sequence, position. No field: a builder may claim it (I-50).")


def field_facts(field: oracle.Field) -> dict[str, object]:
    """A declaration as JSON values."""
    of = ("name", "formula", "formulas", "paths", "dtype", "rows", "shape", "columns", "bucket", "neutral", "defined")
    return {name: getattr(field, name) for name in (*of, "unit", "meaning")}
