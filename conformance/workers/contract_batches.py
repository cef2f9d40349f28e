"""What an adapter is checked with: valid batches, the same broken in one way, and messages that are none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgspec

from inputmeta import oracle
from inputmeta.conformance.cases.allocated import SPARE_IDS, Allocates
from inputmeta.conformance.cases.model import Allocation, AllocationStep, Case, Path, Sequence, Varlen, case_config
from inputmeta.conformance.cases.request import Request, StepAllocation
from inputmeta.conformance.protocol import messages as wire
from inputmeta.conformance.protocol.codec import Message, encode_line
from inputmeta.conformance.protocol.convert import build_message
from inputmeta.conformance.subjects.base import Capabilities
from inputmeta.conformance.subjects.callables import CONFIG, probe
from inputmeta.conformance.workers.wire import Wire


def sending(form: Wire) -> Wire:
    """The wire, made to send bytes as they are."""

    def encode(message: Message) -> bytes:
        return message if isinstance(message, bytes) else form.encode(message)

    return dataclasses.replace(form, encode=encode)


def batches(claims: Capabilities) -> Iterator[Request]:
    """Valid batches of every claimed path, with ranks and truncation as claimed, that the claims do not exclude."""
    for path in oracle.PATHS:
        plain = probe(path)
        variants = [
            plain,
            dataclasses.replace(plain, sequences=plain.sequences[:1], gather=None),
            dataclasses.replace(plain, sequences=[dataclasses.replace(plain.sequences[0], is_placeholder=True)],
                                gather=None),
        ]  # fmt: skip
        if plain.gather is not None:
            lengths = Varlen(seqlens_q=(1, 2), prev_seqlens_q=(3,), prev_num_accepted_tokens=(1,))
            variants.append(dataclasses.replace(plain, gather=msgspec.structs.replace(plain.gather, varlen=lengths)))
        if path == "prompt":
            if claims.max_cp_size > 1:
                variants.append(with_config(plain, cp_size=2, cp_rank=1))
            modes = sorted(claims.yoco_modes & {"mask", "compact"})
            variants += [with_config(plain, yoco_mode=mode, yoco_prefill_keep_tokens=1) for mode in modes]
        for request in variants if claims.allocates is None else map(owned, variants):
            if claims.lacks(request) is None:
                yield request


def owned(request: Request) -> Request:
    """The request as the first step of a history, with a pool of what is needed and room for spare blocks."""
    needed = (oracle.blocks_needed(sequence.seqlen_k, request.config.block_size) for sequence in request.sequences)
    requests = tuple(-1 if sequence.is_placeholder else place for place, sequence in enumerate(request.sequences))
    count = len(request.sequences)
    step = StepAllocation(num_blocks=sum(needed) + count * SPARE_IDS, num_states=count, requests=requests)
    return dataclasses.replace(request, allocation=step)


LIVES = (((0, 0, 5), (1, 0, 9)), ((1, 9, 12), (0, 5, 9)), ((2, 0, 16),), ((2, 16, 17), (1, 12, 13)))
"""A short history: request, first position, end, of every sequence of every step. It grows, moves, waits; 0 ends."""
ENDED = ((), (), (0,), ())


def history_of(path: Path, claims: Allocates) -> Case:
    """:data:`LIVES` as a case, with a pool that has no block to spare."""
    steps = tuple(tuple(_life(path, begin, end) for _, begin, end in step) for step in LIVES)
    plans = tuple(
        AllocationStep(requests=tuple(request for request, _, _ in step), ended=ended)
        for step, ended in zip(LIVES, ENDED, strict=True)
    )
    plan = Allocation(num_blocks=0, num_states=0, steps=plans)
    need = oracle.most_needed(steps, plan, CONFIG.block_size, claims.spare_blocks)
    plan = Allocation(num_blocks=need.blocks, num_states=need.states, steps=plans)
    return Case(schema="inputmeta-case/1", path=path, config=case_config(CONFIG), steps=steps, allocation=plan)


def _life(path: Path, begin: int, end: int) -> Sequence:
    known = end if path == "prompt" else begin + 1
    return Sequence(
        seqlen_q=end - begin,
        seqlen_k=end,
        token_ids=tuple(range(known)),
        draft_tokens=tuple(range(end - known)),
        recent_tokens=(1,) * end,
    )


def with_config(request: Request, **changes: object) -> Request:
    """The request under another configuration."""
    return dataclasses.replace(request, config=dataclasses.replace(request.config, **changes))  # type: ignore[arg-type]


def with_extreme_tokens(request: Request) -> Request:
    """The request with tokens at both bounds of int32."""
    sequences = []
    for sequence in request.sequences:
        tokens = tuple(-(2**31) if token % 2 else 2**31 - 1 - token for token in sequence.token_ids)
        sequences.append(dataclasses.replace(sequence, token_ids=tokens))
    return dataclasses.replace(request, sequences=sequences)


def broken_batches(request: Request, claims: Capabilities) -> Iterator[tuple[str, Request]]:
    """The request with one precondition broken, and which; those that the claims say it refuses."""
    for what, broken in every_broken_batch(request):
        if claims.must_refuse({error.condition for error in broken.violations()}):
            yield what, broken


def every_broken_batch(request: Request) -> Iterator[tuple[str, Request]]:
    """The request with one precondition broken, and which."""
    last = len(request.sequences) - 1
    for what, changes in (
        ("P-STATE", {"state_id": -1}),
        ("P-TABLE", {"block_table": (0,)}),
        ("P-LEN", {"seqlen_k": 10**6}),
        ("P-INT32", {"state_id": 2**31}),
    ):
        sequence = dataclasses.replace(request.sequences[last], **changes)
        yield what, dataclasses.replace(request, sequences=[*request.sequences[:last], sequence])
    yield "P-RATIO", with_config(request, window_size=0)
    yield "P-LEN without a sequence", dataclasses.replace(request, sequences=[], gather=None)


def invalid_messages(form: Wire, request: Request) -> Iterator[tuple[str, bytes]]:
    """Whole frames or lines that hold no valid message, and what is wrong with them."""
    lines = form.encode(wire.Bye()) == encode_line(wire.Bye())
    plain = msgspec.to_builtins(build_message(request, 10**6), builtin_types=() if lines else (bytes,))
    sequence = plain["sequences"][0]
    shorter = sequence | {"token_ids": sequence["token_ids"] | {"shape": [10**9]}}
    uint8 = {"dtype": "uint8", "shape": [2], "data": [1, 2] if lines else b"\1\2"}
    bad = {
        "a message of an unknown type": {"type": "launch"},
        "a message that is no map": [1, 2, 3],
        "a batch with an unknown key": plain | {"colour": 1},
        "a batch without sequences": {key: value for key, value in plain.items() if key != "sequences"},
        "an array with fewer bytes than its shape says": plain | {"sequences": [shorter]},
        "a list of integers that are uint8": plain | {"sequences": [sequence | {"token_ids": uint8}]},
        "a path that there is not": plain | {"path": "verify"},
    }
    for what, message in bad.items():
        yield what, framed(msgspec.json.encode(message) if lines else msgspec.msgpack.encode(message), lines)
    yield "bytes that are no message at all", framed(b"{]" if lines else b"\xc1\x00\xc1", lines)
    if not lines:
        yield "an empty frame", framed(b"", lines)


def framed(body: bytes, lines: bool) -> bytes:
    """A body as it is sent."""
    return body + b"\n" if lines else len(body).to_bytes(4, "little") + body


def described(request: Request) -> str:
    """A batch in a few words."""
    config = request.config
    parts: list[Path | str] = [request.path, f"{len(request.sequences)} sequences"]
    if any(sequence.is_placeholder for sequence in request.sequences):
        parts.append("a placeholder")
    if config.cp_size > 1:
        parts.append(f"cp_size {config.cp_size}")
    if config.yoco_mode != "off":
        parts.append(f"yoco {config.yoco_mode}")
    return ", ".join(parts)
