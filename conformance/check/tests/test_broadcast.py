"""Generated containers, broadcast over real processes, are the same on every rank (RANK of the bug classes)."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from inputmeta.conformance.cases.files import format_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.generate import Profile, batches

WORKER = Path(__file__).with_name("broadcast_worker.py")
PROFILE = Profile(max_cp_size=4, invalid=0, tiers=("small",), varlen=False)


Group = Callable[[int, str], list[str | None]]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """Runs so many ranks with a fault over 60 generated cases, the same every time; says what differs on each.

    All groups are forked from one process, which has imported what they need.
    """
    drawn: list[str] = []

    @settings(
        max_examples=60,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(batches(PROFILE))
    def draw(case: Case) -> None:
        drawn.append(format_case(case))

    draw()
    path = tmp_path_factory.mktemp("cases") / "cases.json"
    path.write_text(json.dumps(drawn))
    with subprocess.Popen(
        [sys.executable, str(WORKER), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        asked, answers = worker.stdin, worker.stdout

        def run(world: int, fault: str) -> list[str | None]:
            print(world, fault, file=asked, flush=True)
            found: list[str | None] = json.loads(answers.readline())
            return found

        yield run
        asked.close()
        assert worker.wait(30) == 0


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_every_rank_receives_what_rank_0_built(world: int, group: Group) -> None:
    assert group(world, "none") == [""] * world


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("sent-twice", "a tensor referenced twice arrived as two"),
        ("empty-dict-dropped", "kv_ca_index is None, want a dict"),
        ("none-on-one-rank", "cu_seqlens_q"),
        ("stale-value", "positions cell [0] is"),
        ("bound-not-copied", "cu_seqlens_q moved"),
    ],
)
def test_a_wrong_delivery_is_seen(fault: str, says: str, group: Group) -> None:
    first, last = group(2, fault)
    assert first == ""
    assert says in (last or "")
