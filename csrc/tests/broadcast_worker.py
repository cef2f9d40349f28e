"""The ranks of test_broadcast.py: forks a process group for each line on stdin, prints what came of each rank.

A request is JSON: `scenario` (a function of this file), `world`, `backend`, `arguments`. The answer is a JSON list with
an object for each rank: `value` (what the scenario returned), or `error` (a BroadcastError), or `crash` (a traceback),
and `seconds`; `{}` for a rank that died.
"""

import json
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from inputmeta.engine import InputMetadataV4, MetadataConfig, SequenceMetadata, prepare_decode_v4, prepare_prompt_v4
from inputmeta.engine.broadcast import BroadcastError, broadcast, call, control
from inputmeta.engine.broadcast.transfer import LARGE_BYTES, Parcel

TIMEOUT = 3.0
"""Seconds that a broadcast may take here."""
LATE_TIMEOUT = 1.5
"""The same where a rank is to be late: all of it is waited for."""
GROUP_TIMEOUT = 20.0
"""Seconds that the group would wait by itself: an error that comes later is not the broadcast's own."""
_HANG = 30.0


@dataclass(eq=False)
class Everything:
    """A container with all that can be sent."""

    tensor: Any = None
    again: Any = None
    other: Any = None
    large: Any = None
    strided: Any = None
    buckets: Any = None
    nothing: Any = None
    empty: Any = None
    count: int = 0
    flag: bool = False
    ratio: float = 0.0
    name: str = ""


class Rank:
    """One rank of a scenario: its groups, and a broadcast that must not unpickle."""

    def __init__(self, rank: int, world: int, backend: str) -> None:
        self.rank, self.world = rank, world
        self.control = self.devices = dist.group.WORLD
        self.device = torch.device("cpu")
        if backend == "nccl":
            torch.cuda.set_device(rank)
            self.device = torch.device("cuda", rank)
            self.devices = dist.new_group(backend="nccl", timeout=timedelta(seconds=20))

    def cast(self, metadata: Any, src: int = 0, container: type = Everything, **options: Any) -> Any:
        """`metadata` is the source's; other ranks bring None unless `force`."""
        options.setdefault("timeout", timedelta(seconds=TIMEOUT))
        if not options.pop("force", False) and self.rank != src:
            metadata = None
        groups = {"device_group": self.devices, "control_group": self.control}
        with no_pickle():
            return broadcast(metadata, src=src, container=container, **{**groups, **options})

    def refused(self, *arguments: Any, fault: AbstractContextManager[Any] | None = None, **options: Any) -> list[Any]:
        """Rank, path and text of the error of a broadcast under `fault`; checks that the next broadcast works."""
        with fault or nullcontext(), pytest.raises(BroadcastError) as caught:
            self.cast(*arguments, **options)
        assert_same(self.cast(everything(2)), everything(2))
        assert not caught.value.groups_broken
        return [caught.value.rank, caught.value.path, str(caught.value)]


@contextmanager
def no_pickle() -> Iterator[None]:
    """No way to unpickle."""
    with (
        mock.patch.multiple(pickle, loads=None, load=None, Unpickler=None),
        mock.patch.multiple(dist.distributed_c10d, _unpickler=None),
        mock.patch.multiple(torch, load=None),
    ):
        yield


def everything(seed: int) -> Everything:
    """Values of all kinds, the same on every rank."""
    shared = torch.arange(7, dtype=torch.int32) + seed
    return Everything(
        tensor=shared,
        again=shared,
        other=torch.tensor([True, False, bool(seed % 2)]),
        large=torch.arange(LARGE_BYTES // 2 + seed, dtype=torch.int32),
        strided=torch.arange(24, dtype=torch.int16).reshape(4, 6).t()[1:, ::2] + seed,
        buckets={
            "4": shared,
            "128": torch.full((2, 3), seed, dtype=torch.int64),
            "half": torch.tensor(0.5, dtype=torch.bfloat16),
            "none": None,
            "rows": torch.empty(0, 4, dtype=torch.int32),
            "inner": {"4": shared, "deeper": {"a": torch.arange(seed, seed + 3), "b": seed, "none": {}}},
        },
        empty={},
        count=2**62 + seed,
        flag=True,
        ratio=0.1 + seed,
        name='"é\n',
    )


def steps() -> list[InputMetadataV4]:
    """What the engine makes of a prompt step, with expansions, and of a decode step; no sparse ratio: empty buckets."""
    config = MetadataConfig(block_size=8, window_size=4, swa_block_size=8, max_model_len=64, dense_ratios=[4])
    prompt = [
        SequenceMetadata(seqlen_q=5, seqlen_k=17, token_ids=list(range(17)), block_table=[3, 1, 2], state_id=1),
        SequenceMetadata(seqlen_q=1, seqlen_k=1, token_ids=[9], block_table=[4], is_placeholder=True),
    ]
    decode = [SequenceMetadata(seqlen_q=1, seqlen_k=17, token_ids=list(range(17)), block_table=[3, 1, 2], state_id=1)]
    made = [prepare_prompt_v4(prompt, config), prepare_decode_v4(decode, config)]
    for metadata in made:
        metadata.compute_attn_info(config)
    return made


def assert_same(actual: Any, expected: Any) -> None:
    """Field by field: types, dtypes, shapes, values, order of keys, contiguous tensors."""
    for field in fields(expected):
        assert_equal(field.name, getattr(actual, field.name), getattr(expected, field.name))


def assert_equal(path: str, actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected), (path, actual, expected)
    if isinstance(expected, dict):
        assert list(actual) == list(expected), (path, actual)
        for key in expected:
            assert_equal(f"{path}.{key}", actual[key], expected[key])
    elif isinstance(expected, torch.Tensor):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), (path, actual)
        assert torch.equal(actual.cpu(), expected.cpu()), (path, actual, expected)
    else:
        assert actual == expected, (path, actual, expected)


