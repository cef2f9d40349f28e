"""Broadcast: what a manifest takes, and real process groups (`broadcast_worker.py`) that share, refuse, lose ranks."""

import enum
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from broadcast_worker import GROUP_TIMEOUT, Everything, assert_same, everything

from inputmeta.engine.broadcast import MAX_BYTES, BroadcastError, broadcast
from inputmeta.engine.broadcast.errors import RefusedError
from inputmeta.engine.broadcast.manifest import MAX_MANIFEST_BYTES, assemble, check_total, decode, describe, encode
from inputmeta.engine.broadcast.receive import fill

Answers = list[dict[str, Any]]
Group = Callable[..., Answers]

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
needs_gpus = pytest.mark.skipif(GPUS < 2, reason=f"NCCL between ranks needs 2 CUDA devices, there are {GPUS}")


class Colour(enum.IntEnum):
    """An int that is more than an int."""

    RED = 1


@dataclass(eq=False)
class Small:
    """A container of one field."""

    field: Any = None


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    """Runs a scenario of the worker on `world` ranks; gives each rank's answer. No rank may crash or hang."""
    script = Path(__file__).with_name("broadcast_worker.py")
    worker = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdin is not None
    assert worker.stdout is not None

    def run(scenario: str, world: int, *arguments: Any, backend: str = "gloo") -> Answers:
        request = {"scenario": scenario, "world": world, "backend": backend, "arguments": arguments}
        print(json.dumps(request), file=worker.stdin, flush=True)
        answers: Answers = json.loads(worker.stdout.readline())
        assert [answer["crash"] for answer in answers if "crash" in answer] == []
        return answers

    yield run
    worker.stdin.close()
    assert worker.wait(30) == 0


def values(answers: Answers) -> list[Any]:
    """What the ranks returned; none of them raised."""
    assert [answer["error"] for answer in answers if "error" in answer] == []
    return [answer["value"] for answer in answers]


def common(answers: Answers) -> Any:
    """What all ranks returned alike."""
    first, *others = values(answers)
    assert others == [first] * len(others)
    return first


# --- One process ------------------------------------------------------------------------------------------------------


def alone(metadata: Any, **options: Any) -> Any:
    settings = {"src": 0, "device_group": None, "control_group": None, "timeout": timedelta(seconds=1), **options}
    return broadcast(metadata, container=settings.pop("container", type(metadata)), **settings)


def test_alone_gives_the_same_container() -> None:
    metadata = everything(1)
    assert alone(metadata) is metadata


def test_alone_checks_as_a_group_does() -> None:
    with pytest.raises(BroadcastError, match=r"^broadcast: rank 0: count: is int, the template has bool$"):
        alone(Everything(count=1), template=Everything(count=True))
    with pytest.raises(BroadcastError, match="brings no metadata"):
        alone(None, container=Small)
    with pytest.raises(BroadcastError, match="src 1 is not one of the group's ranks"):
        alone(Small(), src=1)
    with pytest.raises(BroadcastError, match="4 bytes, at most 3"):
        alone(Small(torch.zeros(1)), max_bytes=3)


def test_manifest_there_and_back() -> None:
    metadata = everything(3)
    manifest, tensors = describe(metadata)
    again = decode(encode(manifest))
    assert again == manifest
    assert_same(assemble(Everything, again, tensors), metadata)
    assert len(tensors) == 8


def nested(depth: int) -> dict[str, Any]:
    """Dicts in one another."""
    return {"a": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    ("value", "path", "rule"),
    [
        ([1], "field", "a list is not sent"),
        ({"a": {"b": {3}}}, "field.a.b", "a set is not sent"),
        ({"a": {"b": np.zeros(1)}}, "field.a.b", "a ndarray is not sent"),
        ({"a": object()}, "field.a", "a object is not sent"),
        ({4: 1}, "field", "a dict with the int key 4 is not sent"),
        ({"a": {"b.c": 1}}, "field.a", "a dict with the str key 'b.c' is not sent"),
        (nested(64), "field" + ".a" * 64, "a dict 64 levels deep is not sent"),
        (Colour.RED, "field", "a Colour is not sent"),
        (float("nan"), "field", "nan is not finite"),
        ({"4": float("-inf")}, "field.4", "-inf is not finite"),
        (2**63, "field", "0x8000000000000000 does not fit in 64 bits"),
        (-(2**63) - 1, "field", "does not fit in 64 bits"),
        ("\ud800", None, "no Unicode text"),
        ("x" * MAX_MANIFEST_BYTES, None, "at most 1048576 are sent"),
        (torch.zeros(2, dtype=torch.complex64), "field", "torch.complex64 is not sent"),
        (torch.zeros(2).to_sparse(), "field", "only strided tensors"),
        (torch.zeros(2, device="meta"), "field", "only strided tensors"),
        (torch.zeros([1] * 9), "field", "up to 8 dimensions"),
    ],
)
def test_what_cannot_be_sent_is_refused(value: Any, path: str | None, rule: str) -> None:
    with pytest.raises(RefusedError) as caught:
        encode(describe(Small(value))[0])
    assert caught.value.path == path
    assert rule in caught.value.rule


