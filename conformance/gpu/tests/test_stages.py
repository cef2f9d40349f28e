"""The run on a GPU as far as it goes without one: choice of stages, their verdicts, the summary, the exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from inputmeta.conformance import exits
from inputmeta.conformance.gpu import __main__ as command
from inputmeta.conformance.gpu import plants, sanitizers, stages, wide
from inputmeta.conformance.gpu.builds import Build, lay_out
from inputmeta.conformance.gpu.plants import LAUNCHES, PLANTS, SUITE, Caught, Plant
from inputmeta.conformance.gpu.processes import NOT_STARTED, ROOT, TIMED_OUT, Python, Ran, run
from inputmeta.conformance.gpu.sanitizers import BY_NAME, TOOLS, Sanitized, judged
from inputmeta.conformance.gpu.stages import Settings
from inputmeta.conformance.gpu.summary import (
    FAILED,
    PASSED,
    SKIPPED,
    Machine,
    Stage,
    counted_tests,
    stage_line,
    verdict_of,
)
from inputmeta.conformance.subjects.base import SubjectError

GPU = Machine(gpu="a GPU", compute_capability="9.0", driver="1", processor="x", versions={})


def settings(tmp_path: Path, **changes) -> Settings:
    return replace(Settings(out=tmp_path / "out", work=tmp_path / "work", jobs=1), **changes)


def invoke(*arguments: str):
    app = typer.Typer()
    app.command()(command.main)
    return CliRunner().invoke(app, list(arguments))


def ran(code=0, output="", seconds=1.0):
    return Ran(("x",), code, seconds, output)


def test_without_a_gpu_the_run_fails_and_says_so(tmp_path):
    result = invoke("--out", str(tmp_path), "--stage", "tests")
    assert result.exit_code == exits.NOTHING_RAN
    summary = json.loads((tmp_path / "summary.json").read_bytes())
    assert (summary["verdict"], summary["machine"]["gpu"]) == (FAILED, None)
    assert summary["stages"][0]["reason"] == "there is no GPU: no test can run on it"


@pytest.fixture
def on_a_gpu(monkeypatch):
    """A machine with a GPU, and stages that say at once what they were told to."""

    def told(**verdicts: str):
        monkeypatch.setattr(command, "machine", lambda: GPU)
        for name in stages.STAGES:
            done = Stage(name=name, verdict=verdicts.get(name, PASSED), reason="as told")
            monkeypatch.setitem(stages.STAGES, name, lambda _, done=done: done)

    return told


def names_in(folder: Path) -> list[str]:
    return [stage["name"] for stage in json.loads((folder / "summary.json").read_bytes())["stages"]]


def test_all_stages_but_the_benchmark_run_by_default(tmp_path, on_a_gpu):
    on_a_gpu(trace=SKIPPED)
    result = invoke("--out", str(tmp_path))
    assert (result.exit_code, names_in(tmp_path)) == (0, ["tests", "check", "fuzz", "trace", "sanitizers", "plants"])
    assert "skipped trace" in result.output


def test_stages_are_chosen_by_name(tmp_path, on_a_gpu):
    on_a_gpu()
    result = invoke("--out", str(tmp_path), "--stage", "benchmark", "--stage", "fuzz")
    assert (result.exit_code, names_in(tmp_path)) == (0, ["fuzz", "benchmark"])
    assert invoke("--stage", "nothing").exit_code == exits.BAD_USAGE


@pytest.mark.parametrize("verdict", [FAILED, SKIPPED])
def test_a_stage_that_was_asked_for_must_pass(tmp_path, on_a_gpu, verdict):
    on_a_gpu(sanitizers=verdict)
    assert invoke("--out", str(tmp_path), "--stage", "sanitizers").exit_code == exits.DIFFERS
    assert json.loads((tmp_path / "summary.json").read_bytes())["verdict"] == FAILED


def test_a_run_in_which_nothing_passed_has_failed():
    skipped = Stage(name="trace", verdict=SKIPPED)
    assert verdict_of([skipped]) == verdict_of([]) == FAILED
    assert verdict_of([skipped, Stage(name="check", verdict=PASSED)]) == PASSED
    assert stage_line(skipped) == "skipped trace           0.0 s"


NO_GPU_SKIP = '<skipped message="no GPU"/>'
JUNIT = """<testsuites><testsuite time="1.5">
<testcase classname="oracle.x" name="a"/>
<testcase classname="inputmeta.conformance.gpu.tests.device.test_graph" name="b"{gpu}
<testcase classname="csrc.x" name="c"><skipped message="no compiler"/></testcase>{more}
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("gpu", "more", "code", "verdict", "reason"),
    [
        ("/>", "", 0, PASSED, ""),
        ('><skipped message="no GPU"/></testcase>', "", 0, FAILED, "no test ran on the GPU"),
        ("/>", f"<testcase>{NO_GPU_SKIP}</testcase>", 0, FAILED, "1 tests were skipped: no GPU"),
        ("/>", '<testcase classname="y" name="d"><failure/></testcase>', 1, FAILED, "1 tests failed, exit code 1"),
        ("/>", "", 2, FAILED, "0 tests failed, exit code 2"),
        ("", "", 3, FAILED, "no JUnit file, exit code 3: collected nothing"),
    ],
)
def test_the_tests_of_a_gpu_must_have_run_there(  # noqa: PLR0917
    tmp_path, monkeypatch, gpu, more, code, verdict, reason
):
    def fake(*_):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "junit.xml").write_text(JUNIT.format(gpu=gpu, more=more))
        return ran(code, "collected nothing\n")

    monkeypatch.setattr(stages, "run", fake)
    stage = stages.run_tests(settings(tmp_path))
    assert (stage.verdict, stage.reason) == (verdict, reason)


