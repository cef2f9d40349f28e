"""When an entry of known failures applies: versions of the subject, and values of a case's configuration.

In TOML, as a table of the entry; all of it must hold::

    [known.when]
    version = ">=4.57,<5.16"                  # of the subject, as PEP 440 compares versions

    [known.when.config]
    block_size = 4                            # exactly
    dense_ratios = { contains = 1 }           # among others
    cp_size = { at_least = 2, at_most = 8 }

Nothing of it is evaluated: names and kinds of values are checked when the file is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from inputmeta import oracle
from inputmeta.conformance.cases.model import Config

Number = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Word = Annotated[str, msgspec.Meta(max_length=100)]
Numbers = Annotated[tuple[Number, ...], msgspec.Meta(max_length=1000)]


class Test(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What a value must be, but for a value given as it is: bounds of a number, a member of an array."""

    at_least: Number | None = None
    at_most: Number | None = None
    contains: Number | None = None


Wanted = Number | bool | Word | Numbers | Test


class TomlWhen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The table ``when`` of an entry."""

    version: Word | None = None
    config: Annotated[dict[Word, Wanted], msgspec.Meta(min_length=1, max_length=100)] = {}


@dataclass(frozen=True)
class When:
    """When an entry applies; without parts, always."""

    version: str = ""
    """Range of the subject's versions, as it was written; empty: any."""
    config: Mapping[str, Wanted] = field(default_factory=dict, hash=False)
    """What members of a case's configuration must be."""

    def __bool__(self) -> bool:
        """Whether there is any condition."""
        return bool(self.version or self.config)

    def __str__(self) -> str:
        """``version >=4.57,<5.16, block_size 4, dense_ratios contains 1``: the same for the same conditions."""
        parts = [f"version {self.version}"] if self.version else []
        return ", ".join([*parts, *(f"{name} {said(wanted)}" for name, wanted in sorted(self.config.items()))])

    def takes_version(self, version: str) -> bool:
        """Whether a subject of this version is meant; one whose version is no version of PEP 440 is not."""
        if not self.version:
            return True
        try:
            return SpecifierSet(self.version).contains(Version(version), prereleases=True)
        except InvalidVersion:
            return False

    def takes_config(self, config: Config | oracle.MetadataConfig) -> bool:
        """Whether a case with this configuration is meant."""
        return all(fits(getattr(config, name), wanted) for name, wanted in self.config.items())

    def table(self) -> dict[str, object]:
        """The table in a file."""
        kept = TomlWhen(version=self.version or None, config=dict(self.config))
        return dict(msgspec.to_builtins(kept))


ALWAYS = When()


def said(wanted: Wanted) -> str:
    """A condition on a value in words.

    >>> said(4), said(Test(at_least=2, at_most=8)), said(Test(contains=1))
    ('4', 'at_least 2 at_most 8', 'contains 1')
    """
    if not isinstance(wanted, Test):
        return str(list(wanted) if isinstance(wanted, tuple) else wanted)
    return " ".join(f"{name} {value}" for name, value in msgspec.to_builtins(wanted).items())


def fits(value: object, wanted: Wanted) -> bool:
    """Whether a member of a configuration is as wanted.

    >>> fits(4, Test(at_least=2)), fits((1, 4), Test(contains=4)), fits(True, 1), fits(None, Test(at_least=0))
    (True, True, False, False)
    """
    if not isinstance(wanted, Test):
        return type(value) is type(wanted) and value == wanted
    if wanted.contains is not None and not (isinstance(value, tuple) and wanted.contains in value):
        return False
    if wanted.at_least is None and wanted.at_most is None:
        return True
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    least = value if wanted.at_least is None else wanted.at_least
    most = value if wanted.at_most is None else wanted.at_most
    return least <= value <= most


def when_of(table: TomlWhen | None) -> When:
    """The conditions of an entry; ValueError, which names key and rule, at what is none."""
    if table is None:
        return ALWAYS
    if table.version is not None:
        try:
            SpecifierSet(table.version)
        except InvalidSpecifier:
            raise ValueError(f"key when.version: {table.version!r} is no range, as `>=4.57,<5.16` is") from None
        if not table.version.strip():
            raise ValueError("key when.version: is empty")
    for name, wanted in table.config.items():
        problem = kind_problem(name, wanted)
        if problem is not None:
            raise ValueError(f"key when.config.{name}: {problem}")
    found = When(table.version or "", dict(table.config))
    if not found:
        raise ValueError("key when: has neither `version` nor `config`")
    return found


KINDS = dict.fromkeys(Config.__struct_fields__, "a whole number") | {
    "dense_ratios": "an array",
    "sparse_ratios": "an array",
    "lookup_table": "an array",
    "yoco_mode": "a text",
    "force_load_balance": "a bool",
}
"""What the members of a configuration are."""
TYPES = {"a whole number": int, "an array": tuple, "a text": str, "a bool": bool}
TESTS = {"a whole number": frozenset({"at_least", "at_most"}), "an array": frozenset({"contains"})}
"""What may be asked of them, but for a value."""


def kind_problem(name: str, wanted: Wanted) -> str | None:
    """What is wrong with a condition on a member of the configuration, or None."""
    kind = KINDS.get(name)
    if kind is None:
        return f"there is none; there are {', '.join(KINDS)}"
    tests = TESTS.get(kind, frozenset[str]())
    if isinstance(wanted, Test):
        given = msgspec.to_builtins(wanted).keys()
        right = bool(given) and given <= tests
    else:
        right = type(wanted) is TYPES[kind]
    return None if right else f"want {' or '.join([kind, *sorted(tests)])}"
