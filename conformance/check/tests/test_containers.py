"""Containers are held to the oracle's model: right ones pass on generated steps, a fault of each promise is seen."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from typer.testing import CliRunner

from inputmeta import engine, oracle
from inputmeta.conformance import exits
from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence
from inputmeta.conformance.cases.request import Request, step_request
from inputmeta.conformance.check.containers import inspect, inspectable, inspector_of
from inputmeta.conformance.check.extraction import MEMBERS
from inputmeta.conformance.check.inspection import inspected
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.generate import Profile, batches
from inputmeta.conformance.mutants.containers import Contained
from inputmeta.conformance.subjects.base import SubjectFailure
from inputmeta.conformance.subjects.engine import EngineSubject
from inputmeta.conformance.subjects.oracle import OracleSubject
from inputmeta.oracle import container as model
from inputmeta.oracle import zos

BOUNDED = settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
ANY = Profile(max_cp_size=4, invalid=0, tiers=("small",), wide_windows=False)
TRUNCATED = dataclasses.replace(ANY, paths=("prompt",), yoco_modes=("mask", "compact"))
SUBJECTS = {"engine": EngineSubject(), "numpy": Contained("contained")}
ALWAYS = {"flatten", "fold", "copy", "misfit", "compute", "clean", "images", "broadcast", "receiver", "unsent"}


@pytest.mark.parametrize("profile", [ANY, TRUNCATED], ids=["any", "truncated"])
def test_right_containers_keep_every_promise_on_generated_steps(profile: Profile) -> None:
    seen: set[str] = set()

    @BOUNDED
    @given(batches(profile))
    def check(case: Case) -> None:
        for index in range(len(case.steps)):
            request = step_request(case, index, in_place=False)
            if not inspectable(request):
                continue
            for subject in SUBJECTS.values():
                found = inspect(subject, request)
                assert found.broken == ()
                assert set(found.kept) >= ALWAYS
                seen.update(found.kept)

    check()
    assert profile is ANY or seen == ALWAYS | {"mask-view", "consumer-view"}


CHUNK = oracle.SequenceMetadata(
    seqlen_q=7, seqlen_k=12, block_table=(4, 2, 9), state_id=3, token_ids=tuple(range(12)), data_len=12
)


def request(mode: str = "off", cp_size: int = 1, expand: frozenset[str] = frozenset(oracle.EXPANSIONS)) -> Request:
    config = oracle.MetadataConfig(
        block_size=4,
        sparse_ratios=(2,),
        window_size=4,
        swa_block_size=6,
        max_model_len=16,
        cp_size=cp_size,
        yoco_mode=mode,  # type: ignore[arg-type]
        yoco_prefill_keep_tokens=4,
    )
    return Request("prompt", config, [CHUNK], expand=expand)


class DropsEmptyDict(engine.InputMetadataV4):
    def to_flatten_dict(self):
        return {key: value for key, value in super().to_flatten_dict().items() if value != {}}


class CopiesTensors(engine.InputMetadataV4):
    def to_flatten_dict(self):
        return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in super().to_flatten_dict().items()}


class OpensTwoLevels(engine.InputMetadataV4):
    @classmethod
    def from_flatten_dict(cls, flat):
        return super().from_flatten_dict({key.replace(".", ".x"): value for key, value in flat.items()})


class CopiesScalars(engine.InputMetadataV4):
    def recursive_copy_(self, other):
        super().recursive_copy_(other)
        self.num_reqs = other.num_reqs


class MovesAddresses(engine.InputMetadataV4):
    def recursive_copy_(self, other):
        super().recursive_copy_(other)
        self.positions = other.positions.clone()


class SkipsBuckets(engine.InputMetadataV4):
    def recursive_copy_(self, other):
        kept = {key: value.clone() for key, value in self.ks.items()}
        super().recursive_copy_(other)
        for key, value in kept.items():
            self.ks[key].copy_(value)


class CopiesBeforeItRefuses(engine.InputMetadataV4):
    def recursive_copy_(self, other):
        self.positions.copy_(other.positions)
        super().recursive_copy_(other)


class WritesAtEachCompute(engine.InputMetadataV4):
    def compute_attn_info(self, config, out=None, *, expansions=()):
        super().compute_attn_info(config, out, expansions=expansions)
        self.cu_seqlens_q.add_(2)


class MaskViewInPlace(engine.InputMetadataV4):
    def get_mask_view(self):
        self.kv_swa_full_index_pivots.copy_(self.yoco_mask_swa_index_pivots)
        return super().get_mask_view()


class MaskViewIsDeep(engine.InputMetadataV4):
    def get_mask_view(self):
        view = super().get_mask_view()
        view.input_ids = view.input_ids.clone()
        return view


class KeepsExpansion(engine.InputMetadataV4):
    def get_consumer_view(self):
        view = super().get_consumer_view()
        view.kv_swa_full_index = self.kv_swa_full_index
        return view


class FullKeyRanges(engine.InputMetadataV4):
    def get_consumer_view(self):
        view = super().get_consumer_view()
        view.ks = self.ks
        return view


class SharedContainer(engine.InputMetadataV4):
    def get_consumer_view(self):
        view = super().get_consumer_view()
        self.total_q = view.total_q
        return view


class FirstMirror(engine.InputMetadataV4):
    def get_consumer_view(self):
        view = super().get_consumer_view()
        view.mirror_cp_index = self.mirror_cp_index
        return view


class MaskTurnedRound(engine.InputMetadataV4):
    def get_consumer_view(self):
        view = super().get_consumer_view()
        view.valid_token_mask = ~view.valid_token_mask
        return view


class PositionsNotGathered(engine.InputMetadataV4):
    def get_consumer_view(self):
        view = super().get_consumer_view()
        view.positions = self.yoco_consumer_positions
        return view


class SequencesForRows(engine.InputMetadataV4):
    def get_consumer_view(self):
        view = super().get_consumer_view()
        view.query_indices = torch.zeros_like(view.query_indices)
        return view


class MaskOfBytes(engine.InputMetadataV4):
    def get_consumer_view(self):
        view = super().get_consumer_view()
        view.valid_token_mask = view.valid_token_mask.to(torch.uint8)
        return view


class CopiesTokenTypes(engine.InputMetadataV4VL):
    def get_consumer_view(self):
        view = super().get_consumer_view()
        view.mm_token_type = view.mm_token_type.clone()
        return view


class ImagesOfBytes(engine.InputMetadataV4VL):
    def get_consumer_view(self):
        view = super().get_consumer_view()
        view.images_seq_mask = view.images_seq_mask.to(torch.uint8)
        return view


class Faulty(EngineSubject):
    """The engine with containers of a faulty class."""

    def __init__(self, kind: type[engine.InputMetadataV4]) -> None:
        super().__init__()
        self.kind = kind

    def container(self, request, out=None):
        container = super().container(request, out)
        container.__class__ = self.kind
        return container

    def image_container(self, request, images_seq_mask, mm_token_type):
        container = super().image_container(request, images_seq_mask, mm_token_type)
        if issubclass(self.kind, engine.InputMetadataV4VL):
            container.__class__ = self.kind
        return container


@pytest.mark.parametrize(
    ("kind", "promise", "mode", "cp_size"),
    [
        (DropsEmptyDict, ("I-39", "flatten"), "off", 1),
        (CopiesTensors, ("I-39", "flatten"), "off", 1),
        (OpensTwoLevels, ("I-40", "fold"), "off", 1),
        (CopiesScalars, ("I-46", "copy"), "off", 1),
        (MovesAddresses, ("I-46", "copy"), "off", 1),
        (SkipsBuckets, ("I-46", "copy"), "off", 1),
        (CopiesBeforeItRefuses, ("I-46", "misfit"), "off", 1),
        (WritesAtEachCompute, ("I-47", "compute"), "off", 1),
        (MaskViewInPlace, ("I-23", "mask-view"), "mask", 1),
        (MaskViewIsDeep, ("I-23", "mask-view"), "mask", 1),
        (KeepsExpansion, ("I-23", "consumer-view"), "compact", 1),
        (FullKeyRanges, ("I-23", "consumer-view"), "compact", 1),
        (FullKeyRanges, ("I-23", "consumer-view"), "compact", 2),
        (SharedContainer, ("I-23", "consumer-view"), "compact", 1),
        (FirstMirror, ("I-23", "consumer-view"), "compact", 2),
        (MaskTurnedRound, ("I-23", "consumer-view"), "compact", 2),
        (PositionsNotGathered, ("I-23", "consumer-view"), "compact", 2),
        (SequencesForRows, ("I-23", "consumer-view"), "compact", 2),
        (MaskOfBytes, ("I-23", "consumer-view"), "compact", 2),
        (CopiesTokenTypes, ("I-48", "images"), "compact", 1),
        (ImagesOfBytes, ("I-48", "images"), "compact", 2),
    ],
)
def test_a_container_of_tensors_that_is_wrong_is_seen(
    kind: type[engine.InputMetadataV4], promise: tuple[str, str], mode: str, cp_size: int
) -> None:
    assert inspect(EngineSubject(), request(mode, cp_size)).broken == ()
    found = inspect(Faulty(kind), request(mode, cp_size)).broken
    assert promise in [broken[:2] for broken in found]


class Raising(Contained):
    def container(self, request):
        raise KeyError("positions")


class DeviceArray:
    dtype, shape = np.dtype("int32"), (3,)

    def __dlpack_device__(self):
        return 2, 0


class OnADevice(Contained):
    def __init__(self, positions: object) -> None:
        super().__init__("on-a-device")
        self.positions = positions

    def container(self, request):
        container = super().container(request)
        container.positions = self.positions
        return container


def test_what_has_no_container_is_not_inspected() -> None:
    assert inspector_of(OracleSubject()) is None
    assert inspected(OracleSubject(), [(0, request())]) == (False, [])
    assert inspect(OnADevice(DeviceArray()), request()) == ((), ())
    assert inspect(OnADevice(torch.zeros(3, device="meta")), request()) == ((), ())


def test_a_batch_of_many_cells_is_not_inspected() -> None:
    large = dataclasses.replace(CHUNK, seqlen_q=4000, seqlen_k=4000, token_ids=tuple(range(4000)))
    assert not inspectable(dataclasses.replace(request(), sequences=[large]))


def test_a_container_that_raises_breaks_its_promise() -> None:
    checked, (found,) = inspected(Raising("raising"), [(3, request())])
    assert checked
    assert found.on_path("prompt").signature == "MISMATCH:prompt:I-40:-:container"
    assert (found.step, found.detail) == (3, "container: raised KeyError: 'positions'")


class Dying(OracleSubject):
    def inspect_container(self, request):
        raise SubjectFailure("CRASH", "ended by SIGSEGV", "SIGSEGV")


def test_a_worker_that_dies_of_its_container_is_a_crash() -> None:
    checked, (found,) = inspected(Dying(), [(0, request())])
    assert not checked
    assert found.on_path("prompt").signature == "CRASH:prompt:-:-:SIGSEGV"
    assert found.detail == "container: ended by SIGSEGV"


def test_a_finding_names_the_field() -> None:
    _, (found,) = inspected(Faulty(SkipsBuckets), [(0, request())])
    assert found.on_path("prompt").signature == "MISMATCH:prompt:I-46:ks:copy"
    assert found.detail.startswith("container: recursive_copy_: ks.2 cell [0] is ")


CASE = next(iter(sorted(bundled_corpus().glob("f-ctxlen*.json"))))


def test_the_command_line_says_that_a_container_was_checked() -> None:
    for quiet, says in (((), "cells; container checked\n"), (("--quiet",), "0 unsupported; containers: 1 checked\n")):
        right = CliRunner().invoke(app, ["replay", str(CASE), "--subject", "engine", "--in-process", *quiet])
        assert right.exit_code == exits.CONFORMS
        assert right.output.endswith(says)


@pytest.mark.parametrize("where", [(), ("--in-process",)])
def test_the_command_line_tells_and_replays_it(where: tuple[str, ...]) -> None:
    wrong = CliRunner().invoke(app, ["replay", str(CASE), "--subject", "mutant:copy-shares", *where])
    assert wrong.exit_code == exits.DIFFERS, wrong.output
    assert "MISMATCH: container: recursive_copy_: positions moved to another address" in wrong.output
    assert f"formula  I-46  {oracle.PROMISES['I-46']}" in wrong.output
    assert f"replay {CASE} --subject mutant:copy-shares" in wrong.output


def test_the_model_refuses_what_a_broadcast_does_not_send() -> None:
    loop: dict[str, object] = {}
    loop["a"] = loop
    for value, path, kind in (
        (loop, "klen" + ".a" * 64, "dict"),
        ({"a.b": 1}, "klen", "dict"),
        ({"a": {4: 1}}, "klen.a", "dict"),
        ({"a": np.zeros(1)}, "klen.a", "ndarray"),
    ):
        with pytest.raises(model.UnsentError) as caught:
            model.sent({"klen": value})
        assert (caught.value.path, caught.value.kind) == (path, kind)


ZOS_STEP = Case(
    schema=SCHEMA,
    path="decode_zos",
    config=Config(block_size=4, sparse_ratios=(2,), window_size=2, swa_block_size=3, max_model_len=16),
    steps=(
        (
            Sequence(seqlen_q=2, seqlen_k=6, block_table=(7, 3, 9), token_ids=(1, 2, 3, 4, 5), draft_tokens=(20,)),
            Sequence(seqlen_q=1, seqlen_k=2, block_table=(5,), token_ids=(30, 31), is_placeholder=True),
        ),
    ),
)


class ExtractsOnly:
    """A subject without containers. ``changes``: what is wrong with what it extracts."""

    def __init__(self, **changes: object) -> None:
        self.changes = changes

    def extract(self, request: Request) -> dict[str, object]:
        right = zos.extract(request.config, request.sequences)
        return {name: np.array(getattr(right, name)) for name in MEMBERS} | self.changes


def test_what_the_engine_extracts_is_the_oracles() -> None:
    found = inspect(EngineSubject(), step_request(ZOS_STEP, 0))
    assert "extract" in found.kept
    assert found.broken == ()


def test_a_subject_without_containers_may_show_what_it_extracts() -> None:
    request = step_request(ZOS_STEP, 0)
    assert inspector_of(ExtractsOnly()) is not None
    assert inspect(ExtractsOnly(), request) == (("extract",), ())
    assert inspect(ExtractsOnly(seqlens_k=None), request).kept == ("extract",)
    assert inspect(ExtractsOnly(), dataclasses.replace(request, path="decode")) == ((), ())


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"block_tables": [7, 3]}, "extract: block_tables has 2 cells, want 3"),
        ({"block_tables": [7, 3, 9]}, "extract: block_tables[2] is 9, want 5"),
        ({"is_placeholder": [False, False]}, "extract: is_placeholder[1] is False, want 1"),
        (dict.fromkeys(MEMBERS), "extract: has none of seqlens_q"),
        ({"input_ids": "tokens"}, "extract: input_ids has 1 cells, want 3"),
    ],
)
def test_what_is_extracted_wrongly_is_told(changes: dict[str, object], detail: str) -> None:
    (broken,) = inspect(ExtractsOnly(**changes), step_request(ZOS_STEP, 0)).broken
    assert (broken.number, broken.kind) == ("I-22", "extract")
    assert detail in broken.detail
