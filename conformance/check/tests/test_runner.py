"""The runner's verdicts, each shown on a subject that is wrong in exactly one way."""

import dataclasses
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from inputmeta.conformance.cases.model import SCHEMA, Case, Config, OutFault, Sequence
from inputmeta.conformance.check.runner import Outcome, run_case
from inputmeta.conformance.check.verdicts import Verdict
from inputmeta.conformance.mutants import mutant_subject
from inputmeta.conformance.subjects import Capabilities, Rejection, Request, Result, Unsupported
from inputmeta.conformance.subjects.oracle import OracleSubject

CONFIG = Config(block_size=4, dense_ratios=(1,), sparse_ratios=(2,), window_size=2, swa_block_size=3, max_model_len=16)


def sequence(length: int, chunk: int, **changes: object) -> Sequence:
    tokens = tuple(range(50, 50 + length))
    facts = {"seqlen_q": chunk, "seqlen_k": length, "block_table": (5, 3, 9), "token_ids": tokens}
    return Sequence(**facts | changes)


def case(*steps: tuple[Sequence, ...], path: str = "prompt") -> Case:
    return Case(schema=SCHEMA, path=path, config=CONFIG, steps=steps)


PROMPT = case((sequence(7, 3), sequence(2, 2)))
DECODE = case((sequence(7, 1), sequence(3, 1, is_placeholder=True)), path="decode")
STEPS = case((sequence(9, 5),), (sequence(4, 2),), (sequence(0, 0),), (sequence(9, 6),))
INVALID = case((sequence(7, 3), sequence(7, 3, block_table=(1,))))


class Wrong:
    """The oracle with its answer changed after the fact."""

    name = "wrong"

    def __init__(self, change: Callable[[Request, dict], object], capabilities: Capabilities | None = None) -> None:
        self.right = OracleSubject()
        self.capabilities = capabilities or self.right.capabilities
        self.change = change

    def build(self, request: Request) -> Result:
        result = dict(self.right.build(request))
        changed = self.change(request, result)
        return result if changed is None else changed


def verdicts(outcome: Outcome) -> set[str]:
    return {finding.signature for finding in outcome.findings}


@pytest.mark.parametrize("good", [PROMPT, DECODE, STEPS, INVALID], ids=["prompt", "decode", "steps", "invalid"])
def test_the_oracle_passes(good: Case) -> None:
    outcome = run_case(good, OracleSubject())
    assert outcome.ran
    assert outcome.findings == []
    assert outcome.unsupported == set()


def test_a_wrong_value_is_a_mismatch_at_its_cell() -> None:
    def shift(_: Request, result: dict) -> None:
        result["positions"][3] += 1

    (finding,) = run_case(PROMPT, Wrong(shift)).findings
    assert finding.signature == "MISMATCH:prompt:F-POS:positions:value"
    assert finding.cell is not None
    assert (finding.cell.index, finding.cell.got, finding.cell.want) == ((3,), 1, 0)
    assert (finding.differing, finding.compared) == (1, 5)


def test_a_wrong_flag_is_a_mismatch_whatever_the_poison() -> None:
    def always(_: Request, result: dict) -> None:
        result["valid_token_mask"][:] = True

    assert verdicts(run_case(DECODE, Wrong(always))) == {"MISMATCH:decode:F-MASK:valid_token_mask:value"}


@pytest.mark.parametrize("key", ["positions", "valid_token_mask", "kv_swa_index", "klen.2"])
def test_cells_left_as_they_were_are_unwritten(key: str) -> None:
    class Skips(OracleSubject):
        def build(self, request: Request) -> Result:
            before = None if request.out is None else request.out[key].copy()
            result = super().build(request)
            if before is not None:
                result[key][-1] = before[-1]
            return result

    (finding,) = run_case(DECODE, Skips()).findings
    assert finding.verdict is Verdict.UNWRITTEN
    assert finding.key == key


