"""The engine's container keeps its promises on generated steps, and each check fails on a container that does not."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from inputmeta import engine, oracle
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import Request, step_request
from inputmeta.conformance.check.containers import (
    computes_again_after_a_clean,
    consumer_view_is_a_view,
    consumer_view_is_the_oracles,
    copies_in_place,
    flattens_and_folds,
    mask_view_is_a_view,
)
from inputmeta.conformance.check.relations import RelationError
from inputmeta.conformance.generate import Profile, batches
from inputmeta.conformance.subjects.engine import EngineSubject, engine_config

BOUNDED = settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
ANY = Profile(max_cp_size=4, invalid=0, tiers=("small",))
SUBJECT = EngineSubject()


def steps(case: Case) -> list[Request]:
    return [step_request(case, index, in_place=False) for index in range(len(case.steps))]


@BOUNDED
@given(batches(ANY))
def test_generated_containers_flatten_copy_and_compute(case: Case) -> None:
    for request in steps(case):
        container = SUBJECT.container(request)
        flattens_and_folds(container)
        computes_again_after_a_clean(container, engine_config(request.config), request.expand)
        target = SUBJECT.container(request)
        for value in target.to_flatten_dict().values():
            if isinstance(value, torch.Tensor):
                value.fill_(1)
        target.num_reqs = 77
        copies_in_place(target, container)


@BOUNDED
@given(
    batches(
        Profile(
            paths=("prompt",),
            max_cp_size=4,
            yoco_modes=("mask", "compact"),
            invalid=0,
            tiers=("small",),
            wide_windows=False,
        )
    )
)
def test_views_of_generated_steps(case: Case) -> None:
    for request in steps(case):
        config = engine_config(request.config)
        container = SUBJECT.container(request)
        if request.config.yoco_mode == "mask":
            mask_view_is_a_view(container, config)
        else:
            consumer_view_is_a_view(container, config)
            consumer_view_is_the_oracles(container, request.sequences)


CHUNK = oracle.SequenceMetadata(
    seqlen_q=7, seqlen_k=12, block_table=(4, 2, 9), state_id=3, token_ids=tuple(range(12)), data_len=12
)


def request(mode: str = "off", cp_size: int = 1) -> Request:
    config = oracle.MetadataConfig(
        block_size=4,
        sparse_ratios=(2,),
        window_size=4,
        swa_block_size=6,
        max_model_len=16,
        cp_size=cp_size,
        yoco_mode=mode,
        yoco_prefill_keep_tokens=4,
    )
    return Request("prompt", config, [CHUNK])


def faulty(kind: type[engine.InputMetadataV4], mode: str = "off", cp_size: int = 1) -> engine.InputMetadataV4:
    """A step's container as an object of a faulty class."""
    container = copy.copy(SUBJECT.container(request(mode, cp_size)))
    container.__class__ = kind
    return container


class DropsEmptyDict(engine.InputMetadataV4):
    def to_flatten_dict(self):
        return {key: value for key, value in super().to_flatten_dict().items() if value != {}}


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


class ForgetsToClean(engine.InputMetadataV4):
    def compute_attn_info(self, config, out=None, *, expansions=()):
        if self.kv_swa_full_index is None:
            super().compute_attn_info(config, out, expansions=expansions)
        else:
            self.kv_swa_full_index = self.kv_swa_full_index.clone()


class GrowsAtEachCompute(engine.InputMetadataV4):
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


@pytest.mark.parametrize("kind", [MaskTurnedRound, PositionsNotGathered, SequencesForRows])
def test_a_consumer_view_that_the_oracle_contradicts_is_seen(kind: type) -> None:
    consumer_view_is_the_oracles(SUBJECT.container(request("compact", 2)), [CHUNK])
    with pytest.raises(RelationError, match="the oracle says"):
        consumer_view_is_the_oracles(faulty(kind, "compact", 2), [CHUNK])


@pytest.mark.parametrize("kind", [DropsEmptyDict, OpensTwoLevels])
def test_a_container_that_does_not_fold_back_is_seen(kind: type) -> None:
    with pytest.raises(RelationError):
        flattens_and_folds(faulty(kind))


@pytest.mark.parametrize("kind", [CopiesScalars, MovesAddresses, SkipsBuckets])
def test_a_copy_that_is_none_is_seen(kind: type) -> None:
    target = faulty(kind)
    for value in target.to_flatten_dict().values():
        if isinstance(value, torch.Tensor):
            value.fill_(1)
    target.num_reqs = 77
    with pytest.raises(RelationError):
        copies_in_place(target, SUBJECT.container(request()))


@pytest.mark.parametrize("kind", [ForgetsToClean, GrowsAtEachCompute])
def test_a_compute_that_is_not_idempotent_is_seen(kind: type) -> None:
    with pytest.raises(RelationError):
        computes_again_after_a_clean(faulty(kind), engine_config(request().config), request().expand)


@pytest.mark.parametrize("kind", [MaskViewInPlace, MaskViewIsDeep])
def test_a_mask_view_that_is_none_is_seen(kind: type) -> None:
    with pytest.raises(RelationError):
        mask_view_is_a_view(faulty(kind, "mask"), engine_config(request("mask").config))


@pytest.mark.parametrize(
    ("kind", "cp_size"),
    [(KeepsExpansion, 1), (FullKeyRanges, 1), (FullKeyRanges, 2), (SharedContainer, 1), (FirstMirror, 2)],
)
def test_a_consumer_view_that_is_none_is_seen(kind: type, cp_size: int) -> None:
    with pytest.raises(RelationError):
        consumer_view_is_a_view(faulty(kind, "compact", cp_size), engine_config(request("compact", cp_size).config))
