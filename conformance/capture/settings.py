"""What is captured, and what it may cost: from the environment of the engine's process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Tokens = Literal["keep", "hash"]
VARIABLE = "INPUTMETA_CAPTURE"


class SettingsError(ValueError):
    """A variable whose value means nothing; the message names it, the value and the rule."""


@dataclass(frozen=True)
class Settings:
    """Which steps are written, where, and how much of them.

    ``folder``: of the case files (``INPUTMETA_CAPTURE``). ``every``: one of so many steps (``_EVERY``). ``steps``: so
    many in a row make one case, for what depends on the step before (``_STEPS``). ``most``: case files of a process
    (``_MOST``). ``most_entries``: entries of all arrays of a case; a larger one is dropped and counted (``_ENTRIES``).
    ``tokens``: ``hash`` writes no token of a request, only which ones are equal (``_TOKENS``).
    """

    folder: Path
    every: int = 1_000
    steps: int = 1
    most: int = 100
    most_entries: int = 2**20
    tokens: Tokens = "hash"


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings | None:
    """The settings of ``INPUTMETA_CAPTURE…``; None where the folder is not named: nothing is captured.

    Raises:
        SettingsError: a value that is no number, none of 1 or more, or no way to write tokens.
    """
    folder = environment.get(VARIABLE, "")
    if not folder:
        return None
    tokens = environment.get(f"{VARIABLE}_TOKENS", "hash")
    if tokens not in get_args(Tokens):
        raise SettingsError(f"{VARIABLE}_TOKENS={tokens}: is none of {', '.join(get_args(Tokens))}")
    names = {"every": "EVERY", "steps": "STEPS", "most": "MOST", "most_entries": "ENTRIES"}
    given = {name: f"{VARIABLE}_{end}" for name, end in names.items() if f"{VARIABLE}_{end}" in environment}
    numbers = {name: at_least_1(variable, environment[variable]) for name, variable in given.items()}
    return Settings(Path(folder), tokens="keep" if tokens == "keep" else "hash", **numbers)


def at_least_1(variable: str, text: str) -> int:
    """A count from the environment."""
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise SettingsError(f"{variable}={text}: is no number of 1 or more")
    return int(text)