def test_a_stale_tail_is_seen_on_reused_buffers() -> None:
    class Stale(OracleSubject):
        def build(self, request: Request) -> Result:
            before = None if request.out is None else request.out["positions"].copy()
            result = super().build(request)
            if before is not None and len(before) == 2:
                result["positions"][1] = before[1]
            return result

    assert verdicts(run_case(STEPS, Stale())) == {"UNWRITTEN:prompt:F-POS:positions:-"}


@pytest.mark.parametrize("offset", [-1, 0])
def test_a_write_beside_the_buffer_is_out_of_bounds(offset: int) -> None:
    def spill(request: Request, result: dict) -> None:
        view = result["query_indices"]
        if request.out is not None:
            place = len(view) if offset == 0 else offset
            around = np.lib.stride_tricks.as_strided(view[:1], shape=(place + 1,) if place >= 0 else (1,))
            if place >= 0:
                around[place] = 7
            else:
                memory = view.base
                start = (view.__array_interface__["data"][0] - memory.__array_interface__["data"][0]) // 4
                memory[start + place] = 7

    assert verdicts(run_case(PROMPT, Wrong(spill))) == {"OUT_OF_BOUNDS:prompt:F-QIDX:query_indices:-"}


@pytest.mark.parametrize(
    ("change", "kind", "detail"),
    [
        (
            lambda _, result: result.update(positions=result["positions"].astype(np.int64)),
            "dtype",
            "dtype int64, want int32",
        ),
        (lambda _, result: result.update(positions=result["positions"][:-1]), "shape", "shape [4], want [5]"),
        (lambda _, result: {**result, "positions": None}, "missing", "the field is missing"),
        (lambda _, result: result.update(positions=list(result["positions"])), "type", "an array is wanted, got list"),
    ],
)
def test_the_form_of_a_field_is_checked(change: Callable[[Request, dict], object], kind: str, detail: str) -> None:
    not_in_place = dataclasses.replace(OracleSubject().capabilities, in_place=False)
    (finding,) = run_case(PROMPT, Wrong(change, not_in_place)).findings
    assert (finding.signature, finding.detail) == (f"MISMATCH:prompt:F-POS:positions:{kind}", detail)


SHAPE, VALUE = (f"MISMATCH:prompt:F-POS:positions:{kind}" for kind in ("shape", "value"))


def test_a_wrong_shape_masks_no_wrong_value_at_a_later_step() -> None:
    def change(request: Request, result: dict) -> None:
        first = request.sequences[0].seqlen_k == 9
        result["positions"] = result["positions"][:0] if first else result["positions"] + 1

    not_in_place = dataclasses.replace(OracleSubject().capabilities, in_place=False)
    assert verdicts(run_case(STEPS, Wrong(change, not_in_place))) == {SHAPE, VALUE}


def test_a_wrong_form_in_the_callers_buffers_masks_no_wrong_value_in_its_own() -> None:
    def change(request: Request, result: dict) -> None:
        result["total_q"] = None
        if request.out is None:
            result["positions"] = result["positions"] + 1

    assert verdicts(run_case(PROMPT, Wrong(change))) == {VALUE, "MISMATCH:prompt:F-COUNT:total_q:missing"}


@pytest.mark.parametrize("value", [np.int64(5), 5.0, True, None])
def test_a_scalar_must_be_a_plain_int(value: object) -> None:
    outcome = run_case(PROMPT, Wrong(lambda _, result: result.update(total_q=value)))
    assert {finding.key for finding in outcome.findings} == {"total_q"}


def test_an_exception_is_a_crash() -> None:
    def fall(_: Request, result: dict) -> None:
        raise ZeroDivisionError("by\nzero")

    (finding,) = run_case(PROMPT, Wrong(fall)).findings
    assert (finding.verdict, finding.detail) == (Verdict.CRASH, "raised ZeroDivisionError: by zero")


