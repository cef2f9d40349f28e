"""The wheel holds what users need and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_is_complete(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir"]
    subprocess.run([*command, str(tmp_path), str(ROOT)], check=True, timeout=600)
    (wheel,) = tmp_path.glob("inputmeta_conformance-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    cases = {f"corpus/cases/{path.name}" for path in (ROOT / "corpus" / "cases").glob("*.json")}
    assert cases
    assert cases <= names
    for name in ("corpus/case.schema.json", "corpus/README.md", "oracle/SPEC.md", "oracle/py.typed", "engine/py.typed"):
        assert name in names
    assert any(name.startswith("engine/_core.") and name.endswith(".so") for name in names)
    sources = {
        str(path.relative_to(ROOT)) for folder in ("oracle", "conformance") for path in (ROOT / folder).rglob("*.py")
    }
    assert {name for name in sources if "/tests/" not in name} <= names
    assert not any("/tests/" in name for name in names)
