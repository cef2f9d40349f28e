"""Wide batches: every row of those that the oracle can do in a moment, sampled rows with the widest expansion."""

from __future__ import annotations

from types import ModuleType

import array_api_compat.numpy
import pytest

from inputmeta import oracle
from inputmeta.conformance.benchmarks.wide import FORMS, Form, wide_workload
from inputmeta.conformance.benchmarks.workloads import Workload
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.audit import audit, sampled_rows
from inputmeta.conformance.subjects.reference import reference_of

from .differences import differences

WINDOWS = frozenset({"kv_swa_index", "kv_swa_full_index"})
BY_NAME = {form.name: form for form in FORMS}


def request_of(workload: Workload, expand: frozenset[str] = WINDOWS) -> Request:
    return Request(workload.path, workload.config, workload.sequences, expand=expand)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_row_of_a_wide_batch(form: Form, xp: ModuleType) -> None:
    seeds = (1, 2) if xp is array_api_compat.numpy else (3,)
    for seed in seeds:
        assert differences(request_of(wide_workload(seed, form)), xp) == []


@pytest.mark.parametrize("mode", ["off", "mask", "compact"])
@pytest.mark.parametrize("ranks", [1, 64])
def test_sampled_rows_of_every_kind_of_prompt(mode: str, ranks: int) -> None:
    for name in ("prompt, many short", "prompt, long chunks", "prompt, few deep"):
        plain = wide_workload(4, BY_NAME[name])
        config = {"yoco_mode": mode, "cp_size": ranks, "cp_rank": ranks // 3}
        request = request_of(wide_workload(4, BY_NAME[name], **config))
        assert differences(request, rows=sampled_rows(plain.total_q, 40, 0)) == []


@pytest.mark.parametrize("name", ["decode, few deep", "prompt, few deep"])
def test_sampled_rows_of_the_widest_expansion(name: str) -> None:
    workload = wide_workload(5, BY_NAME[name])
    request = request_of(workload, frozenset(oracle.EXPANSIONS))
    step = reference_of(request)
    assert step.fields["kv_ca_index.4"].shape[1] == 32_768
    assert audit(request, step, sampled_rows(workload.total_q, 4, 0)) == []


@pytest.mark.parametrize(
    ("key", "cell"),
    [("positions", 1_000), ("cu_seqlens_k", 700), ("state_block_idx", -1), ("kv_swa_index", (1_000, 3))],
)
def test_an_audit_sees_one_wrong_cell(key: str, cell: object) -> None:
    workload = wide_workload(6, BY_NAME["decode, many short"])
    request = request_of(workload)
    step = reference_of(request)
    step.fields[key][cell] = step.fields[key][cell] + 1
    rows = sorted({1_000, *sampled_rows(workload.total_q, 8, 0)})
    assert [finding.key for finding in audit(request, step, rows)] == [key]


def test_an_audit_sees_keys_and_masks_that_differ() -> None:
    request = request_of(wide_workload(7, BY_NAME["decode, few deep"]))
    step = reference_of(request)
    del step.fields["context_lens"]
    step.fields["more"] = step.fields["positions"]
    step.batch.num_blocks[2] += 1
    found = {(finding.key, finding.kind) for finding in audit(request, step, sampled_rows(step.batch.total_q, 8, 0))}
    assert {("context_lens", "missing"), ("more", "missing"), ("block_tables", "defined")} <= found


def test_an_audit_of_a_broken_batch_is_refused() -> None:
    workload = wide_workload(8, BY_NAME["decode, few deep"])
    request = request_of(workload)
    step = reference_of(request)
    workload.sequences[0].block_table[0:1].fill(-1)
    with pytest.raises(oracle.TableError):
        audit(request, step, [0])
