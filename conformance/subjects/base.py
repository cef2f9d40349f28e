"""The contract between the suite and a subject, in process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.allocated import Allocates, allocates_problem
from inputmeta.conformance.cases.conditions import ANY, Conditions, conditions_problem
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.console import plain_text
from inputmeta.conformance.subjects.frames import message_of

Built = Mapping[str, "np.ndarray | int | bool"]
"""Fields by flat key, all of them built."""
Result = Mapping[str, "np.ndarray | int | bool | Unsupported"]
"""Fields by flat key (``klen.4``): int32 or bool arrays, plain scalars as int or bool; key sets (``visible_swa``) as
int64 [pairs, 3]; Unsupported: not built here."""


ALLOCATED_BLOCKS, ALLOCATED_STATES = "allocated_blocks", "allocated_states"
"""Keys of a result that hold what a subject gave itself (A-FORM): integer arrays [n_seq, width], the ids of a table and
then -1 to the end of its row, and [n_seq]. Rows of placeholders mean nothing."""


@dataclass(frozen=True)
class Capabilities:
    """What a subject claims. What it does not claim is UNSUPPORTED and counted, never silently skipped."""

    paths: frozenset[str]
    fields: frozenset[str]
    """Declared field names, without the ratio of a bucket; in place of fields, key sets (``visible_swa``, I-50)."""
    fields_on: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)
    """Those of ``fields`` that it builds on a path; a path that is not named here has them all."""
    in_place: bool = False
    """Fills the arrays given as ``out`` and allocates nothing."""
    max_cp_size: int = 1
    yoco_modes: frozenset[str] = frozenset({"off"})
    devices: frozenset[str] = frozenset({"cpu"})
    """Where the fields are built: ``cpu``, ``cuda``. They are handed over in host memory all the same."""
    int32_arrays: bool = False
    """In process, takes the integers that sequences and configuration bring as read-only int32 numpy arrays as well as
    tuples: batches of production size are then views of what they share. Without it they are handed over as tuples."""
    neutral_tails: bool = False
    """In place, on decode paths, rows past ``total_q`` of the caller's buffers are given their neutral values (I-3)."""
    prompt_tails: Mapping[str, int | bool] = field(default_factory=dict, hash=False)
    """Of a prompt, what every cell of the rows past the batch's holds, by field name (I-51): of the caller's buffers,
    which then have more rows, and of arrays of its own, which may have."""
    varlen: bool = False
    """Takes ZOS steps of variable length (F-VARLEN): ``gather`` may have a ``varlen``."""
    read_only: bool = False
    """Its interface knows read-only buffers, and it refuses one that it is to fill (I-49)."""
    max_total_q: int | None = None
    """Most query rows of a batch; None: no limit. So are the two below."""
    max_num_reqs: int | None = None
    """Most sequences of a batch."""
    max_table_columns: int | None = None
    """Longest block table of a sequence, and most columns of the caller's ``block_tables``."""
    refuses: frozenset[str] = frozenset(oracle.PRECONDITIONS)
    """Preconditions (P-…) that it checks; empty: none. A batch that breaks only others is not handed over."""
    dialects: frozenset[str] = frozenset()
    """Differences by design that it translates (:mod:`inputmeta.conformance.dialects`), and own ones by any name."""
    fresh_inputs: bool = False
    """Takes each batch in arrays of its own alone. Without it some come in those of the batch before, refilled."""
    conditions: Conditions = ANY
    """What a batch must be for it: sizes, ids, lengths. They steer what is drawn."""
    allocates: Allocates | None = None
    """Gives block tables and state slots itself; None: they are given. Its batches are valid, whatever it refuses."""

    @property
    def under(self) -> str:
        """What a run's head says of the dialects, and of inputs that must be fresh; empty without.

        >>> Capabilities(frozenset(), frozenset(), dialects=frozenset({"int64"}), fresh_inputs=True).under
        ' under: int64, fresh inputs'
        """
        told = [*sorted(self.dialects), *(["fresh inputs"] if self.fresh_inputs else [])]
        return f" under: {', '.join(told)}" if told else ""

    def fields_of(self, path: str) -> frozenset[str]:
        """The fields that it builds on a path, by name."""
        return self.fields & self.fields_on.get(path, self.fields)

    def lacks(self, request: Request) -> str | None:
        """Why a batch is beyond this subject, or None. CP and truncation are matters of the prompt path alone."""
        path, config = request.path, request.config
        if path not in self.paths:
            return f"path {path}"
        if (request.allocation is None) != (self.allocates is None):
            return "to give block tables itself" if self.allocates is None else "block tables that are given"
        if request.gather is not None and request.gather.varlen is not None and not self.varlen:
            return "drafts of variable length"
        if path == "prompt":
            if config.cp_size > self.max_cp_size:
                return f"cp_size {config.cp_size}"
            if config.yoco_mode not in self.yoco_modes:
                return f"yoco_mode {config.yoco_mode}"
        return self._exceeds(request) or self.conditions.beyond(path, config, request.sequences, request.expand)

    def must_refuse(self, broken: AbstractSet[str]) -> bool:
        """Whether a batch that breaks these preconditions is to be refused: for any of them (I-17)."""
        return not self.refuses.isdisjoint(broken)

    def _exceeds(self, request: Request) -> str | None:
        """The size of a batch that is beyond this subject, or None."""
        sequences = request.sequences
        columns = max((len(sequence.block_table) for sequence in sequences), default=0)
        sizes = (
            ("total_q", sum(max(0, sequence.seqlen_q) for sequence in sequences), self.max_total_q),
            ("num_reqs", len(sequences), self.max_num_reqs),
            ("table columns", max(columns, request.max_num_blocks or 0), self.max_table_columns),
        )
        for what, size, limit in sizes:
            if limit is not None and size > limit:
                return f"{what} above {limit}"
        return None


