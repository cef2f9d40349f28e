"""The fixed batches: the same in every run, compared, counted, on offered buffers or on the subject's own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.generated import generated_cases, profile_for
from inputmeta.conformance.campaign.judging import Run, run_cases
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.gpu.batches import digest, run_batches
from inputmeta.conformance.gpu.processes import ROOT
from inputmeta.conformance.subjects import load_subject
from inputmeta.conformance.workers.target import Target

ORACLE = load_subject("oracle")


def profile(invalid=0.2):
    return replace(profile_for(ORACLE, ("prompt", "decode", "decode_zos")), tiers=("small",), invalid=invalid)


def run_of(subject, folder):
    return Run(Session(subject), Target(subject=subject.name), folder)


def test_the_set_is_the_same_every_time_and_another_seed_gives_another():
    first, again, other = (generated_cases(profile(), seed, 60) for seed in (1, 1, 2))
    assert len(first) == 60
    assert digest(first) == digest(again) != digest(other)
    assert {case.path for case in first} == {"prompt", "decode", "decode_zos"}


def test_a_difference_is_counted_described_and_saved(tmp_path, capsys):
    cases = generated_cases(profile(invalid=0), 1, 60)
    counts = run_cases(
        run_of(load_subject("mutant:F-POS.one-late"), tmp_path), [(None, case) for case in cases], examine=False
    )
    assert counts.failed
    assert counts.passed + counts.failed == 60
    assert len(list(tmp_path.iterdir())) == counts.failed
    assert "F-POS" in capsys.readouterr().out


def test_nothing_run_is_not_success(tmp_path):
    assert run_batches(run_of(ORACLE, tmp_path), None, 0) == exits.NOTHING_RAN
    assert run_batches(run_of(ORACLE, tmp_path), None, 5) == exits.CONFORMS


class OwnBuffersOnly:
    """The oracle, which notes whether it was ever offered buffers."""

    name = "own"

    def __init__(self):
        self.capabilities = ORACLE.capabilities
        self.offered = 0

    def build(self, request):
        self.offered += request.out is not None
        return ORACLE.build(request)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_subject_that_claims_no_filling_in_place_is_offered_no_buffers(tmp_path, in_place):
    subject = OwnBuffersOnly()
    subject.capabilities = replace(subject.capabilities, in_place=in_place)
    assert run_batches(run_of(subject, tmp_path), None, 10) == exits.CONFORMS
    assert bool(subject.offered) is in_place


def test_the_command_says_that_there_is_no_gpu(tmp_path):
    command = [
        sys.executable,
        "-m",
        "inputmeta.conformance.gpu.batches",
        "--count",
        "1",
        "--no-corpus",
        "--subject",
        "none",
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == exits.NO_SUBJECT
    assert result.stderr.count("\n") == 1
