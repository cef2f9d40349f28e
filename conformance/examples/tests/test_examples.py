"""Every example passes the checks of its adapter, and conforms on the corpus and on generated batches."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings

from inputmeta.conformance import examples
from inputmeta.conformance.campaign.generated import generated_cases, profile_for
from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.examples import CannotBuildError, build_cpp
from inputmeta.conformance.examples.paged_subject import PagedSubject
from inputmeta.conformance.generate.batches import batches
from inputmeta.conformance.generate.profile import Profile
from inputmeta.conformance.subjects import load_subject
from inputmeta.conformance.workers.contract import run_checks
from inputmeta.conformance.workers.contract_batches import sending
from inputmeta.conformance.workers.target import Target

EXAMPLES = Path(__file__).parents[1]
FLAGS = ("-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")


@pytest.fixture(scope="session")
def decode_builder(tmp_path_factory):
    program = tmp_path_factory.mktemp("cpp") / "decode_builder"
    try:
        build_cpp(program, *FLAGS)
    except CannotBuildError as missing:
        pytest.skip(str(missing))
    return str(program)


@pytest.fixture
def target(request, transport):
    if transport == "cpp":
        return Target(command=request.getfixturevalue("decode_builder"))
    if transport == "json":
        return Target(command=f"{sys.executable} {EXAMPLES / 'json_program.py'}", json=True)
    return Target(subject=f"inputmeta.conformance.examples.{transport}")


TRANSPORTS = (
    "cpp",
    "json",
    "callable_subject:build",
    "object_subject:BoundarySubject",
    "extracting_subject:ExtractingSubject",
    "torch_subject:TorchSubject",
    "package.my_engine_inputmeta:MyEngineSubject",
)


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_example_passes_every_check(target):
    with target.starting() as start_worker:

        def start():
            worker = start_worker()
            worker.wire = sending(worker.wire)
            return worker

        results = list(run_checks(start))
    assert not [(result.name, result.problems) for result in results if result.problems]


@pytest.mark.parametrize(
    "transport",
    [pytest.param(name, marks=[pytest.mark.slow] if name[:5] in ("cpp", "torch") else []) for name in TRANSPORTS],
)
def test_an_example_conforms(target):
    with target.open() as subject:
        ran = 0
        for path in sorted(bundled_corpus().glob("*.json")):
            outcome = run_case(load_case(path), subject)
            assert not outcome.findings, (path.name, outcome.findings)
            ran += outcome.ran
        assert ran > 10

        @seed(1)
        @settings(max_examples=60, database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(batches(Profile(paths=tuple(sorted(subject.capabilities.paths)))))
        def conforms(case):
            assert not run_case(case, subject).findings

        conforms()


def test_the_paged_example_conforms():
    subject = PagedSubject()
    cases = [case for _, case in load_corpus(bundled_corpus()) if case.allocation is not None]
    cases += generated_cases(profile_for(subject, ("prompt", "decode")), 1, 8)
    outcomes = [run_case(case, subject) for case in cases]
    assert [found for outcome in outcomes for found in outcome.findings] == []
    assert sum(outcome.ran for outcome in outcomes) > 10


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.tables.pop(request)", "self.tables.pop(request)[1:]"),
        ("self.free_blocks.popleft()", "self.free_blocks[0]"),
        ("-(-tokens // self.block_size)", "tokens // self.block_size"),
    ],
)
def test_a_fault_in_the_paged_example_shows(old, new):
    """What ended keeps a block; a block is given and stays free; blocks are rounded down."""
    source = (EXAMPLES / "paged_subject.py").read_text()
    assert old in source
    module = types.ModuleType("wrong_pages")
    exec(compile(source.replace(old, new), "wrong_pages", "exec"), vars(module))
    cases = [case for _, case in load_corpus(bundled_corpus()) if case.allocation is not None]
    assert any(run_case(case, module.PagedSubject()).findings for case in cases)


def test_what_the_cpp_example_needs_is_said(tmp_path, monkeypatch):
    """Without its package and no header in the system's folders; without a compiler."""
    monkeypatch.setattr(examples, "find_spec", lambda name: None)
    with pytest.raises(CannotBuildError, match="pip install nlohmann-json"):
        build_cpp(tmp_path / "program", "-nostdinc", "-nostdinc++", f"-I{tmp_path}")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotBuildError, match="no C\\+\\+ compiler"):
        build_cpp(tmp_path / "program")


@pytest.mark.slow
def test_the_cpp_example_claims_every_field_of_its_path(decode_builder):
    from inputmeta import oracle  # noqa: PLC0415

    with Target(command=decode_builder).open() as subject:
        assert subject.capabilities.paths == {"decode"}
        assert subject.capabilities.fields == {name for name, f in oracle.FIELDS.items() if "decode" in f.paths}
        assert subject.capabilities.in_place
        assert subject.capabilities.neutral_tails


def test_the_cpp_example_survives_bytes_of_every_kind(decode_builder):
    """Frames cut off at many lengths, and with one byte changed: each is answered by a valid message."""
    from inputmeta import oracle  # noqa: PLC0415
    from inputmeta.conformance.protocol import messages as wire  # noqa: PLC0415
    from inputmeta.conformance.protocol.codec import HEADER, decode_frame, encode  # noqa: PLC0415
    from inputmeta.conformance.protocol.convert import build_message  # noqa: PLC0415
    from inputmeta.conformance.subjects.callables import probe  # noqa: PLC0415

    assert "decode" in oracle.PATHS
    body = encode(build_message(probe("decode"), 1))[4:]
    bad = [body[:size] for size in range(0, len(body), 7)]
    bad += [body[:i] + bytes([body[i] ^ 0x81]) + body[i + 1 :] for i in range(0, 400)]
    sent = b"".join(HEADER.pack(len(data)) + data for data in bad) + encode(wire.Bye())
    ended = subprocess.run([decode_builder], input=sent, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    answers, rest = [], ended.stdout
    while rest:
        size = 4 + HEADER.unpack(rest[:4])[0]
        answers.append(decode_frame(rest[4:size]))
        rest = rest[size:]
    assert len(answers) == len(bad)
    assert sum(isinstance(answer, wire.ErrorAnswer) for answer in answers) > len(bad) // 2


def test_the_package_skeleton_brings_its_subject(tmp_path, monkeypatch):
    project = tomllib.loads((EXAMPLES / "package" / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["inputmeta.subjects"]
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(f"[inputmeta.subjects]\n{lines}")
    monkeypatch.syspath_prepend(EXAMPLES / "package")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_subject("my-engine").name == "my-engine"


def test_the_readme_names_every_example():
    text = (EXAMPLES / "README.md").read_text()
    names = {path.name for path in EXAMPLES.iterdir() if path.name not in ("tests", "__init__.py", "README.md")}
    assert {name for name in names if not name.startswith("__") and name not in text} == set()


def test_the_json_example_needs_the_standard_library_only():
    code = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); print(sorted({'numpy', 'msgspec', 'oracle'} & {*sys.modules}))"
    )
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(EXAMPLES / "json_program.py")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ended.stdout.strip() == "[]"