def test_a_dict_that_holds_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["a"] = loop
    with pytest.raises(TypeError, match=r"^broadcast: rank 0: field\.a\.a.*: a dict 64 levels deep is not sent"):
        alone(Small(loop))
    assert alone(Small(nested(63))).field == nested(63)


def test_a_value_of_another_kind_is_a_type_error_of_the_broadcast() -> None:
    for value in ([1], (1,), {1}, np.zeros(1), object(), Colour.RED, {"a": {"b": [1]}}):
        with pytest.raises(TypeError, match=r"^broadcast: rank 0: field(\.a\.b)?: a \w+ is not sent") as caught:
            alone(Small(value))
        assert isinstance(caught.value, BroadcastError)
        assert caught.value.failure.is_type
    with pytest.raises(BroadcastError) as plain:
        alone(Small(float("nan")))
    assert not isinstance(plain.value, TypeError)


# --- A receiver that is there -----------------------------------------------------------------------------------------


def test_fill_replaces_keys_values_and_kinds() -> None:
    kept, other, flag = torch.zeros(3), torch.zeros(2), torch.zeros(3, dtype=torch.bool)
    held = {"a": {"b": kept, "gone": 1}, "c": other, "flag": flag}
    receiver = Small(held)
    fill(receiver, Small({"new": {"x": 1}, "a": {"b": torch.ones(3), "e": {}}, "c": torch.ones(4), "flag": {"z": 2}}))
    assert receiver.field is held
    assert list(held) == ["new", "a", "c", "flag"]
    assert list(held["a"]) == ["b", "e"]
    assert held["a"]["b"] is kept
    assert kept.tolist() == [1, 1, 1]
    assert (other.tolist(), held["c"].tolist()) == ([0, 0], [1] * 4)
    assert held["flag"] == {"z": 2}
    fill(receiver, Small(5))
    assert receiver.field == 5
    fill(receiver, Small({"a": 1}))
    assert receiver.field == {"a": 1}


def test_fill_writes_no_memory_for_two_values() -> None:
    """What was one tensor, or one view of another, at the receiver is two at the sender."""
    base = torch.zeros(6)
    shared: dict[str, Any] = {"t": torch.zeros(2)}
    receiver = Small({"a": base, "b": base, "c": base[3:], "d": torch.zeros(2).expand(3, 2), "e": shared, "f": shared})
    one, two = torch.ones(6), torch.full((6,), 2.0)
    brought = {"a": one, "b": two, "c": torch.full((3,), 3.0), "d": torch.full((3, 2), 4.0)}
    fill(receiver, Small({**brought, "e": {"t": torch.full((2,), 5.0)}, "f": {"t": torch.full((2,), 6.0)}}))
    assert receiver.field["a"] is base
    assert [receiver.field[key].flatten()[0].item() for key in "abcd"] == [1, 2, 3, 4]
    assert base.tolist() == [1] * 6
    assert [receiver.field[key]["t"].tolist() for key in "ef"] == [[5, 5], [6, 6]]
    again = Small({"a": base, "b": base})
    fill(again, Small({"a": two, "b": two}))
    assert again.field["a"] is again.field["b"] is base


def test_fill_writes_tensors_of_inference() -> None:
    with torch.inference_mode():
        held = torch.zeros(3)
    receiver = Small(held)
    fill(receiver, Small(torch.ones(3)))
    assert receiver.field is held
    assert held.tolist() == [1, 1, 1]


def test_fill_writes_into_views_with_gaps() -> None:
    buffer = torch.zeros(4, 6)
    receiver = Small(buffer[:, ::2])
    fill(receiver, Small(torch.arange(12.0).view(4, 3)))
    assert receiver.field.data_ptr() == buffer.data_ptr()
    assert buffer[:, ::2].flatten().tolist() == list(range(12))
    assert int(buffer[:, 1::2].abs().sum()) == 0


def manifest_of(tensors: str, field: str) -> str:
    return f'{{"tensors":{tensors},"values":{{"field":{field}}}}}'


REFERENCE = '{"type":"tensor","index":0}'

