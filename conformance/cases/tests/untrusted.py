"""Hostile values and bytes for the tests of what reads files and messages of strangers."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from inputmeta.conformance.cases.model import SCHEMA

BOUNDED = settings(
    max_examples=200,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

CASE: dict[str, Any] = {
    "schema": SCHEMA,
    "title": "two rows",
    "path": "decode_zos",
    "config": {
        "block_size": 4,
        "dense_ratios": [1],
        "sparse_ratios": [2],
        "window_size": 2,
        "swa_block_size": 3,
        "max_model_len": 16,
    },
    "steps": [
        [
            {
                "seqlen_q": 2,
                "seqlen_k": 3,
                "block_table": [5],
                "state_id": 1,
                "token_ids": [7, 8],
                "draft_tokens": [9],
            }
        ]
    ],
    "gather": [{"fresh_input_ids": [1, 2], "prev_sampled": [3], "prev_predict": [[4]], "remap": [0]}],
    "expected": [{"fields": {"positions": {"dtype": "int32", "shape": [2], "data": [1, 2]}}}],
    "tags": ["F-POS"],
    "origin": {"found_by": "hand", "seed": 1},
}


def nested(depth: int) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


NASTY = st.sampled_from(
    [
        None,
        True,
        False,
        -1,
        0,
        1,
        2**31 - 1,
        2**31,
        -(2**31),
        2**40,
        2**62,
        -(2**62),
        2**63,
        2**64,
        10**400,
        1.5,
        -0.0,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x",
        "../../etc/passwd",
        "/etc/passwd",
        "\x1b[2J\x07",
        "a\nb\rc",
        "\u202egnp.exe",
        "\x00",
        "k" * 5000,
        "__import__('os').system('true')",
        [],
        {},
        [[]],
        [0] * 1000,
        {"a": {"b": {}}},
        nested(200),
    ]
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a document of maps and lists."""
    found = [path]
    if isinstance(document, dict | list):
        for key in document if isinstance(document, dict) else range(len(document)):
            found += places(document[key], (*path, key))
    return found


@st.composite
def mangled(draw: Callable[..., Any], document: Any, nasty: st.SearchStrategy[Any] = NASTY) -> Any:
    """A document with one to three of its values replaced, removed, doubled, or joined by an unknown key."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(places(document)[1:] or [(None,)]))
        parent = document
        for key in path:
            parent = parent[key]
        if last is None:
            return draw(nasty)
        kind = draw(st.sampled_from(["replace", "remove", "extend"]))
        if kind == "replace":
            parent[last] = copy.deepcopy(draw(nasty))
        elif kind == "remove":
            del parent[last]
        elif isinstance(parent, dict):
            parent[draw(st.sampled_from(["surprise", "a\nb", "klen.4", "../x"]))] = copy.deepcopy(draw(nasty))
        else:
            parent.append(copy.deepcopy(draw(nasty)))
    return document


@st.composite
def damaged(draw: Callable[..., Any], data: bytes) -> bytes:
    """Bytes with a few of them changed, cut out, or put in."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(changed)))
        kind = draw(st.sampled_from(["set", "cut", "insert"]))
        if kind == "cut":
            del changed[place : place + draw(st.integers(1, 40))]
        elif kind == "insert":
            changed[place:place] = draw(st.binary(min_size=1, max_size=12))
        elif place < len(changed):
            changed[place] = draw(st.integers(0, 255))
    return bytes(changed)


def case_bytes(document: Any) -> bytes:
    """A document as the bytes of a case file; NaN and the like as Python writes them."""
    return json.dumps(document).encode()


def is_one_line(text: str) -> bool:
    """Whether an error's text is one line that a terminal shows as it is."""
    return 0 < len(text) < 1000 and all(char.isprintable() or char == "\u00a0" for char in text)