# --- Scenarios: each is run by every rank ----------------------------------------------------------------------------


def all_fields(me: Rank) -> str:
    """Containers of all kinds, from the first and the last rank."""
    for src in (0, me.world - 1):
        for sent in (everything(src), *steps(), Everything()):
            received = me.cast(sent, src=src, container=type(sent))
            assert_same(received, sent)
            if me.rank == src and me.device.type == "cpu":
                assert received is sent
    return "equal"


def places(me: Rank) -> list[str]:
    """Devices of what a broadcast gives, with tensors that are on the device already at the source."""
    sent = everything(1)
    sent.other = sent.other.to(me.device)
    received = me.cast(sent)
    assert_same(received, everything(1))
    if me.rank == 0:
        assert received.other is sent.other
    tensors = [*vars(received).values(), *received.buckets.values()]
    return sorted({str(item.device) for item in tensors if isinstance(item, torch.Tensor)})


def aliasing(me: Rank) -> str:
    """One tensor stays one; the same view of the same memory becomes one; others share nothing."""
    base = torch.arange(10, dtype=torch.int32)
    empty = torch.empty(0, dtype=torch.int32)
    sent = Everything(tensor=base, again=base, other=base[2:6], large=base.view(10), strided=base.view(2, 5))
    sent.buckets = {"4": base, "8": base.clone(), "16": empty, "32": empty, "64": torch.empty(0, dtype=torch.int32)}
    got = me.cast(sent)
    if me.rank == 0:
        return "source"
    assert got.tensor is got.again is got.large is got.buckets["4"]
    assert got.buckets["16"] is got.buckets["32"] is not got.buckets["64"]
    apart = [got.tensor, got.other, got.strided, got.buckets["8"]]
    assert len({tensor.untyped_storage().data_ptr() for tensor in apart}) == len(apart)
    got.tensor.fill_(-1)
    assert [int(tensor.min()) for tensor in apart[1:]] == [2, 0, 0]
    return "one and apart"


def repeated(me: Rank) -> str:
    """Many broadcasts in one group; ranks come when they can; what came first stays what it was when the
    source's tensors change.
    """
    time.sleep(0.2 * me.rank)
    first = me.cast(everything(0))
    for turn in range(1, 12):
        sent = everything(turn)
        assert_same(me.cast(sent, src=turn % me.world), everything(turn))
        sent.tensor.fill_(-7)
    assert_same(first, everything(0))
    return "equal"


def templates(me: Rank) -> list[Any]:
    """Rank 1 expects something else than rank 0 sends; then the same as it sends."""
    wrong = {
        "other": torch.tensor([1, 0, 1], dtype=torch.int32),
        "strided": torch.zeros(2, 5, dtype=torch.int16),
        "tensor": None,
        "nothing": torch.zeros(1),
        "count": True,
        "empty": {"4": 0},
        "buckets": {},
    }
    answers = []
    for name, value in wrong.items():
        template = everything(2)
        setattr(template, name, value)
        answers.append(me.refused(everything(2), template=template if me.rank == 1 else None))
    assert_same(me.cast(everything(3), template=everything(3)), everything(3))
    return answers


def containers(me: Rank) -> list[Any]:
    """The last rank takes another container than the source sends."""
    unlike = InputMetadataV4 if me.rank == me.world - 1 else Everything
    return me.refused(everything(2), container=unlike)