MALFORMED = {
    "empty": "",
    "pickle": "\x80\x04N.",
    "cut short": '{"tensors":[],"values":{"fie',
    "more after it": manifest_of("[]", '{"type":"scalar","value":1}') + "x",
    "no UTF-8": manifest_of("[]", '{"type":"scalar","value":"\xff"}'),
    "not a number": manifest_of("[]", '{"type":"scalar","value":NaN}'),
    "65 bits": manifest_of("[]", '{"type":"scalar","value":18446744073709551616}'),
    "list": manifest_of("[]", '{"type":"scalar","value":[1]}'),
    "unknown kind": manifest_of("[]", '{"type":"code","value":1}'),
    "unknown key": manifest_of('[{"dtype":"int32","shape":[1],"strides":[0]}]', REFERENCE),
    "unknown dtype": manifest_of('[{"dtype":"object","shape":[1]}]', REFERENCE),
    "negative size": manifest_of('[{"dtype":"int32","shape":[-1]}]', REFERENCE),
    "9 dimensions": manifest_of(f'[{{"dtype":"int32","shape":{[1] * 9}}}]', REFERENCE),
    "too large": manifest_of('[{"dtype":"int32","shape":[1099511627776, 1099511627776]}]', REFERENCE),
    "no such tensor": manifest_of("[]", REFERENCE),
    "negative index": manifest_of("[]", '{"type":"tensor","index":-1}'),
    "tensor of no field": manifest_of('[{"dtype":"int32","shape":[1]}]', '{"type":"scalar","value":1}'),
    "a key with a dot": manifest_of("[]", '{"type":"dict","items":{"a.b":{"type":"dict","items":{}}}}'),
    "65 levels": manifest_of("[]", '{"type":"dict","items":{"a":' * 64 + '{"type":"dict","items":{}}' + "}}" * 64),
    "deep": "[" * 100_000,
    "too long": " " * (MAX_MANIFEST_BYTES + 1),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_manifest_is_refused(name: str) -> None:
    with pytest.raises(RefusedError, match=r"malformed manifest|the manifest has|the tensors have"):
        check_total(decode(MALFORMED[name].encode("latin-1")), MAX_BYTES)


def test_error_is_one_short_line() -> None:
    error = BroadcastError(3, "klen.4", "first\nsecond \N{BEACH WITH UMBRELLA}" + "x" * 1000)
    assert error.failure.rule.startswith("first second \\U0001f3d6x")
    assert len(error.failure.rule) == 400
    assert str(BroadcastError(3, "klen.4", "is wrong")) == "broadcast: rank 3: klen.4: is wrong"


# --- Several processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_every_rank_has_every_field(group: Group, world: int) -> None:
    assert values(group("all_fields", world)) == ["equal"] * world


def test_a_tensor_stays_one_and_apart_from_others(group: Group) -> None:
    assert values(group("aliasing", 2)) == ["source", "one and apart"]


def test_one_group_serves_many_broadcasts(group: Group) -> None:
    assert common(group("repeated", 3)) == "equal"


def test_result_is_on_the_host_with_gloo(group: Group) -> None:
    assert common(group("places", 2)) == ["cpu"]


def test_subgroup_with_global_ranks(group: Group) -> None:
    outside = "broadcast: rank {}: is not in the control group"
    assert values(group("subgroup", 4)) == [outside.format(0), "equal", outside.format(2), "equal"]


def test_template_mismatch_is_the_same_error_on_all(group: Group) -> None:
    answers = common(group("templates", 4))
    assert answers == [
        [1, path, f"broadcast: rank 1: {path}: {rule}"]
        for path, rule in (
            ("other", "is bool [3], the template has int32 [3]"),
            ("strided", "is int16 [5, 2], the template has int16 [2, 5]"),
            ("tensor", "is int32 [7], the template has None"),
            ("nothing", "is None, the template has float32 [1]"),
            ("count", "is int, the template has bool"),
            ("empty", "is an empty dict, the template has missing"),
            ("buckets", "is missing, the template has an empty dict"),
        )
    ]


def test_another_container_is_the_same_error_on_all(group: Group) -> None:
    rank, path, text = common(group("containers", 3))
    assert (rank, path) == (2, "tensor")
    assert text == "broadcast: rank 2: tensor: is sent, but InputMetadataV4 has no such field"


def test_source_must_be_one_and_agreed(group: Group) -> None:
    assert [text for _, _, text in common(group("sources", 3))] == [
        "broadcast: rank 0: is the source, but brings no metadata",
        "broadcast: rank 1: brings metadata, but the source is rank 0",
        "broadcast: rank 1: src is 1, on rank 0 it is 0",
        "broadcast: rank 0: src 3 is not one of the group's ranks [0, 1, 2]",
    ]


def test_what_one_rank_cannot_do_is_the_same_error_on_all(group: Group) -> None:
    assert common(group("unsendable", 2))[:2] == [0, "buckets.list"]
    assert common(group("no_memory", 3)) == [2, None, "broadcast: rank 2: MemoryError: none"]
    assert common(group("too_large", 3))[2].endswith("bytes, at most 100 are sent")


@pytest.mark.parametrize("path", [["list"], ["inner", "deeper", "tuple"]])
def test_a_value_of_another_kind_is_a_type_error_on_all_ranks(group: Group, path: list[str]) -> None:
    where = ".".join(["buckets", *path])
    text = f"broadcast: rank 0: {where}: a tuple is not sent; scalars, tensors and dicts of these are"
    assert common(group("unknown_types", 3, path)) == [0, where, text]


def test_caches_of_kernels_are_not_sent(group: Group) -> None:
    assert common(group("caches", 2)) == "equal"


def test_a_receiver_that_is_there_is_filled(group: Group) -> None:
    assert common(group("receivers", 3)) == "equal"


def test_a_refused_call_leaves_the_receiver_as_it_was(group: Group) -> None:
    answers = common(group("refused_receivers", 3))
    assert [answer[0] for answer in answers] == [1, 0, 2, 2]
    assert answers[0][2] == "broadcast: rank 1: brings a InputMetadataV4, not a Everything"
    assert answers[1][2].endswith("is the source, which keeps its own container, but brings a receiver")
    assert answers[2][2].endswith("MemoryError: none left")


@pytest.mark.parametrize("name", ["empty", "pickle", "cut short", "unknown dtype", "tensor of no field"])
def test_malformed_manifest_is_the_same_error_on_all(group: Group, name: str) -> None:
    rank, path, text = common(group("malformed", 2, MALFORMED[name]))
    assert (rank, path) == (1, None)
    assert "manifest" in text


def errors_of_survivors(answers: Answers, victim: int) -> list[str]:
    """The texts of all other ranks' errors, which the call's own timeout brought, not the group's."""
    assert answers[victim] == {}
    others = [answer for rank, answer in enumerate(answers) if rank != victim]
    assert all(broken and "\n" not in text for _, _, broken, text in (answer["error"] for answer in others))
    assert max(answer["seconds"] for answer in others) < GROUP_TIMEOUT
    return [answer["error"][3] for answer in others]


@pytest.mark.parametrize("moment", ["before", "manifest", "verdict", "tensors", "commit"])
@pytest.mark.parametrize(("victim", "src"), [(2, 0), (0, 1), (0, 0), (1, 1)])
def test_dead_rank_is_named_on_all_others(group: Group, moment: str, victim: int, src: int) -> None:
    if moment == "commit" and victim == src:
        moment = "tensors"
    for text in errors_of_survivors(group("dies", 3, victim, moment, src), victim):
        assert text.startswith(f"broadcast: rank {victim}: died or gave up (phase ")


def test_source_serves_the_ranks_behind_one_it_cannot_reach(group: Group) -> None:
    for text in errors_of_survivors(group("unreachable", 3, 0, 1), 0):
        assert text.startswith("broadcast: rank 0: died or gave up (phase ")


def test_next_call_after_a_death_fails_at_once(group: Group) -> None:
    errors_of_survivors(group("after_loss", 3), 1)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "tensors"])
