"""What the tests of the reference share."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import array_api_compat.numpy
import array_api_compat.torch
import pytest
import torch


@pytest.fixture(params=["numpy", "torch"])
def xp(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Both libraries on the CPU, one thread: the batches are small, and cores that others use are waited for."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield array_api_compat.numpy if request.param == "numpy" else array_api_compat.torch
    torch.set_num_threads(threads)
