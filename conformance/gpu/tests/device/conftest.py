"""Tests that need a GPU: each is skipped, for one counted reason, where there is none."""

from importlib.util import find_spec

import pytest
import torch

from inputmeta import engine
from inputmeta.conformance.gpu.summary import NO_GPU

collect_ignore = [] if find_spec("triton") else ["consumer.py"]  # its kernels need Triton to be imported at all


@pytest.fixture(autouse=True, scope="session")
def gpu() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip(NO_GPU)
    assert engine.cuda_available(), "there is a GPU, but the engine was built without CUDA"
    return torch.device("cuda", torch.cuda.current_device())