def without_refusals(claims: Capabilities) -> Capabilities:
    """The claims of a subject that checks no precondition, and all else as it is."""
    return replace(claims, refuses=frozenset())


DIALECT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def content_problem(claims: Capabilities) -> str | None:
    """What is wrong with claims whose members have the right types, or None: names that there are not, conditions.

    >>> content_problem(Capabilities(frozenset(), frozenset(), refuses=frozenset({"lengths"})))
    "capabilities.refuses: there is no 'lengths'; there are P-RATIO, P-LEN, P-TABLE, P-STATE, P-NGRAM, P-INT32, P-OUT"
    """
    unknown = sorted(claims.refuses - oracle.PRECONDITIONS.keys())
    if unknown:
        return f"capabilities.refuses: there is no {unknown[0]!r}; there are {', '.join(oracle.PRECONDITIONS)}"
    for name in sorted(claims.dialects):
        if not DIALECT_NAME.fullmatch(name):
            return (
                f"capabilities.dialects: {name[:60]!r} is no name: lower-case letters, digits and hyphens, at most 40"
            )
    return next(problems_of_members(claims), None)


def problems_of_members(claims: Capabilities) -> Iterator[str]:
    """What is wrong with the claims that have members of their own."""
    for path, names in sorted(claims.fields_on.items()):
        if path not in oracle.PATHS:
            yield f"capabilities.fields_on: there is no path {path[:60]!r}"
        elif not names <= claims.fields:
            yield f"capabilities.fields_on: {min(names - claims.fields)[:60]!r} is not among capabilities.fields"
    problem = None if claims.allocates is None else allocates_problem(claims.allocates)
    if problem is not None:
        yield f"capabilities.allocates.{problem}"
    for name, value in sorted(claims.prompt_tails.items()):
        problem = tail_problem(claims, name, value)
        if problem is not None:
            yield f"capabilities.prompt_tails: {problem}"
    problem = conditions_problem(claims.conditions)
    if problem is not None:
        yield f"capabilities.conditions: {problem}"


TAILED = frozenset({"query", "mirror", "compressed", "sequence"})
"""Kinds of rows of a prompt that may be padded to a bucket."""


