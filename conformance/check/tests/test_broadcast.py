"""Generated containers, broadcast over real processes, are the same on every rank (RANK of the bug classes)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from inputmeta.conformance.cases.files import format_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.generate import Profile, batches

WORKER = Path(__file__).with_name("broadcast_worker.py")
PROFILE = Profile(max_cp_size=4, invalid=0, tiers=("small",))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 60 generated cases, the same every time."""
    drawn: list[str] = []

    @settings(
        max_examples=60,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(batches(PROFILE))
    def draw(case: Case) -> None:
        drawn.append(format_case(case))

    draw()
    path = tmp_path_factory.mktemp("cases") / "cases.json"
    path.write_text(json.dumps(drawn))
    return path


def run_ranks(world: int, cases: Path, store: Path, fault: str = "none") -> list[tuple[int, str]]:
    """Exit code and output of every rank."""
    ranks = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), str(world), str(store), str(cases), fault],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]
    return [(rank.wait(timeout=180), (rank.stdout.read() if rank.stdout else "").strip()) for rank in ranks]


@pytest.mark.parametrize("world", [2, 4])
def test_every_rank_receives_what_rank_0_built(world: int, cases: Path, tmp_path: Path) -> None:
    assert run_ranks(world, cases, tmp_path / "store") == [(0, f"rank {rank}: equal") for rank in range(world)]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("sent-twice", "a tensor referenced twice arrived as two"),
        ("empty-dict-dropped", "fields"),
        ("none-on-one-rank", "cu_seqlens_q"),
        ("stale-value", "positions differs"),
    ],
)
def test_a_wrong_delivery_is_seen(fault: str, says: str, cases: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.json"
    one.write_text(json.dumps(json.loads(cases.read_text())[:1]))
    (_, first), (code, text) = run_ranks(2, one, tmp_path / "store", fault)
    assert first == "rank 0: equal"
    assert code == 1
    assert says in text