@pytest.mark.parametrize("victim", [0, 2])
def test_late_rank_ends_in_errors_in_time(group: Group, moment: str, victim: int) -> None:
    answers = group("stuck", 3, victim, moment)
    for answer in answers:
        assert answer["error"][2]
        assert answer["seconds"] < GROUP_TIMEOUT
    if victim != 0:
        assert answers[0]["error"][:2] == [victim, None]
        assert "no answer to rank 0 within" in answers[0]["error"][3]


@needs_gpus
def test_nccl_every_rank_has_every_field(group: Group) -> None:
    world = min(GPUS, 8)
    assert values(group("all_fields", world, backend="nccl")) == ["equal"] * world
    assert values(group("aliasing", 2, backend="nccl")) == ["source", "one and apart"]
    assert values(group("repeated", 2, backend="nccl")) == ["equal"] * 2
    assert values(group("places", 2, backend="nccl")) == [["cuda:0"], ["cuda:1"]]


@needs_gpus
@pytest.mark.parametrize("moment", ["before", "tensors"])
def test_nccl_dead_rank_is_named(group: Group, moment: str) -> None:
    for text in errors_of_survivors(group("dies", 2, 1, moment, backend="nccl"), 1):
        assert text.startswith("broadcast: rank 1: died or gave up (phase ")


@needs_gpus
def test_nccl_late_rank_ends_in_errors_in_time(group: Group) -> None:
    answers = group("stuck", 2, 1, "tensors", backend="nccl")
    assert answers[0]["error"][2]
    assert answers[0]["seconds"] < GROUP_TIMEOUT
