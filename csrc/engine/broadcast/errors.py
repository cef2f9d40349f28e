"""What a broadcast raises, and the failure that ranks tell one another about."""

import re

import msgspec

_MAX_PATH, _MAX_RULE = 200, 400
_SOURCE_LINE = re.compile(r"^\[[^\]]*\]\s*")


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What went wrong on `rank`, in the words of BroadcastError; short enough for a frame of the control group."""

    rank: int
    path: str | None
    rule: str
    groups_broken: bool = False
    is_type: bool = False


class BroadcastError(RuntimeError):
    """A broadcast that no rank may use: every rank of the group raises one.

    `rank` is the global rank where it went wrong, `path` the flat key of the field ("klen.4"; None: no field's fault),
    `rule` what is broken. `groups_broken`: a message was lost, so both groups are out of step and are to be made anew;
    otherwise all ranks stopped at the same point and the groups can be used again. `str()` is one line of them all.
    """

    def __init__(self, rank: int, path: str | None, rule: str, groups_broken: bool = False) -> None:
        super().__init__(rank, path, rule, groups_broken)
        self.rank = rank
        self.path = path
        self.rule = rule
        self.groups_broken = groups_broken

    def __str__(self) -> str:
        where = "" if self.path is None else f"{self.path}: "
        return f"broadcast: rank {self.rank}: {where}{self.rule}"

    @property
    def failure(self) -> Failure:
        """The same, as other ranks are told: plain ASCII, clipped."""
        path = None if self.path is None else _ascii(self.path)[:_MAX_PATH]
        is_type = isinstance(self, UnsendableTypeError)
        return Failure(self.rank, path, _ascii(self.rule)[:_MAX_RULE], self.groups_broken, is_type)


class UnsendableTypeError(BroadcastError, TypeError):
    """The source's container holds what only its maker understands (I-40): `rule` names its type."""


def error_of(told: Failure) -> BroadcastError:
    """The error that a rank raises which is told of a failure."""
    kind = UnsendableTypeError if told.is_type else BroadcastError
    return kind(told.rank, told.path, told.rule, told.groups_broken)


class RefusedError(Exception):
    """A container or a manifest that breaks a rule, before it is known which rank that is; not for callers."""

    def __init__(self, path: str | None, rule: str, *, is_type: bool = False) -> None:
        super().__init__(path, rule)
        self.path = path
        self.rule = rule
        self.is_type = is_type


def brief(error: BaseException) -> str:
    """Type and first sentence of an error, without the source line and the advice of torch's C++."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {_SOURCE_LINE.sub('', lines[0]).partition('. ')[0]}"


def _ascii(text: str) -> str:
    return " ".join(text.split()).encode("ascii", "backslashreplace").decode()
