"""Arrays of a case file as runs: ``{"runs": [[first, length], [value, length, 0]]}``.

A run of two numbers goes up by one, ``first``, ``first + 1``, …; one whose third number is 0 repeats its first. In
memory an array is always whole; a case means the same, and has the same id, however its arrays are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from inputmeta.conformance.cases.model import Runs

MAX_ITEMS = 2**24
"""Entries that the runs of a case may have together, some 0.8 GB of them: counted before any is made."""
MAX_ENTRY = 2**62
"""What no entry of any array may exceed."""
FEWEST_ITEMS = 512
"""Entries of an array that is written as runs, at least: shorter ones are read by people."""
ITEMS_A_RUN = 8
"""Entries a run has on average, at least, in an array that is written as runs."""

SEQUENCE_ARRAYS = ("block_table", "token_ids", "draft_tokens", "compressed_tokens", "recent_tokens")
CONFIG_ARRAYS = ("lookup_table",)
GATHER_ARRAYS = ("fresh_input_ids", "prev_sampled", "remap")
VARLEN_ARRAYS = ("seqlens_q", "prev_seqlens_q", "prev_num_accepted_tokens")
"""Arrays that may be runs."""

Change = Callable[[str, Any], Any]
"""What an array becomes, by its JSON path."""


class RunsError(ValueError):
    """Runs that cannot be expanded; ``str()`` names the JSON path and what is wrong."""


def change_arrays(case: Any, change: Change) -> None:  # noqa: ANN401 - whatever JSON a file holds
    """Replace every array of a case, as decoded from JSON, that may be runs; what is no case stays as it is."""
    for where, holder, names in _holders(case):
        for name in names:
            if name in holder:
                holder[name] = change(f"{where}.{name}", holder[name])


def _holders(case: Any) -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:  # noqa: ANN401 - as above
    if not isinstance(case, dict):
        return
    steps, gathers = case.get("steps"), case.get("gather")
    found: list[tuple[str, Any, tuple[str, ...]]] = [("$.config", case.get("config"), CONFIG_ARRAYS)]
    for index, step in enumerate(steps if isinstance(steps, list | tuple) else ()):
        sequences = step if isinstance(step, list | tuple) else ()
        found += [(f"$.steps[{index}][{place}]", each, SEQUENCE_ARRAYS) for place, each in enumerate(sequences)]
    gathers = gathers if isinstance(gathers, list | tuple) else ()
    for index, gather in enumerate(gathers):
        found.append((f"$.gather[{index}]", gather, GATHER_ARRAYS))
        if isinstance(gather, dict):
            found.append((f"$.gather[{index}].varlen", gather.get("varlen"), VARLEN_ARRAYS))
    yield from ((where, holder, names) for where, holder, names in found if isinstance(holder, dict))


def expand_runs(case: Any) -> None:  # noqa: ANN401 - as above
    """Write out every array of a case, as decoded from JSON, that is given as runs.

    Raises:
        RunsError: a run is none, or they have more than :data:`MAX_ITEMS` entries together.
    """
    count = 0

    def expanded(where: str, value: Any) -> Any:  # noqa: ANN401 - as above
        nonlocal count
        if not isinstance(value, dict):
            return value
        try:
            runs = msgspec.convert(value, Runs).runs
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            raise RunsError(f"at {where}{place.rstrip('`')}: {message}") from error
        for index, run in enumerate(runs):
            here = f"at {where}.runs[{index}]"
            if run[1] < 1 or run[2:] not in ((), (0,)):
                rule = "want [first, length] or [value, length, 0], length >= 1"
                raise RunsError(f"{here}: {list(run)}; {rule}")
            count += run[1]
            if count > MAX_ITEMS:
                raise RunsError(f"{here}: the runs of a case have at most {MAX_ITEMS} entries")
            if not run[2:] and run[0] + run[1] - 1 > MAX_ENTRY:
                raise RunsError(f"{here}: {list(run)} goes up to {run[0] + run[1] - 1}, more than {MAX_ENTRY}")
        return [item for run in runs for item in ([run[0]] * run[1] if run[2:] else range(run[0], run[0] + run[1]))]

    change_arrays(case, expanded)


def write_runs(case: Any) -> None:  # noqa: ANN401 - as above
    """Give every array of a case, as it is to be written, as runs where that is a good deal shorter."""
    change_arrays(case, lambda _, items: items if (found := as_runs(items)) is None else {"runs": found})


def as_runs(items: Sequence[int]) -> list[list[int]] | None:
    """The runs of an array of at least 512 entries that has no more than one for 8 of them; None of any other.

    >>> as_runs([7] * 500 + list(range(50)))
    [[7, 500, 0], [0, 50]]
    >>> as_runs(list(range(511))) is None, as_runs([3, 1, 2] * 500) is None
    (True, True)
    """
    if len(items) < FEWEST_ITEMS:
        return None
    runs: list[list[int]] = []
    begin = 0
    while begin < len(items):
        first, end = items[begin], begin + 1
        step = 0 if end < len(items) and items[end] == first else 1
        while end < len(items) and items[end] == items[end - 1] + step:
            end += 1
        runs.append([first, end - begin] if step else [first, end - begin, 0])
        begin = end
        if len(runs) * ITEMS_A_RUN > len(items):
            return None
    return runs


def schema_with_runs(schema: dict[str, Any]) -> None:
    """Let the JSON Schema of a case file take runs for the arrays that may be."""
    parts = schema["$defs"]
    parts |= msgspec.json.schema_components([Runs], ref_template="#/$defs/{name}")[1]
    arrays = {"Sequence": SEQUENCE_ARRAYS, "Config": CONFIG_ARRAYS, "Gather": GATHER_ARRAYS, "Varlen": VARLEN_ARRAYS}
    for part, names in arrays.items():
        for name in names:
            plain = parts[part]["properties"][name]
            default = {"default": plain.pop("default")} if "default" in plain else {}
            parts[part]["properties"][name] = {"anyOf": [plain, {"$ref": "#/$defs/Runs"}], **default}
