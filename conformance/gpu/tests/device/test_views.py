"""A step on the device in its views, mirrored and truncated: the same as the step on the host."""

import pytest
import torch

from inputmeta.conformance.campaign.generated import generated_cases
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.subjects import load_subject
from inputmeta.conformance.subjects.engine import engine_config

WINDOW = ("kv_swa_full_index",)


@pytest.fixture(scope="module")
def subjects():
    return [load_subject(name) for name in ("engine", "engine-cuda")]


def tensors(metadata):
    return {key: value for key, value in metadata.to_flatten_dict().items() if isinstance(value, torch.Tensor)}


def view_of(metadata, mode):
    return metadata.get_mask_view() if mode == "mask" else metadata.get_consumer_view()


@pytest.mark.parametrize("mode", ["mask", "compact"])
@pytest.mark.parametrize("ranks", [1, 4])
def test_views_of_generated_prompts(gpu, subjects, mode, ranks):
    profile = Profile(
        paths=("prompt",), max_cp_size=ranks, yoco_modes=(mode,), invalid=0, tiers=("small",), wide_windows=False
    )
    for case in generated_cases(profile, 4, 60):
        request = step_request(case, 0)
        config = engine_config(request.config)
        on_host, on_device = (subject.container(request) for subject in subjects)
        torch.cuda.set_sync_debug_mode("error")
        try:
            view = view_of(on_device, mode)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        want = view_of(on_host, mode)
        for each in (view, want):
            each.compute_attn_info(config, expansions=WINDOW)
        got, want = tensors(view), tensors(want)
        assert got.keys() == want.keys()
        assert [key for key, tensor in got.items() if not tensor.is_cuda] == []
        assert [key for key, tensor in got.items() if not torch.equal(tensor.cpu(), want[key])] == []


def test_a_tensor_that_is_referenced_twice_is_copied_once(gpu, subjects):
    on_host, _ = subjects
    request = step_request(generated_cases(Profile(paths=("decode",), invalid=0, tiers=("small",)), 4, 1)[0], 0)
    step = on_host.container(request)
    step.context_lens = step.positions
    moved = step.to("cuda")
    assert moved.context_lens is moved.positions
    assert torch.equal(moved.positions.cpu(), step.positions)
