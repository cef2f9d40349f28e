"""Steps through subject and oracle: verdicts, counts, saved cases, progress."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from inputmeta import oracle
from inputmeta.conformance.campaign import trace
from inputmeta.conformance.campaign.trace import replay_trace
from inputmeta.conformance.cases.files import decode_case, format_case
from inputmeta.conformance.cases.request import affordable_expansions, complete_case, field_array, step_request
from inputmeta.conformance.check.verdicts import Verdict
from inputmeta.conformance.commands import trace_progress as progress
from inputmeta.conformance.commands.trace_progress import TraceProgress, summary_lines
from inputmeta.conformance.subjects import load_subject
from inputmeta.conformance.subjects.base import Capabilities, Rejection, Unsupported
from inputmeta.conformance.subjects.reference import reference_of
from inputmeta.conformance.trace import TraceOptions, trace_config
from inputmeta.conformance.trace.tests.synthetic import SMALL, conversations

ORACLE = load_subject("oracle")
RIGHT = load_subject("inputmeta.conformance.wide.tests.large_batches:Right")
CONFIG = trace_config(SMALL)


class Wrong:
    """The oracle with one field changed from some step on."""

    name = "wrong"
    capabilities = ORACLE.capabilities

    def __init__(self, key="slot_mapping_store_swa", after=10):
        self.key, self.after, self.calls = key, after, 0

    def build(self, request):
        self.calls += 1
        built = dict(ORACLE.build(request))
        if self.calls > self.after and self.key in built:
            built[self.key] = built[self.key].copy()
            built[self.key][0] += 1
        return built


class Refusing(Wrong):
    """Refuses everything."""

    def build(self, request):
        raise Rejection("P-TABLE", 0, "block_table", "too short")


class Prompts(Wrong):
    """Claims prompts alone, and two fields of them."""

    capabilities = Capabilities(paths=frozenset({"prompt"}), fields=frozenset({"positions", "klen"}))

    def build(self, request):
        built = ORACLE.build(request)
        return {key: built[key] for key in ("positions", "klen.2")}


def replay(subject, options=SMALL, count=25, **more):
    return replay_trace(conversations(count, seed=4), options, subject, **more)


@pytest.mark.parametrize("rows", [None, 5])
def test_the_oracle_conforms_to_itself(rows):
    seen = []
    result = replay(ORACLE, replace(SMALL, rows=rows), on_step=lambda step, _: seen.append(step.index))
    assert result.passed
    assert seen == list(range(result.counts.steps))
    assert result.compared_steps == result.counts.steps
    assert result.rows_built == result.counts.rows
    assert (result.rows_compared == result.rows_built) is (rows is None)
    assert result.counts.finished == 25
    assert result.cells_compared > 0


def test_zos_steps_conform():
    result = replay(ORACLE, replace(SMALL, decode_path="decode_zos"), count=5)
    assert result.passed


@pytest.mark.parametrize(
    "changes",
    [
        {"yoco_mode": "compact", "yoco_prefill_keep_tokens": 9},
        {"yoco_mode": "mask", "yoco_prefill_keep_tokens": 9},
        {"cp_size": 3, "cp_rank": 1},
    ],
    ids=["compact", "mask", "parallel"],
)
@pytest.mark.parametrize("rows", [None, 5])
def test_truncated_and_parallel_prompts_conform(changes, rows):
    options = replace(SMALL, rows=rows)
    assert replay(ORACLE, options, count=8, config=replace(CONFIG, **changes)).passed


def test_the_first_difference_ends_the_replay_and_is_kept():
    result = replay(Wrong())
    assert list(result.failures) == ["MISMATCH:decode:F-RING:slot_mapping_store_swa:value"]
    (failure,) = result.failures.values()
    assert failure.case.title.startswith("step 10 of a trace replay")
    assert failure.finding.step == 0
    assert result.counts.steps == 11
    assert not result.passed
    assert failure.case.steps[0][0].token_ids
    assert summary_lines(result)[-1] == "verdict: 1 steps differ"


def test_keep_going_counts_and_keeps_each_signature_once():
    result = replay(Wrong(), keep_going=True)
    each = {f"MISMATCH:{path}:F-RING:slot_mapping_store_swa:value" for path in ("prompt", "decode")}
    assert result.failures.keys() == each
    assert result.differing_steps == result.counts.steps - 10


def test_a_refusal_is_a_finding():
    result = replay(Refusing())
    (failure,) = result.failures.values()
    assert failure.finding.verdict is Verdict.REJECTED
    assert "too short" in failure.finding.detail


def test_what_is_not_claimed_is_counted():
    result = replay(Prompts())
    counts = result.counts
    assert result.passed
    assert result.compared_steps == counts.prompt_steps
    assert result.unsupported["path decode"] == counts.decode_steps + counts.idle_steps
    assert result.unsupported["input_ids"] == counts.prompt_steps
    assert any(line.startswith("unsupported: input_ids in ") for line in summary_lines(result))


def test_nothing_compared_is_no_pass():
    result = replay_trace([], SMALL, ORACLE)
    assert not result.passed
    assert summary_lines(result)[-1] == "verdict: nothing ran"


@pytest.mark.parametrize("number", [0, 9])
def test_a_saved_step_is_the_step(number):
    """The case builds the very fields of the step, though the scheduler has gone on since."""
    then = []

    def remember(step, _):
        if step.index == number:
            expand = affordable_expansions(CONFIG, step.sequences)
            then.append(oracle.expected_fields(step.path, CONFIG, step.sequences, expand=expand))

    result = replay(ORACLE, on_step=remember, save_case=number)
    case = decode_case(format_case(complete_case(result.saved)).encode())
    assert case.origin.found_by == "trace"
    assert case.expected[0].fields == {key: field_array(field) for key, field in then[0].items()}
    assert step_request(case, 0).expected().keys() == then[0].keys()


def test_a_step_beyond_the_end_is_not_saved():
    assert replay(ORACLE, count=3, save_case=10**6).saved is None


def plain(**more):
    return Console(file=io.StringIO(), width=200, **more)


def test_progress_is_plain_lines_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    console = plain()
    with TraceProgress(25, console=console) as shown:
        result = replay(ORACLE, on_step=shown)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == result.counts.steps
    assert " of 25 requests, " in lines[-1]
    assert "steps/s" in lines[-1]
    assert lines[-1].endswith("no difference")


def test_progress_is_rare_by_default_and_absent_when_quiet(monkeypatch):
    console = plain()
    with TraceProgress(console=console) as shown:
        replay(ORACLE, count=5, on_step=shown)
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    with TraceProgress(console=console, quiet=True) as shown:
        replay(ORACLE, count=5, on_step=shown)
    assert console.file.getvalue() == ""


def test_progress_on_a_terminal_is_one_live_line(monkeypatch):
    monkeypatch.setattr(progress, "LIVE_SECONDS", 0.0)
    console = plain(force_terminal=True)
    with TraceProgress(5, console=console) as shown:
        replay(ORACLE, count=5, on_step=shown)
    assert "steps/s" in console.file.getvalue()


def test_options_default_to_real_constants():
    options = TraceOptions()
    assert (options.block_size, options.window_size, options.swa_block_size) == (128, 128, 136)
    assert options.max_model_len == 131072


MANY = replace(SMALL, chunk_tokens=4096, max_running=300, total_blocks=8000, step_ms=60_000.0)
"""More than 256 sequences at once, of a few tokens each."""


def replay_many(subject, **more):
    return replay_trace(conversations(320, seed=4, longest=8), MANY, subject, **more)


def test_wide_steps_are_held_against_the_reference_in_every_row():
    result = replay_many(RIGHT)
    assert result.passed
    assert result.counts.steps > result.wide_steps > 0
    assert result.audited_steps >= 1
    assert f"wide: {result.wide_steps} steps of 256 sequences and more" in "\n".join(summary_lines(result))
    assert result.rows_compared == result.rows_built == result.counts.rows


def test_a_difference_in_a_wide_step_is_as_the_oracle_has_it():
    result = replay_many(load_subject("mutant:sequence-in-uint8"))
    (failure,) = result.failures.values()
    assert failure.finding.verdict is Verdict.MISMATCH
    assert failure.finding.key == "query_indices"
    assert failure.finding.cell.got == failure.finding.cell.want - 256
    assert len(failure.case.steps[0]) > 256


def test_a_reference_that_is_wrong_ends_the_replay_and_accuses_nobody(monkeypatch):
    def wrong(request):
        step = reference_of(request)
        step.fields["positions"][0] += 1
        return step

    monkeypatch.setattr(trace, "reference_of", wrong)
    result = replay_many(RIGHT, keep_going=True)
    assert [found.verdict for found in result.suite] == [Verdict.SUITE]
    assert (result.failures, result.passed, result.wide_steps) == ({}, False, 1)
    assert summary_lines(result)[-1] == "verdict: the suite is wrong"


class LeavesOut:
    """A subject that does not build one field of any step, and has another one wrong at some steps."""

    name = "leaves out"

    def __init__(self, subject, wrong=()):
        self.subject, self.wrong, self.capabilities = subject, wrong, subject.capabilities

    def build(self, request):
        built = dict(self.subject.build(request)) | {"positions": Unsupported("never")}
        if len(request.sequences) in self.wrong:
            built["query_indices"] = built["query_indices"] + 1
        return built


def test_a_field_that_is_not_built_is_counted_and_no_difference():
    narrow = replay_trace(conversations(3, seed=4), SMALL, LeavesOut(ORACLE))
    wide = replay_many(LeavesOut(RIGHT))
    for result in (narrow, wide):
        assert (result.failures, result.differing_steps, result.passed) == ({}, 0, True)
        assert result.unsupported["positions: never"] == result.compared_steps
    assert wide.wide_steps > 0
    whole = replay_trace(conversations(3, seed=4), SMALL, ORACLE)
    assert 0 < narrow.cells_compared < whole.cells_compared


def test_a_field_that_is_not_built_hides_no_other_in_a_wide_step():
    result = replay_many(LeavesOut(RIGHT, wrong=range(256, 400)))
    assert {failure.finding.key for failure in result.failures.values()} == {"query_indices"}