@pytest.mark.parametrize("valid", [True, False])
def test_an_exit_of_the_subject_ends_nothing_but_its_answer(valid: bool) -> None:
    class Exits(OracleSubject):
        def build(self, request: Request) -> dict:
            raise SystemExit(0)

    (finding,) = run_case(PROMPT if valid else INVALID, Exits()).findings
    assert finding.verdict is Verdict.CRASH
    assert "raised SystemExit: 0" in finding.detail


def test_an_answer_that_is_no_mapping_is_a_crash() -> None:
    (finding,) = run_case(PROMPT, Wrong(lambda *_: [1])).findings
    assert (finding.verdict, finding.detail) == (Verdict.CRASH, "returned list instead of a mapping")


def test_a_refused_valid_batch_is_rejected() -> None:
    def refuse(_: Request, result: dict) -> None:
        raise Rejection("P-LEN", 1, "seqlen_q", "too long for me")

    (finding,) = run_case(PROMPT, Wrong(refuse)).findings
    assert finding.signature == "REJECTED:prompt:P-LEN:-:-"
    assert "P-LEN at sequence 1, field seqlen_q" in finding.detail


def test_an_invalid_batch_must_be_refused() -> None:
    assert verdicts(run_case(INVALID, mutant_subject("checks-nothing"))) == {"ACCEPTED:prompt:P-TABLE:-:-"}


def test_an_invalid_batch_must_be_refused_for_what_it_breaks() -> None:
    (finding,) = run_case(INVALID, mutant_subject("refuses-for-another-reason")).findings
    assert finding.signature == "ACCEPTED:prompt:P-TABLE:-:-"
    assert finding.detail == "breaks P-TABLE, was refused for P-LEN at block_table"


def test_a_crash_on_an_invalid_batch_is_a_crash() -> None:
    assert verdicts(run_case(INVALID, mutant_subject("crashes-on-a-short-table"))) == {"CRASH:prompt:P-TABLE:-:raised"}


def test_a_refusal_after_a_write_is_accepted() -> None:
    (finding,) = run_case(INVALID, mutant_subject("writes-before-it-refuses")).findings
    assert (finding.verdict, finding.key) == (Verdict.ACCEPTED, "positions")


def test_what_is_not_claimed_is_counted() -> None:
    class Less(OracleSubject):
        def __init__(self) -> None:
            super().__init__()
            self.capabilities = dataclasses.replace(
                self.capabilities, paths=frozenset({"prompt"}), fields=frozenset({"positions", "ks"})
            )

    outcome = run_case(PROMPT, Less())
    assert outcome.keys == {"positions", "ks.2"}
    assert "ke" in outcome.unsupported
    beyond = run_case(DECODE, Less())
    assert (beyond.ran, beyond.unsupported) == (False, {"path decode"})


@pytest.mark.parametrize("in_place", [False, True], ids=["own", "in place"])
def test_a_field_that_is_not_built_of_a_batch_is_counted_by_its_reason(in_place: bool) -> None:
    def left_out(request: Request, result: dict) -> dict:
        short = request.sequences[0].seqlen_k == 4
        return result | ({"positions": Unsupported("no\n  short batches")} if short else {})

    able = dataclasses.replace(OracleSubject().capabilities, in_place=in_place)
    whole, outcome = run_case(STEPS, OracleSubject()), run_case(STEPS, Wrong(left_out, able))
    assert (outcome.findings, outcome.ran) == ([], True)
    assert "positions: no short batches" in outcome.unsupported
    assert "positions" in outcome.keys  # of the other steps
    assert outcome.cells == whole.cells - 2
    alone = run_case(case((sequence(4, 2),)), Wrong(left_out, able))
    assert "positions" not in alone.keys


def test_a_field_that_is_not_built_hides_no_other_fault() -> None:
    def change(_request: Request, result: dict) -> dict:
        return result | {"positions": Unsupported("never"), "ke.2": result["ke.2"] + 1}

    wrong = dataclasses.replace(OracleSubject().capabilities, in_place=False)
    assert verdicts(run_case(PROMPT, Wrong(change, wrong))) == {"MISMATCH:prompt:F-KS:ke:value"}


