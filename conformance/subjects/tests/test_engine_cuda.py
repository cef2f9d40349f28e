"""The adapter of the engine on a GPU, as far as it goes without one: on the host in its place."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.fuzz import fuzz
from inputmeta.conformance.campaign.generated import profile_for
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Gather, Sequence, Varlen
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.check.verdicts import Verdict
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.subjects import SubjectError, load_subject
from inputmeta.conformance.subjects.device import DeviceCopies
from inputmeta.conformance.subjects.engine import EngineSubject
from inputmeta.conformance.subjects.engine_cuda import EngineCudaSubject, defined_blocks, rows_and_keys
from inputmeta.conformance.subjects.oracle import UNDEFINED

CONFIG = Config(block_size=4, dense_ratios=(1,), sparse_ratios=(2,), window_size=2, swa_block_size=3, max_model_len=16)
ROWS = Sequence(seqlen_q=2, seqlen_k=3, block_table=(7,), state_id=5, token_ids=(10, 11), draft_tokens=(9,))
LONG = Sequence(seqlen_q=1, seqlen_k=9, block_table=(1, 2, 3), state_id=6, token_ids=tuple(range(9)))
DECODE = Case(schema=SCHEMA, path="decode_zos", config=CONFIG, steps=((ROWS, LONG),), max_num_blocks=5)


@pytest.fixture
def subject():
    return EngineCudaSubject("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_one_line_and_exit_code_125() -> None:
    with pytest.raises(SubjectError, match="subject engine-cuda: "):
        load_subject("engine-cuda")
    result = CliRunner().invoke(app, ["check", "--subject", "engine-cuda", "--examples", "0", "--in-process"])
    assert result.exit_code == exits.NO_SUBJECT
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_generated_batches_conform_on_copies(subject) -> None:
    campaign = fuzz(subject, profile_for(subject, ("prompt", "decode", "decode_zos")), seed_value=3, rounds=1)
    assert list(campaign.failures) == []
    assert not campaign.unsupported
    assert campaign.verdicts[Verdict.PASS] == campaign.cases


class Spoiled(EngineCudaSubject):
    """Changes the memory on the device behind the engine's back."""

    def __init__(self, change):
        super().__init__("cpu")
        self.change = change

    def container(self, request, out=None):
        metadata = super().container(request, out)
        if out is not None:
            self.change(out)
        return metadata


def beside(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """The cell at an offset from the beginning of a view."""
    return tensor.as_strided((1,), (1,), tensor.storage_offset() + offset)


@pytest.mark.parametrize(
    ("change", "verdict", "key"),
    [
        (lambda out: out["positions"].add_(1), Verdict.MISMATCH, "positions"),
        (lambda out: beside(out["positions"], -1).fill_(4), Verdict.OUT_OF_BOUNDS, "positions"),
        (lambda out: beside(out["klen.2"], out["klen.2"].numel()).fill_(4), Verdict.OUT_OF_BOUNDS, "klen.2"),
    ],
)
def test_what_happens_on_the_device_is_seen(change, verdict, key) -> None:
    findings = run_case(DECODE, Spoiled(change)).findings
    assert {(finding.verdict, finding.key) for finding in findings} == {(verdict, key)}


class Idle(EngineCudaSubject):
    """Builds a step elsewhere and leaves the offered buffers alone."""

    def container(self, request, out=None):
        return EngineSubject.container(self, request, None)


def test_buffers_that_are_not_filled_are_unwritten() -> None:
    verdicts = {finding.verdict for finding in run_case(DECODE, Idle("cpu")).findings}
    assert Verdict.UNWRITTEN in verdicts


def test_allocations_are_copied_whole_and_come_back_whole() -> None:
    memory = np.arange(40, dtype=np.int32)
    flags = np.zeros(3, dtype=bool)
    arrays = {"klen.2": memory[3:9], "klen.4": memory[13:19].reshape(3, 2), "valid_token_mask": flags[1:2]}
    copies = DeviceCopies(arrays, torch.device("cpu"))
    first, second, mask = copies.tensors.values()
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr() != memory.ctypes.data
    second[0, 0], mask[0] = 99, True
    beside(first, -1).fill_(77)
    assert (memory[13], memory[2]) == (13, 2)
    copies.download()
    assert (memory[13], memory[2], flags.tolist()) == (99, 77, [False, True, False])
    memory[:] = 5
    copies.upload()
    assert int(second.sum()) == 30


def test_cells_of_tables_that_are_not_defined_are_not_copied(subject) -> None:
    request = step_request(DECODE, 0)
    assert defined_blocks(request, 5).tolist() == [0, 5, 10, 11, 12]
    tables = torch.arange(15, dtype=torch.int32).view(3, 5)
    fetched = subject.fetched("block_tables", tables, request)
    assert fetched.tolist() == [
        [0, *[UNDEFINED] * 4],
        [5, *[UNDEFINED] * 4],
        [10, 11, 12, *[UNDEFINED] * 2],
    ]
    assert subject.fetched("positions", torch.ones(2, dtype=torch.int32), request).tolist() == [1, 1]
    assert subject.fetched("total_q", 3, request) == 3


def test_blocks_of_a_shorter_step_are_those_of_the_keys_that_are_left() -> None:
    """The first sequence keeps one row of two, the second goes back by the two drafts that the last step rejected."""
    varlen = Varlen(seqlens_q=(1, 1), prev_seqlens_q=(1, 3), prev_num_accepted_tokens=(0, 0))
    gather = Gather(
        fresh_input_ids=(10, 9, 8), prev_sampled=(1, 2), prev_predict=((), ()), remap=(-1, 1), varlen=varlen
    )
    request = dataclasses.replace(step_request(DECODE, 0), gather=gather)
    assert rows_and_keys(request) == [(1, 2), (1, 7)]
    assert defined_blocks(request, 5).tolist() == [0, 5, 6]


def test_host_buffers_are_made_only_where_the_caller_says_a_table_width(subject) -> None:
    out = {"block_tables": torch.zeros((3, 5), dtype=torch.int32), "valid_token_mask": torch.zeros(3, dtype=torch.bool)}
    request = step_request(DECODE, 0)
    made = subject.host_buffers(request, out)
    assert made["block_tables"].data_ptr() != out["block_tables"].data_ptr()
    assert made["block_tables"].shape == (3, 5)
    assert subject.host_buffers(request, None) is None