def test_skips_are_counted_by_reason(tmp_path):
    junit = tmp_path / "junit.xml"
    junit.write_text(JUNIT.format(gpu='><skipped message="no GPU"/></testcase>', more=""))
    counted = counted_tests(junit)
    assert (counted.passed, counted.failed, counted.gpu_passed, counted.gpu_skipped) == (1, 0, 0, 1)
    assert counted.skipped == {"no GPU": 1, "no compiler": 1}


@pytest.mark.slow
def test_a_real_pytest_run_is_counted(tmp_path):
    stage = stages.run_tests(
        settings(tmp_path, jobs=0, tests=("inputmeta/conformance/gpu/tests/device/test_graph.py",))
    )
    assert (stage.verdict, stage.reason) == (FAILED, "no test ran on the GPU")
    assert stage.details.skipped == {"no GPU": stage.details.gpu_skipped}
    lines = [line for line in (tmp_path / "out" / "tests.log").read_text().splitlines() if "no GPU" in line]
    assert lines == [f"SKIPPED [{stage.details.gpu_skipped}] tests that need one: no GPU"]


@pytest.mark.parametrize(
    ("name", "code", "verdict"),
    [("check", 0, PASSED), ("fuzz", 1, FAILED), ("check", 4, FAILED), ("fuzz", 125, FAILED)],
)
def test_a_campaign_passes_by_its_exit_code(tmp_path, monkeypatch, name, code, verdict):
    monkeypatch.setattr(stages, "run", lambda *_: ran(code, "corpus cases: 250 passed, 0 failed, 0 unsupported\n"))
    stage = stages.STAGES[name](settings(tmp_path))
    assert stage.verdict == verdict
    assert "corpus cases: 250 passed, 0 failed, 0 unsupported" in stage.details


