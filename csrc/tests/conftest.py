"""Makes `engine_cases` importable: pytest's importlib mode leaves the tests' own folder off the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
