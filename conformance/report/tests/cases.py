"""Cases that fail on a wrong subject, for pictures: a prompt, a decode, a zigzag, and one of many sequences."""

from __future__ import annotations

from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.subjects import load_subject

CONFIG = Config(block_size=8, dense_ratios=(2,), sparse_ratios=(4,), window_size=4, swa_block_size=6, max_model_len=64)


def sequence(rows: int, length: int, number: int, *, drafts: int = 0, **members: object) -> Sequence:
    """A sequence with tables and tokens; on a decode path ``drafts`` of its rows are drafts."""
    tokens = tuple(range(100, 100 + length - drafts))
    table = tuple(range(number * 7 + 1, number * 7 + 1 - (-length // 8)))
    proposed = tuple(range(drafts))
    return Sequence(
        seqlen_q=rows,
        seqlen_k=length,
        block_table=table,
        state_id=number,
        token_ids=tokens,
        draft_tokens=proposed,
        **members,
    )


PROMPT = Case(
    schema=SCHEMA,
    path="prompt",
    config=CONFIG,
    steps=((sequence(5, 14, 1), sequence(3, 3, 2, is_placeholder=True), sequence(9, 19, 3, swa_valid_start=7)),),
)
DECODE = Case(
    schema=SCHEMA,
    path="decode",
    config=CONFIG,
    steps=((sequence(3, 12, 1, drafts=2), sequence(1, 3, 2), sequence(2, 30, 3, drafts=1)),),
)
ZIGZAG = Case(
    schema=SCHEMA,
    path="prompt",
    config=Config(**{name: getattr(CONFIG, name) for name in CONFIG.__struct_fields__} | {"cp_size": 3, "cp_rank": 1}),
    steps=((sequence(11, 14, 1), sequence(7, 7, 2)),),
)
MANY = Case(
    schema=SCHEMA,
    path="decode",
    config=CONFIG,
    steps=(tuple(sequence(1, 20 if number != 2500 else 3, number) for number in range(4000)),),
)
FAILING = {
    "prompt": (PROMPT, "F-RING.lost-modulo"),
    "ranges": (PROMPT, "F-KS.key-plus-one"),
    "decode": (DECODE, "F-CAOFF.identity-table"),
    "zigzag": (ZIGZAG, "F-ZIGZAG.swapped"),
}
"""Cases with the mutant that fails on each."""


def findings_of(case: Case, mutant: str) -> list[Finding]:
    """What a mutant shows on a case."""
    return run_case(case, load_subject(f"mutant:{mutant}")).findings


def finding_on(case: Case, mutant: str, key: str) -> Finding:
    """The finding on one field."""
    (found,) = [each for each in findings_of(case, mutant) if each.key == key]
    return found
