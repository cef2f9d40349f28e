"""What each row sees, held to the oracle's sets (F-VISIBLE, I-50): no buffer's layout has a part in it.

A subject claims a key set like a field, by name: ``visible_swa``, ``visible_ca``. It gives int64 [pairs, 3] for each
flat key, rows (query row, sequence, position), in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request, affordable_key_sets
from inputmeta.conformance.check.compare import FormProblem
from inputmeta.conformance.check.verdicts import VALUE, Finding, Verdict, field_name
from inputmeta.conformance.check.zigzag import mirror_is_foreign
from inputmeta.conformance.subjects.base import Capabilities, Unsupported

KeySets = Mapping[str, np.ndarray]
"""By flat key: int64 [pairs, 3], ascending, each pair once."""
MOST_SHOWN = 8
"""Positions that a finding names."""


def wanted_key_sets(claims: Capabilities, request: Request) -> dict[str, np.ndarray]:
    """The oracle's sets of a valid batch that a subject claims and is asked for.

    Under a zigzag dialect a rank of a prompt holds other rows than the specification's: nothing is wanted there.
    """
    claimed = claims.fields_of(request.path) & oracle.KEY_SETS.keys()
    if not claimed or mirror_is_foreign(claims, request.path, request.config):
        return {}
    keys = {key for name in claimed for key in oracle.key_set_keys(name, request.config)} & affordable_key_sets(request)
    if not keys:
        return {}
    return {key: triples(pairs) for key, pairs in request.visible_keys().items() if key in keys}


def triples(pairs: list[oracle.VisibleKey]) -> np.ndarray:
    """Pairs as an array."""
    return np.array(pairs, dtype=np.int64).reshape(len(pairs), 3)


def fields_shown(path: str, keys: Iterable[str]) -> frozenset[str]:
    """Declared names of the fields of a path that key sets, by flat key, say the same as."""
    named = {name for key in keys for name in oracle.KEY_SETS[field_name(key)].fields}
    return frozenset(name for name in named if path in oracle.FIELDS[name].paths)


def compare_key_sets(wanted: KeySets, actual: Mapping[str, object], step: int) -> list[Finding]:
    """Findings on every wanted set, in order; none when all are as wanted."""
    found = (compare_key_set(key, want, actual.get(key), step) for key, want in wanted.items())
    return [finding for finding in found if finding is not None]


def compare_key_set(key: str, want: np.ndarray, actual: object, step: int) -> Finding | None:
    """Finding on one set: not built, a wrong form, or the first row that sees other keys."""
    formula = oracle.KEY_SETS[field_name(key)].formula
    if isinstance(actual, Unsupported):
        return Finding(Verdict.UNSUPPORTED, step, key, formula, actual.reason)
    problem = form_problem(actual)
    if problem is not None:
        return Finding(Verdict.MISMATCH, step, key, formula, problem.text, kind=problem.kind)
    given = np.asarray(actual)
    found = given[np.lexsort(given.T[::-1])]
    if np.array_equal(found, want):
        return None
    detail = difference(found, want)
    return Finding(Verdict.MISMATCH, step, key, formula, detail, compared=len(want), kind=VALUE)


def form_problem(actual: object) -> FormProblem | None:
    """What is wrong with the form of a set, or None."""
    if actual is None:
        return FormProblem("missing", "the key set is missing")
    if not isinstance(actual, np.ndarray):
        return FormProblem("type", f"an array is wanted, got {type(actual).__name__}")
    if actual.dtype != np.int64:
        return FormProblem("dtype", f"dtype {actual.dtype}, want int64")
    if actual.ndim != 2 or actual.shape[1] != 3:
        return FormProblem("shape", f"shape {list(actual.shape)}, want [pairs, 3]: row, sequence, position")
    return None


def difference(found: np.ndarray, want: np.ndarray) -> str:
    """Of two different arrays, both ascending: the first row that differs and how, in words."""
    shorter = min(len(found), len(want))
    unlike = np.flatnonzero((found[:shorter] != want[:shorter]).any(axis=1))
    place = int(unlike[0]) if len(unlike) else shorter
    row = min(int(each[place, 0]) for each in (found, want) if place < len(each))
    sees, wants = ([tuple(key) for key in each[each[:, 0] == row, 1:].tolist()] for each in (found, want))
    wrong = [key for key in sees if key not in wants]
    lacks = [key for key in wants if key not in sees]
    twice = sorted({key for key in sees if sees.count(key) > 1})
    parts = ((wrong, "sees"), (lacks, "does not see"), (twice, "sees more than once"))
    return f"row {row} " + "; ".join(f"{what} {named(keys)}" for keys, what in parts if keys)


def named(keys: list[tuple[int, int]]) -> str:
    """Keys in words, sequence by sequence.

    >>> named([(0, 3), (0, 4), (1, 9)])
    'positions 3, 4 of sequence 0, position 9 of sequence 1'
    """
    texts = []
    for sequence in dict.fromkeys(sequence for sequence, _ in keys):
        positions = [position for of, position in keys if of == sequence]
        shown = ", ".join(map(str, positions[:MOST_SHOWN])) + (", …" if len(positions) > MOST_SHOWN else "")
        texts.append(f"position{'s' if len(positions) > 1 else ''} {shown} of sequence {sequence}")
    return ", ".join(texts)