def test_a_batch_that_is_not_built_is_no_pass() -> None:
    def refuse(request: Request, _result: dict) -> None:
        raise Unsupported(f"{len(request.sequences)} sequences")

    outcome = run_case(PROMPT, Wrong(refuse))
    assert (outcome.findings, outcome.ran, outcome.cells, outcome.keys) == ([], False, 0, set())
    assert outcome.unsupported == {"2 sequences"}


def test_a_spoilt_buffer_of_a_batch_that_is_not_built_is_no_pass() -> None:
    class Never(OracleSubject):
        def build(self, request: Request) -> Result:
            raise Unsupported("never")

    outcome = run_case(spoilt_case("prompt", "positions", "short"), Never())
    assert (outcome.findings, outcome.ran, outcome.unsupported) == ([], False, {"never"})


def test_a_case_of_whose_fields_none_is_built_is_no_pass() -> None:
    outcome = run_case(PROMPT, Wrong(lambda _, result: dict.fromkeys(result, Unsupported("never"))))
    assert (outcome.findings, outcome.ran, outcome.cells) == ([], False, 0)


@pytest.mark.parametrize(
    ("changes", "sequence", "field", "kind"),
    [
        ({"block_table": (1,)}, 1, "block_table", None),
        ({"block_table": (1,)}, 0, "block_table", "sequence"),
        ({"block_table": (1,)}, None, "block_table", "sequence"),
        ({"block_table": (1,)}, 1, "seqlen_k", "field"),
        ({"seqlen_q": 9}, 1, "seqlen_k", None),  # one rule on both
        ({"data_len": -1}, 1, "state_id", "field"),
        ({"state_id": 2**31 - 1}, 0, "anything", None),  # a value that is written: what to name is left open
        ({"token_ids": (2**31,) * 9}, 1, "draft_tokens", "field"),
    ],
)
def test_a_refusal_names_the_sequence_and_the_field_that_are_wrong(
    changes: dict[str, object], sequence: int | None, field: str, kind: str | None
) -> None:
    right = OracleSubject()

    class Names(OracleSubject):
        def build(self, request: Request) -> Result:
            try:
                return right.build(request)
            except Rejection as error:
                raise Rejection(error.condition, sequence, field, "no") from None

    facts = {"seqlen_q": 3, "seqlen_k": 7, "block_table": (5, 3, 9), "token_ids": tuple(range(9))}
    outcome = run_case(case((Sequence(**facts), Sequence(**facts | changes))), Names())
    assert {finding.signature.split(":")[-1] for finding in outcome.findings} == ({kind} if kind else set())


def test_a_result_is_kept_while_the_next_step_is_built() -> None:
    array = np.zeros(64, dtype=np.int32)

    def pooled(request: Request, result: dict) -> None:
        if request.out is None:
            positions = result["positions"]
            array[: len(positions)] = positions
            result["positions"] = array[: len(positions)]

    assert verdicts(run_case(STEPS, Wrong(pooled))) == {"OUT_OF_BOUNDS:prompt:-:-:kept"}
    assert verdicts(run_case(PROMPT, Wrong(pooled))) == set()


def spoilt_case(path: str, key: str, fault: str) -> Case:
    batch = DECODE if path == "decode_zos" else PROMPT
    return msgspec.structs.replace(batch, path=path, out_fault=OutFault(key=key, fault=fault))


FAULTS = [
    ("prompt", "positions", "missing"),
    ("prompt", "load_segments_swa", "short"),
    ("prompt", "kv_swa_full_index_pivots", "narrow"),
    ("prompt", "valid_token_mask", "dtype"),
    ("prompt", "positions", "read-only"),
    ("prompt", "klen.2", "missing"),
    ("prompt", "kv_ca_index.1", "narrow"),
    ("decode_zos", "positions_c.2", "mis-spaced"),
    ("decode_zos", "slot_mapping_store_ca.2", "overlapping"),
]