def test_a_trace_is_replayed_if_one_is_given(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(stages, "run", lambda command, *_: commands.append(command) or ran())
    assert stages.run_trace(settings(tmp_path)).verdict == SKIPPED
    assert stages.run_trace(settings(tmp_path, trace=Path("x.jsonl"), trace_limit=9)).verdict == PASSED
    (words,) = commands
    assert words[words.index("trace") :][:7] == [
        "trace",
        "x.jsonl",
        "--subject",
        "engine-cuda",
        "--zos",
        "--limit",
        "9",
    ]


COUNTS = """corpus: 252 passed, 0 failed, 0 unsupported, 1 cells
generated, seed 4, digest ab: 500 passed, 0 failed, 0 unsupported, 1 cells"""


@pytest.mark.parametrize(
    ("tool", "code", "output", "verdict", "errors", "cases"),
    [
        ("memcheck", 0, f"{COUNTS}\n========= ERROR SUMMARY: 0 errors\n", "clean", 0, 752),
        (
            "racecheck",
            0,
            f"{COUNTS}\n=== RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
            "clean",
            0,
            752,
        ),
        (
            "memcheck",
            99,
            f"=========     Invalid __global__ write of size 4 bytes\n{COUNTS}\nERROR SUMMARY: 3 errors",
            "errors",
            3,
            752,
        ),
        ("initcheck", 99, COUNTS, "errors", 0, 752),
        ("initcheck", 1, "ERROR SUMMARY: 0 errors", "failed", 0, 0),
        ("synccheck", 0, "ERROR SUMMARY: 0 errors", "failed", 0, 0),
        ("synccheck", 0, COUNTS, "failed", 0, 752),
        ("memcheck", TIMED_OUT, COUNTS, "failed", 0, 752),
        ("memcheck", 255, "========= Error: Device not supported", "unavailable", 0, 0),
    ],
)
def test_a_sanitizer_is_clean_only_if_it_says_so_and_cases_passed(  # noqa: PLR0917
    tool, code, output, verdict, errors, cases
):
    result = judged(tool, ran(code, output))
    assert (result.verdict, result.errors, result.cases) == (verdict, errors, cases)


def test_what_a_sanitizer_runs(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(
        sanitizers, "run", lambda command, log, environment, *_: seen.append((command, environment)) or ran()
    )
    for tool in TOOLS:
        sanitizers.sanitize(tool, Python(), tmp_path, count=7)
    commands = {command[command.index("--tool") + 1]: (command, environment) for command, environment in seen}
    assert commands.keys() == {"memcheck", "racecheck", "initcheck", "synccheck"}
    for name, (words, environment) in commands.items():
        assert words[words.index("--count") + 1] == "7"
        assert ("--own-buffers" in words) is (name == "initcheck")
        assert ("PYTORCH_NO_CUDA_MEMORY_CACHING" in environment) is (name in {"memcheck", "initcheck"})


def test_the_stage_of_sanitizers(tmp_path, monkeypatch):
    def say(verdicts):
        monkeypatch.setattr(stages, "available", lambda: True)
        monkeypatch.setattr(
            stages,
            "sanitize",
            lambda tool, *_, **__: Sanitized(
                tool=tool.name,
                verdict=verdicts.get(tool.name, "clean"),
                errors=0,
                cases=1,
                seconds=1,
                detail="",
                command="",
            ),
        )
        return stages.run_sanitizers(settings(tmp_path)).verdict

    assert stages.run_sanitizers(settings(tmp_path)).verdict == SKIPPED  # it is not here
    assert say({}) == PASSED
    assert say({"memcheck": "errors"}) == say({"memcheck": "unavailable"}) == say({"initcheck": "failed"}) == FAILED
    assert say(dict.fromkeys(BY_NAME, "unavailable")) == SKIPPED


@pytest.mark.parametrize(
    ("codes", "caught_by"),
    [
        ([1], SUITE),
        ([0, 1], LAUNCHES),
        ([0, 0], None),
        ([125, 4], None),
        ([124, 1], LAUNCHES),
        ([-6], SUITE),
        ([-9, 0], None),
    ],
)
def test_a_planted_fault_is_caught_by_the_first_that_differs(tmp_path, monkeypatch, codes, caught_by):
    answers = iter(codes)
    monkeypatch.setattr(plants, "build_engine", lambda folder, **_: Build(folder))
    monkeypatch.setattr(plants, "run", lambda *_: ran(next(answers), "positions differ"))
    plant = Plant("x", "does something", (SUITE, LAUNCHES))
    caught = plants.catch(plant, tmp_path, architecture="", jobs=1, count=1)
    assert (caught.caught_by, next(answers, None)) == (caught_by, None)
    monkeypatch.setattr(stages, "catch_all", lambda *_, **__: [caught])
    monkeypatch.setattr(stages, "failing_controls", lambda *_, **__: [])
    assert stages.run_plants(settings(tmp_path)).verdict == (FAILED if caught_by is None else PASSED)


def test_a_planted_fault_that_does_not_build_is_not_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(plants, "build_engine", lambda folder, **_: Build(folder, ran(2, "no compiler")))
    (caught,) = plants.catch_all(PLANTS[:1], tmp_path, architecture="", jobs=2, count=1)
    assert (caught.caught_by, caught.detail) == (None, "the build failed: no compiler")
    assert isinstance(caught, Caught)


@pytest.mark.parametrize("broken", [None, "inputmeta.conformance.gpu.batches", "pytest"])
def test_what_catches_faults_must_pass_without_one(tmp_path, monkeypatch, broken):
    caught = Caught(plant="x", text="", caught_by=SUITE, detail="", seconds=1)
    monkeypatch.setattr(stages, "catch_all", lambda *_, **__: [caught])
    monkeypatch.setattr(plants, "run", lambda command, *_: ran(int(broken in command), "positions differ"))
    stage = stages.run_plants(settings(tmp_path))
    name = {"pytest": LAUNCHES}.get(broken, SUITE)
    assert stage.verdict == (PASSED if broken is None else FAILED)
    assert stage.reason == ("" if broken is None else f"{name} fails without a fault: exit code 1: positions differ")


def test_the_planted_faults_are_those_that_the_kernels_know():
    header = (ROOT / "csrc" / "cuda" / "plant.h").read_text()
    known = [
        line.split()[1]
        for line in header.splitlines()
        if line.startswith("#define INPUTMETA_PLANT_") and line[-1].isdigit()
    ]
    assert sorted(name.removeprefix("INPUTMETA_PLANT_") for name in known) == sorted(plant.name for plant in PLANTS)


def test_a_process_that_cannot_start_or_end_is_a_result(tmp_path):
    environment = Python().environment()
    assert run(["no-such-program"], tmp_path / "a" / "log", environment, 5).code == NOT_STARTED
    slow = run(["sh", "-c", "echo begun; exec sleep 60"], tmp_path / "log", environment, 1)
    assert (slow.code, slow.last_line) == (TIMED_OUT, "begun")


def test_an_engine_beside_the_installed_one_is_the_one_that_is_imported(tmp_path):
    engine = lay_out(tmp_path) / "engine"
    engine.mkdir()
    (engine / "__init__.py").write_text("")
    python = Python(tmp_path)
    command = [*python.command, "-c", "from inputmeta import conformance, engine; print(engine.__file__)"]
    assert run(command, tmp_path / "log", python.environment(), 60, python.folder).last_line == str(
        engine / "__init__.py"
    )


RIGHT = {"name": "x", "right": True, "size": "1 steps 1 sequences 257 rows 257 tokens"}
NO_CASE = {"name": "x", "right": True, "size": ""}
OTHER = {"name": "x", "right": False, "size": "1 steps"}


def run_wide(tmp_path, monkeypatch, row, *, failed=0, code=exits.CONFORMS) -> Stage:
    """The stage `wide` where every fault and seed has this row, and so many batches of the engine failed."""

    def measured(_python, out, subject, file, processes):
        speeds = [{"processes": number, "sequences_a_second": 10**6, "failed": failed} for number in processes]
        out.mkdir(exist_ok=True)
        (out / file).write_text(json.dumps({"subject": subject, "speeds": speeds}))
        return ran()

    def looked(name, _python, folder, seeds):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps({"faults": [row] * seeds}))
        return ran(code, "the last line")

    def command(words, log, _environment, _timeout, _folder):
        name = words[words.index("--subject") + 1]
        numbers = [int(words[place + 1]) for place, word in enumerate(words) if word == "--processes"]
        return measured(None, log.parent, name, Path(words[words.index("--json") + 1]).name, numbers)

    monkeypatch.setattr(wide, "run", command)
    monkeypatch.setattr(wide, "look_for", looked)
    monkeypatch.setattr(wide, "site_with", lambda *_arguments: Python())
    monkeypatch.setattr(wide, "build_all", lambda work, **_options: {p.name: work / p.name for p in wide.PLANTS})
    return stages.run_wide(settings(tmp_path))


def test_the_wide_stage_passes_if_every_fault_is_found_with_every_seed(tmp_path, monkeypatch):
    stage = run_wide(tmp_path, monkeypatch, RIGHT)
    assert (stage.verdict, stage.reason) == (PASSED, "")
    assert stage.details[0] == "60 of 60 faults and seeds found as declared and reduced"
    assert "engine-cuda, 4 processes: 1000000 sequences/s" in stage.details
    assert len(json.loads((tmp_path / "out" / "wide_faults_cuda.json").read_bytes())["faults"]) == 60


@pytest.mark.parametrize(
    ("row", "failed", "code", "reason"),
    [
        (NO_CASE, 0, 0, ""),
        (OTHER, 0, 0, ""),
        (RIGHT, 0, 1, "row-offset-in-uint8: exit code 1: the last line"),
        (RIGHT, 2, 0, "engine-cuda: 2 wide batches failed"),
    ],
)
def test_the_wide_stage_fails(tmp_path, monkeypatch, row, failed, code, reason):  # noqa: PLR0917
    stage = run_wide(tmp_path, monkeypatch, row, failed=failed, code=code)
    assert stage.verdict == FAILED
    assert reason in stage.reason


def test_kernels_that_do_not_compile_fail_the_wide_stage(tmp_path, monkeypatch):
    monkeypatch.setattr(wide, "measure", lambda *_arguments: (ran(), []))

    def broken(*_arguments, **_options):
        raise SubjectError("the kernels with faults do not compile: x")

    monkeypatch.setattr(wide, "build_all", broken)
    stage = stages.run_wide(settings(tmp_path))
    assert (stage.verdict, stage.reason) == (FAILED, "the kernels with faults do not compile: x")
