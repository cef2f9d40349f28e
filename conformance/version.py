"""Version of the distribution: of the installed one, or of the checkout that runs without being installed."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def _version() -> str:
    try:
        return version("inputmeta-conformance")
    except PackageNotFoundError:
        project = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
        return str(project["project"]["version"])


VERSION = _version()
