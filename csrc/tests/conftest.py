"""Makes `engine_cases` importable (pytest's importlib mode leaves the tests' own folder off the path), and says which
tests need a GPU.
"""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _gpu(request):
    """Skips a test marked `gpu` where there is none. With a GPU it runs, and fails if the engine has no kernels."""
    if request.node.get_closest_marker("gpu") is not None and not torch.cuda.is_available():
        pytest.skip("no GPU")