@pytest.mark.parametrize(("path", "key", "fault"), FAULTS)
def test_a_spoilt_buffer_is_refused_with_nothing_written(path: str, key: str, fault: str) -> None:
    class WritesFirst(OracleSubject):
        def build(self, request: Request) -> Result:
            for array in (request.out or {}).values():
                if array.flags.writeable:
                    array[:1] = 0
            return super().build(request)

    class Takes(OracleSubject):
        def build(self, request: Request) -> Result:
            return super().build(dataclasses.replace(request, out=None))

    batch = spoilt_case(path, key, fault)
    name = key.partition(".")[0]
    assert run_case(batch, OracleSubject()).findings == []
    assert verdicts(run_case(batch, Takes())) == {f"ACCEPTED:{path}:P-OUT:{name}:-"}
    (finding,) = run_case(batch, WritesFirst()).findings
    assert "had been written before it was refused" in finding.detail


@pytest.mark.parametrize(
    ("key", "written", "is_right"),
    [
        ("mirror_cp_index", "cu_seqlens_q", True),  # prepared before
        ("positions", "state_block_idx", True),
        ("positions", "mirror_cp_reverse_index", False),  # by the same call
        ("positions_cp", "cu_seqlens_q", False),
        ("klen.2", "ks.2", True),
        ("klen.2", "kv_ca_index.1", False),
        ("ks.2", "klen.2", False),  # by a call after it
        ("yoco_consumer_positions", "yoco_consumer_ks.2", False),
    ],
)
def test_what_the_calls_before_have_written_stands(key: str, written: str, is_right: bool) -> None:
    class Writes(OracleSubject):
        def build(self, request: Request) -> Result:
            if request.out is not None:
                request.out[written][:1] = 0
            return super().build(request)

    config = msgspec.structs.replace(CONFIG, cp_size=2, yoco_mode="compact")
    batch = msgspec.structs.replace(spoilt_case("prompt", key, "missing"), config=config)
    assert run_case(batch, OracleSubject()).findings == []
    found = verdicts(run_case(batch, Writes()))
    assert found == (set() if is_right else {f"ACCEPTED:prompt:P-OUT:{key.partition('.')[0]}:-"})


@pytest.mark.parametrize(
    ("path", "key", "fault", "told"),
    [
        ("prompt", "positions", "narrow", "narrow out positions"),
        ("prompt", "mirror_cp_index", "short", "out mirror_cp_index"),
        ("decode_zos", "positions", "overlapping", "overlapping out positions"),
        ("decode", "positions_c.2", "overlapping", "overlapping out positions_c.2"),
        ("decode_zos", "kv_ca_index.1", "mis-spaced", "mis-spaced out kv_ca_index.1"),
    ],
)
def test_a_fault_that_a_batch_cannot_have_is_no_claim_of_anybody(path: str, key: str, fault: str, told: str) -> None:
    assert run_case(spoilt_case(path, key, fault), OracleSubject()).unsupported == {told}


def test_a_spoilt_buffer_is_no_matter_of_a_subject_that_is_not_given_it() -> None:
    batch = spoilt_case("prompt", "positions", "missing")
    able = OracleSubject().capabilities
    bare = dataclasses.replace(able, fields=able.fields - {"positions"})
    assert run_case(batch, Wrong(lambda *_: None, bare)).unsupported == {"out positions"}
    locked = spoilt_case("prompt", "positions", "read-only")
    unknown = dataclasses.replace(able, read_only=False)
    assert run_case(locked, Wrong(lambda *_: None, unknown)).unsupported == {"read-only buffers"}
    unchecked = dataclasses.replace(able, refuses=able.refuses - {"P-OUT"})
    assert run_case(batch, Wrong(lambda *_: None, unchecked)).outside == {0: {"P-OUT"}}
    own = run_case(batch, Wrong(lambda *_: None, dataclasses.replace(able, in_place=False)))
    assert (own.findings, own.broken, own.steps) == ([], {}, 1)