def sources(me: Rank) -> list[Any]:
    """No source, two sources, ranks that mean different sources, a source outside the group."""
    return [
        me.refused(None),
        me.refused(everything(2), force=True),
        me.refused(everything(2), src=1 if me.rank == 1 else 0),
        me.refused(None, src=me.world),
    ]


def unsendable(me: Rank) -> list[Any]:
    """The source cannot describe a value; nobody waits for it."""
    sent = everything(2)
    sent.buckets["list"] = [1, 2]
    return me.refused(sent)


def unknown_types(me: Rank, path: list[str]) -> list[Any]:
    """The source brings a value of a kind that is not sent, at `path`; all ranks have a TypeError, no tensor moves."""
    sent = everything(2)
    holder: Any = sent.buckets
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = (1, 2)
    silent = mock.patch.object(Parcel, "exchange", side_effect=AssertionError("a tensor was sent"))
    with silent, pytest.raises(TypeError) as caught:
        me.cast(sent)
    assert_same(me.cast(everything(2)), everything(2))
    assert isinstance(caught.value, BroadcastError)
    return [caught.value.rank, caught.value.path, str(caught.value)]


def caches(me: Rank) -> str:
    """Caches of a rank's kernels stay where they are."""
    sent = steps()[0]
    sent.mlp_relu_schedule_metadata, sent.flash_mla_sched_meta_dict = object(), {"a": object()}
    receiver = None if me.rank == 0 else steps()[1]
    if receiver is not None:
        receiver.mlp_relu_schedule_metadata = object()
    received = me.cast(sent, container=type(sent), receiver=receiver)
    if me.rank == 0:
        assert received.mlp_relu_schedule_metadata is not None
    else:
        assert (received.mlp_relu_schedule_metadata, received.flash_mla_sched_meta_dict) == (None, None)
        sent.clean()
        for name in ("mlp_relu_schedule_metadata", "flash_mla_sched_meta_dict"):
            setattr(sent, name, None)
        assert received.positions.tolist() == sent.positions.tolist()
    return "equal"


def receivers(me: Rank) -> str:
    """A container that is there ends up with the sender's fields; tensors that fit keep their addresses."""
    for turn, start in enumerate((everything(0), everything(7), Everything(), Everything(tensor=1, count={}, empty=3))):
        sent = everything(3)
        sent.count = {"was": {"a": 1}} if turn % 2 else 5
        before = {path: tensor for path, tensor in tensors_of(start)}
        tables = start.buckets
        received = me.cast(sent, receiver=None if me.rank == 0 else start)
        assert_same(received, sent)
        if me.rank == 0:
            continue
        assert received is start
        assert tables is None or received.buckets is tables
        fitting = 0
        for path, tensor in tensors_of(received):
            if path in before and before[path].shape == tensor.shape and before[path].dtype == tensor.dtype:
                assert tensor is before[path], path
                fitting += 1
        assert fitting > 0 or not before
    return "equal"


def refused_receivers(me: Rank) -> list[Any]:
    """A call that is refused, or fails when the tensors are there, leaves a receiver as it was."""
    answers = []
    unlike = InputMetadataV4() if me.rank == 1 else None
    answers.append(me.refused(everything(3), receiver=unlike))
    answers.append(me.refused(everything(3), receiver=Everything() if me.rank == 0 else None))
    start, kept = everything(1), everything(1)
    held = dict(tensors_of(start))
    options = {"receiver": start if me.rank == 1 else None}
    last = me.rank == me.world - 1
    fault = mock.patch.object(call, "assemble", side_effect=MemoryError("none left")) if last else None
    answers.append(me.refused(everything(3), fault=fault, **options))
    answers.append(me.refused(everything(3), max_bytes=100 if last else 1 << 30, **options))
    assert_same(start, kept)
    assert all(tensor is held[path] for path, tensor in tensors_of(start))
    return answers