def tail_problem(claims: Capabilities, name: str, value: int | bool) -> str | None:
    """What is wrong with the value that is stated for the rows past a prompt's of a field, or None."""
    if name not in claims.fields_of("prompt"):
        return f"{name[:60]!r} is not among the fields of a prompt in capabilities.fields"
    declared = oracle.FIELDS.get(name)
    if declared is None or "prompt" not in declared.paths or declared.rows not in TAILED:
        return f"{name[:60]!r} has no rows that are padded: {', '.join(sorted(TAILED))} rows are"
    if declared.dtype == "bool":
        return None if isinstance(value, bool) else f"{name} holds bools, not {value!r}"
    fits = not isinstance(value, bool) and -(2**31) <= value < 2**31
    return None if fits else f"{name} holds int32, not {value!r}"


class SubjectError(Exception):
    """A subject that cannot be loaded, or not be started any more; ``str()`` is one line that says why."""


class Rejection(Exception):  # noqa: N818 - an answer of the subject, not an error of the suite
    """A subject's refusal of a batch: the precondition it names, the sequence (None: the configuration), the field."""

    def __init__(self, condition: str, sequence: int | None, field: str, message: str) -> None:
        super().__init__(message)
        self.condition = condition
        self.sequence = sequence
        self.field = field


class Unsupported(Exception):  # noqa: N818 - an answer of the subject, not an error of the suite
    """A subject's answer "not this batch", raised; as the value of a key of its result, "not this field of this batch".

    ``reason``: one line of at most 200 characters, the same for the same kind of batch: reasons are counted. What is
    not built is never a pass.
    """

    def __init__(self, reason: str) -> None:
        self.reason = plain_text(" ".join(str(reason).split()))[:200] or "no reason given"
        super().__init__(self.reason)


def with_buffers(result: Result, out: Mapping[str, np.ndarray] | None) -> Result:
    """The result of a batch that came with ``out``: these buffers in their places, but where a field is Unsupported."""
    buffers = {key: view for key, view in (out or {}).items() if not isinstance(result.get(key), Unsupported)}
    return {**result, **buffers}


class SubjectFailure(Exception):  # noqa: N818 - an answer about the subject, not an error of the suite
    """A subject that gave no answer at all: it died, hung, or spoke nonsense.

    ``verdict``: CRASH, HANG, DEVICE_ERROR. ``code``: a short word that stays the same from run to run and is part of
    the signature: ``SIGSEGV``, ``exit-3``, ``timeout``, ``memory``, ``garbage``. ``frames``: where it raised, see
    :mod:`inputmeta.conformance.subjects.frames`.
    """

    def __init__(self, verdict: str, detail: str, code: str, frames: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.verdict = verdict
        self.detail = detail
        self.code = code
        self.frames = frames


DEVICE_ERRORS = ("CUDA error", "CUDA_ERROR", "cudaError", "illegal memory access")
"""What the text of an exception says that a device raised."""


def is_device_error(error: BaseException) -> bool:
    """Whether an exception comes from a device, after which nothing more can be asked of the process."""
    return type(error).__name__ == "AcceleratorError" or any(text in message_of(error) for text in DEVICE_ERRORS)


class Subject(Protocol):
    """Anything that builds the metadata of a batch."""

    name: str
    capabilities: Capabilities

    def build(self, request: Request) -> Result:
        """Build the claimed fields of one batch.

        With ``request.out`` the arrays given are filled and returned; otherwise new ones are returned. The request is
        not changed, and nothing is remembered by the identity of what it holds (:meth:`Request.refilled`). Raises
        :class:`Rejection` for a batch that breaks a precondition that it claims to check, having
        written nothing; :class:`Unsupported` for one that it does not build for another reason.

        One that ``allocates`` returns :data:`ALLOCATED_BLOCKS` and :data:`ALLOCATED_STATES` among its fields, which are
        those of the tables and slots that it gave.
        """
        ...


@runtime_checkable
class AllocatingSubject(Subject, Protocol):
    """A subject that gives block tables and state slots itself."""

    def reset(self) -> None:
        """Forget every request: all blocks and slots are free. Called before the first step of a history (A-RESET)."""
        ...
