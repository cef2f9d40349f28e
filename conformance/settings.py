"""Settings of the user's repository: ``inputmeta.toml``, or ``[tool.inputmeta]`` of ``pyproject.toml``.

They are defaults of options; the command line wins. Every key is the name of an option without its dashes; a table
named after a command holds for that command alone. Paths are relative to the file's folder.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

OWN_FILE, PROJECT_FILE = "inputmeta.toml", "pyproject.toml"
MAX_BYTES = 2**20

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class SettingsError(ValueError):
    """A file of settings that cannot be used; the message names the file, the key, the value and the rule."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab", kw_only=True):
    """Keys are names of options."""


class Fuzz(Table, frozen=True, kw_only=True):
    """Of ``fuzz``."""

    seconds: Positive | None = None
    seed: Count | None = None
    coverage: bool | None = None


class Check(Table, frozen=True, kw_only=True):
    """Of ``check``."""

    examples: Count | None = None
    seed: Count | None = None
    coverage: bool | None = None


class Compare(Table, frozen=True, kw_only=True):
    """Of ``compare``; its subjects are named on the command line."""

    cases: Count | None = None
    seed: Count | None = None


class Reduce(Table, frozen=True, kw_only=True):
    """Of ``reduce``."""

    seconds: Positive | None = None
    jobs: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None


class Trace(Table, frozen=True, kw_only=True):
    """Of ``trace``."""

    seed: Count | None = None
    limit: Count | None = None


class Settings(Table, frozen=True, kw_only=True):
    """All that can be set. What stands beside the tables holds for every command that has such an option."""

    subject: str | None = None
    subject_command: str | None = None
    subject_json: bool | None = None
    subject_python: str | None = None
    path: tuple[str, ...] | None = None
    corpus: tuple[str, ...] | None = None
    known_failures: str | None = None
    save_dir: str | None = None
    timeout: Positive | None = None
    memory_limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    case_budget: Positive | None = None
    valid_only: bool | None = None
    fuzz: Fuzz = Fuzz()
    check: Check = Check()
    compare: Compare = Compare()
    reduce: Reduce = Reduce()
    trace: Trace = Trace()


PATHS = ("corpus", "known_failures", "save_dir")
"""Members that name files or folders."""


def find(folder: Path) -> Path | None:
    """The file of settings for a folder: its own or the nearest above; None where there is none.

    Raises:
        SettingsError: one folder has both kinds; a pyproject.toml is no TOML.
    """
    for place in (folder, *folder.parents):
        own, project = place / OWN_FILE, place / PROJECT_FILE
        in_project = project.is_file() and "inputmeta" in read(project).get("tool", {})
        if own.is_file() and in_project:
            raise SettingsError(f"{own}: {project} has a table [tool.inputmeta] too; keep one of them")
        if own.is_file() or in_project:
            return own if own.is_file() else project
    return None


def read(file: Path) -> dict[str, Any]:
    """A TOML file.

    Raises:
        SettingsError: it cannot be read, or is no TOML.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise SettingsError(f"{file}: more than {MAX_BYTES} bytes")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(f"{file}: no TOML: {error}") from error


def load(file: Path) -> Settings:
    """The settings of a file, its paths relative to its folder.

    Raises:
        SettingsError: unreadable, an unknown key, a value of another type or out of range.
    """
    content = read(file)
    where = ""
    if file.name == PROJECT_FILE:
        content, where = content.get("tool", {}).get("inputmeta", {}), "tool.inputmeta: "
    try:
        settings = msgspec.convert(content, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{file}: {where}{error}") from error
    if settings.subject is not None and settings.subject_command is not None:
        raise SettingsError(f"{file}: {where}subject and subject-command: give one of them")
    changed: dict[str, Any] = {}
    for name in PATHS:
        value = getattr(settings, name)
        if value is not None:
            texts = value if isinstance(value, tuple) else (value,)
            placed = tuple(str(file.parent / text) for text in texts)
            changed[name] = placed if isinstance(value, tuple) else placed[0]
    return msgspec.structs.replace(settings, **changed)


def of_command(settings: Settings, command: str) -> dict[str, Any]:
    """What holds for a command: option without dashes -> value, what was not set left out."""
    tables = {"fuzz", "check", "compare", "reduce", "trace"}
    shared = {name: getattr(settings, name) for name in settings.__struct_fields__ if name not in tables}
    own = msgspec.structs.asdict(getattr(settings, command)) if command in tables else {}
    return {name.replace("_", "-"): value for name, value in (shared | own).items() if value is not None}