def tensors_of(container: Any) -> list[tuple[str, torch.Tensor]]:
    """All tensors of a container by path, dicts of any depth."""

    def walk(path: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
        if isinstance(value, torch.Tensor):
            yield path, value
        elif isinstance(value, dict):
            for key, item in value.items():
                yield from walk(f"{path}.{key}", item)

    return [found for field in fields(container) for found in walk(field.name, getattr(container, field.name))]


def malformed(me: Rank, payload: str) -> list[Any]:
    """The source sends something else than a manifest."""
    return me.refused(everything(2), fault=mock.patch.object(call, "encode", return_value=payload.encode("latin-1")))


def no_memory(me: Rank) -> list[Any]:
    """The last rank has no room for what comes."""
    fault = mock.patch.object(Parcel, "reserve", side_effect=MemoryError("none\nleft"))
    return me.refused(everything(2), fault=fault if me.rank == me.world - 1 else None)


def too_large(me: Rank) -> list[Any]:
    """The last rank takes less than the source sends."""
    return me.refused(everything(2), max_bytes=100 if me.rank == me.world - 1 else 1 << 30)


def subgroup(me: Rank) -> str:
    """Ranks 1 and 3 of the world are a group; `src` is a global rank; ranks 0 and 2 are not in it."""
    control, devices = (dist.new_group([1, 3], backend="gloo") for _ in range(2))
    me.control, me.devices = control, devices
    try:
        assert_same(me.cast(everything(4), src=3), everything(4))
    except BroadcastError as error:
        assert me.rank in (0, 2)
        return str(error)
    return "equal"


def dies(me: Rank, victim: int, moment: str, src: int = 0) -> None:
    """A rank dies before the call, before the manifest, when it has it, or instead of moving tensors."""
    moments = {
        "manifest": (call.ControlChannel, "share"),
        "verdict": (call, "check_total"),
        "tensors": (Parcel, "exchange"),
        "commit": (call, "assemble"),
    }
    me.cast(everything(0))
    if me.rank == victim and moment == "before":
        os._exit(1)
    with ExitStack() as stack:
        if me.rank == victim:
            owner, name = moments[moment]
            stack.enter_context(mock.patch.object(owner, name, side_effect=lambda *_: os._exit(1)))
        me.cast(everything(1), src=src)


def unreachable(me: Rank, victim: int, src: int) -> None:
    """As `dies`, before the manifest; and the source notices when it starts to send."""
    send = dist.isend

    def isend(buffer: torch.Tensor, peer: int, **options: Any) -> dist.Work | None:
        if me.rank == src and peer == victim and buffer.numel() != control._FRAME_BYTES:
            raise RuntimeError("Connection closed by peer")
        return send(buffer, peer, **options)

    with mock.patch.object(dist, "isend", isend):
        dies(me, victim, "manifest", src)


def stuck(me: Rank, victim: int, moment: str) -> None:
    """A rank does not come in time, or not to the tensors; when it comes, it too has its error at once."""
    me.cast(everything(0))
    with ExitStack() as stack:
        if me.rank == victim and moment == "before":
            time.sleep(LATE_TIMEOUT + 1)
        elif me.rank == victim:
            stack.enter_context(
                mock.patch.object(Parcel, "exchange", side_effect=lambda *_: time.sleep(LATE_TIMEOUT + 1))
            )
        me.cast(everything(1), timeout=timedelta(seconds=LATE_TIMEOUT))


def after_loss(me: Rank) -> None:
    """A second call after a rank died fails too, at once."""
    with suppress(BroadcastError):
        dies(me, 1, "tensors")
    me.cast(everything(1))


# --- The process group ------------------------------------------------------------------------------------------------


def run_rank(rank: int, request: dict[str, Any], folder: Path, done: Any) -> None:
    """Body of a forked rank: writes `rank.json`, and lives on until all have, so that its exit disturbs nobody."""
    torch.set_num_threads(1)
    answer: dict[str, Any] = {}
    backend = request["backend"]
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=request["world"],
        timeout=timedelta(seconds=GROUP_TIMEOUT),
    )
    me = Rank(rank, request["world"], backend)
    begin = time.monotonic()
    try:
        answer["value"] = globals()[request["scenario"]](me, *request["arguments"])
    except BroadcastError as error:
        answer["error"] = [error.rank, error.path, error.groups_broken, str(error)]
    except BaseException:
        answer["crash"] = traceback.format_exc()
    answer["seconds"] = time.monotonic() - begin
    written = folder / f"{rank}.part"
    written.write_text(json.dumps(answer))
    written.rename(folder / f"{rank}.json")
    done.wait(_HANG)
    os._exit(0)


def run_group(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Forks the ranks, waits until each has answered or died, ends them all."""
    context = multiprocessing.get_context("fork")
    done = context.Event()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        answers = [folder / f"{rank}.json" for rank in range(request["world"])]
        ranks = [context.Process(target=run_rank, args=(rank, request, folder, done)) for rank in range(len(answers))]
        for process in ranks:
            process.start()
        end = time.monotonic() + _HANG
        while time.monotonic() < end and any(
            process.is_alive() and not path.exists() for process, path in zip(ranks, answers, strict=True)
        ):
            time.sleep(0.01)
        hanging = [not path.exists() and process.is_alive() for process, path in zip(ranks, answers, strict=True)]
        done.set()
        for process, hangs in zip(ranks, hanging, strict=True):
            if hangs:
                process.kill()
            process.join()
        results = [json.loads(path.read_text()) if path.exists() else {} for path in answers]
    return [{"crash": "hangs"} if hangs else result for hangs, result in zip(hanging, results, strict=True)]


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(run_group(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
