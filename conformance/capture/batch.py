"""What an engine hands over, copied at once: its objects and buffers change as soon as the step runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from inputmeta.conformance.cases.model import Config, Gather, Sequence, Varlen


class TooLargeError(Exception):
    """A step with more entries than a case may have."""


class Copier:
    """Copies members by name, from a mapping or an object, and counts the entries of arrays on the way.

    An array is a list, a tuple, or whatever has ``tolist`` (numpy's, the standard library's, a tensor on the CPU).
    """

    def __init__(self, most_entries: int) -> None:
        self.left = most_entries

    def config(self, source: object) -> Config:
        """A MetadataConfig."""
        return Config(**self.members(Config, source))

    def sequence(self, source: object) -> Sequence:
        """A SequenceMetadata."""
        return Sequence(**self.members(Sequence, source))

    def gather(self, source: object) -> Gather | None:
        """Inputs of F-GATHER and F-VARLEN."""
        if source is None:
            return None
        members = self.members(Gather, source)
        if members.get("varlen") is not None:
            members["varlen"] = Varlen(**self.members(Varlen, members["varlen"]))
        return Gather(**members)

    def members(self, kind: type[msgspec.Struct], source: object) -> dict[str, Any]:
        """The members of ``kind`` that the source has, as plain integers and tuples of them.

        Raises:
            TooLargeError: no more entries are left.
            KeyError: the source, a mapping, has a name that ``kind`` has not.
        """
        names = kind.__struct_fields__
        if isinstance(source, Mapping):
            unknown = set(source) - set(names)
            if unknown:
                raise KeyError(f"{min(unknown)}: is no member of {kind.__name__}")
            given = dict(source)
        else:
            given = {name: getattr(source, name) for name in names if hasattr(source, name)}
        return {name: self.value(value) for name, value in given.items()}

    def value(self, value: Any) -> Any:  # noqa: ANN401 - what an engine has
        """A scalar as it is, an array as a tuple."""
        if value is None or isinstance(value, bool | int | str):
            return value
        if hasattr(value, "__len__"):
            self.left -= len(value)
            if self.left < 0:
                raise TooLargeError
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, list | tuple):
            return tuple(self.value(item) if isinstance(item, list | tuple) else item for item in value)
        return int(value) if hasattr(value, "__index__") else value


def copied(sequences: Iterable[object], copier: Copier) -> tuple[Sequence, ...]:
    """The sequences of a step."""
    return tuple(copier.sequence(sequence) for sequence in sequences)
