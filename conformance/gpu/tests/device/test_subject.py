"""The suite on the subject `engine-cuda`: corpus, generated batches, replayed traces."""

import json
from dataclasses import replace
from random import Random

import pytest
from typer.testing import CliRunner

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.fuzz import fuzz
from inputmeta.conformance.campaign.generated import profile_for
from inputmeta.conformance.campaign.trace import replay_trace
from inputmeta.conformance.cases.corpus import bundled_corpus, case_files
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.subjects import load_subject
from inputmeta.conformance.trace.tests.synthetic import SMALL, conversations


@pytest.fixture(scope="module")
def subject():
    return load_subject("engine-cuda")


@pytest.mark.parametrize("path", case_files(bundled_corpus()), ids=lambda path: path.stem)
def test_corpus(subject, path):
    case = load_case(path)
    if (
        any(gather is not None and gather.varlen is not None for gather in case.gather)
        and not subject.capabilities.varlen
    ):
        pytest.skip("engine-cuda does not claim drafts of variable length")
    if case.out_fault is not None and case.out_fault.fault == "read-only" and not subject.capabilities.read_only:
        pytest.skip("torch's tensors know no read-only memory")
    if case.allocation is not None:
        pytest.skip("engine-cuda is given its block tables")
    outcome = run_case(case, subject)
    assert (outcome.findings, outcome.unsupported) == ([], set())
    assert outcome.ran


@pytest.mark.parametrize("seed", range(8))
def test_generated_batches(subject, seed):
    campaign = fuzz(subject, profile_for(subject, ("prompt", "decode", "decode_zos")), seed_value=seed, rounds=3)
    assert list(campaign.failures) == []
    assert not campaign.unsupported
    assert campaign.cases >= 300


@pytest.mark.parametrize("path", ["prompt", "decode", "decode_zos"])
def test_generated_batches_of_real_constants(subject, path):
    profile = Profile(paths=(path,), tiers=("real",), invalid=0)
    campaign = fuzz(subject, profile, seed_value=11, rounds=1)
    assert list(campaign.failures) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"decode_path": "decode_zos"},
        {"decode_path": "decode"},
        {"decode_path": "decode_zos", "cp_size": 3},
        {"decode_path": "decode_zos", "yoco_mode": "mask", "yoco_prefill_keep_tokens": 9},
        {"decode_path": "decode_zos", "yoco_mode": "compact", "yoco_prefill_keep_tokens": 9, "cp_size": 2},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()),
)
def test_a_replayed_trace(subject, changes):
    result = replay_trace(conversations(25, seed=4), replace(SMALL, **changes), subject)
    assert not result.failures
    assert result.passed
    assert result.rows_compared == result.rows_built


def test_a_trace_file_by_the_command(tmp_path):
    draw, path = Random(6), tmp_path / "trace.jsonl"
    lines = []
    for second in range(12):
        length = draw.randint(1, 3000)
        ids = [0, *range(100 * second, 100 * second + -(-length // 512))][: -(-length // 512)]
        lines.append(
            {"timestamp": 1000 * second, "input_length": length, "output_length": draw.randint(1, 30), "hash_ids": ids}
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = CliRunner().invoke(app, ["trace", str(path), "--subject", "engine-cuda", "--zos"])
    assert result.exit_code == exits.CONFORMS, result.output
