"""The relations between builds hold for oracle and engine, and fail on what they are there to find."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case, Config, Sequence
from inputmeta.conformance.cases.request import Request, step_request
from inputmeta.conformance.check.relations import (
    RelationError,
    contributions_land,
    decode_paths_agree,
    mask_shows_what_compact_shows,
    prompt_build,
    ranks_rebuild_the_whole,
    relations_of,
)
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.generate import Profile, batches
from inputmeta.conformance.mutants import mutant_subject
from inputmeta.conformance.subjects import Result, Subject, load_subject
from inputmeta.conformance.subjects.oracle import OracleSubject

SUBJECTS = ("oracle", "engine")
CONTEXT_PARALLEL = Profile(
    paths=("prompt",), max_cp_size=8, yoco_modes=("off", "compact"), invalid=0, tiers=("small",), wide_windows=False
)
TRUNCATED = Profile(
    paths=("prompt",), max_cp_size=1, yoco_modes=("compact",), invalid=0, tiers=("small",), wide_windows=False
)
DECODE = Profile(paths=("decode",), max_cp_size=1, invalid=0)
BOUNDED = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=SUBJECTS, scope="module")
def subject(request: pytest.FixtureRequest) -> Subject:
    return load_subject(request.param)


def requests(case: Case) -> list[Request]:
    return [step_request(case, index, in_place=False) for index in range(len(case.steps))]


def check_ranks(subject: Subject, request: Request) -> None:
    build = prompt_build(subject)
    ranks_rebuild_the_whole(build, request.config, request.sequences)
    if request.config.yoco_mode == "compact":
        contributions_land(build, request.config, request.sequences)


def test_ranks_together_are_the_whole(subject: Subject) -> None:
    @BOUNDED
    @given(batches(CONTEXT_PARALLEL))
    def check(case: Case) -> None:
        if case.config.cp_size > 1:
            for request in requests(case):
                check_ranks(subject, request)

    check()


def test_mask_and_compact_show_the_same(subject: Subject) -> None:
    @BOUNDED
    @given(batches(TRUNCATED))
    def check(case: Case) -> None:
        for request in requests(case):
            mask_shows_what_compact_shows(prompt_build(subject), request.config, request.sequences)

    check()


def test_eager_and_zos_decode_agree(subject: Subject) -> None:
    @BOUNDED
    @given(batches(DECODE))
    def check(case: Case) -> None:
        for request in requests(case):
            decode_paths_agree(subject, request)

    check()


class Elsewhere(OracleSubject):
    """Right on the batch that is asked for, wrong on another rank, mode or path of it."""

    def __init__(self, field: str, wrong_on: Callable[[Request], bool]) -> None:
        super().__init__()
        self.field, self.wrong_on = field, wrong_on

    def build(self, request: Request) -> Result:
        fields = dict(super().build(request))
        if self.wrong_on(request):
            fields[self.field] = np.asarray(fields[self.field]) + 1
        return fields


@pytest.mark.parametrize(
    ("path", "mode", "subject", "signature"),
    [
        ("prompt", "off", Elsewhere("positions_cp", lambda r: r.config.cp_rank == 1), "MISMATCH:prompt:M-4:-:-"),
        (
            "prompt",
            "compact",
            Elsewhere("yoco_cp_boundary_index", lambda r: r.config.cp_rank == 1),
            "MISMATCH:prompt:M-4:-:-",
        ),
        (
            "prompt",
            "compact",
            Elsewhere("yoco_mask_swa_index_pivots", lambda r: r.config.yoco_mode == "mask"),
            "MISMATCH:prompt:M-5:-:-",
        ),
        ("decode", "off", Elsewhere("context_lens", lambda r: r.path == "decode_zos"), "MISMATCH:decode:M-4:-:-"),
    ],
)
def test_a_case_is_held_to_what_other_builds_of_it_say(
    path: Literal["prompt", "decode"], mode: Literal["off", "compact"], subject: Subject, signature: str
) -> None:
    """The runner holds every valid step to the relations, whatever the batch itself looks like."""
    drafts = (90,) if path == "decode" else ()
    step = Sequence(
        seqlen_q=2, seqlen_k=6, block_table=(3, 4), token_ids=tuple(range(6 - len(drafts))), draft_tokens=drafts
    )
    config = Config(
        block_size=4,
        sparse_ratios=(2,),
        window_size=4,
        swa_block_size=6,
        max_model_len=16,
        cp_size=2,
        yoco_mode=mode,
        yoco_prefill_keep_tokens=3,
    )
    case = Case(schema="inputmeta-case/1", path=path, config=config, steps=((step,),))
    assert [found.signature for found in run_case(case, subject).findings] == [signature]
    assert not run_case(case, OracleSubject()).findings


class SendsMore(OracleSubject):
    """Sends what no field is along, another thing each time: an empty bucket comes so from a worker."""

    def build(self, request: Request) -> Result:
        return {**super().build(request), "kv_ca_index_offset_len": object()}  # type: ignore[dict-item]


def test_what_is_no_field_of_the_batch_is_not_compared() -> None:
    check_ranks(SendsMore(), Request("prompt", CONFIG, [CHUNK]))


CHUNK = oracle.SequenceMetadata(
    seqlen_q=7, seqlen_k=12, block_table=(4, 2, 9), state_id=3, token_ids=tuple(range(12)), data_len=12
)
CONFIG = oracle.MetadataConfig(
    block_size=4,
    sparse_ratios=(2,),
    window_size=4,
    swa_block_size=6,
    max_model_len=16,
    cp_size=2,
    yoco_mode="compact",
    yoco_prefill_keep_tokens=4,
)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("F-ZIGZAG.swapped", "mirror_cp_reverse_index"),
        ("F-CONTRIB.no-clip", "are contributed"),
        ("F-CONTRIB.own-rows-first", "finds row"),
    ],
)
def test_a_wrong_mirror_contradicts_itself(fault: str, says: str) -> None:
    with pytest.raises(RelationError, match=says):
        check_ranks(mutant_subject(fault), Request("prompt", CONFIG, [CHUNK]))


def test_a_clip_left_in_the_compact_pivots_is_seen() -> None:
    wrong = mutant_subject("F-COMPACT.clip-not-taken-off")
    with pytest.raises(RelationError, match="mask shows"):
        mask_shows_what_compact_shows(prompt_build(wrong), CONFIG, [CHUNK])


def test_decode_paths_that_differ_are_seen() -> None:
    wrong = mutant_subject("F-CU.leading-zero")
    step = oracle.SequenceMetadata(seqlen_q=1, seqlen_k=3, block_table=(4,), token_ids=(1, 2, 3))
    with pytest.raises(RelationError, match="cu_seqlens_q"):
        decode_paths_agree(wrong, Request("decode", CONFIG, [step]))


def test_a_mode_whose_pivots_pass_int32_is_not_asked_for() -> None:
    """Valid as compact, with nothing kept: only the pivots of mask truncation pass int32."""

    def names(window_size: int) -> list[str]:
        config = oracle.MetadataConfig(
            block_size=6,
            dense_ratios=(6,),
            window_size=window_size,
            swa_block_size=window_size,
            max_model_len=64,
            yoco_mode="compact",
            yoco_prefill_keep_tokens=0,
        )
        chunk = oracle.SequenceMetadata(
            seqlen_q=5, seqlen_k=9, block_table=(2, 1), state_id=0, token_ids=tuple(range(9)), data_len=9
        )
        request = Request("prompt", config, [chunk])
        assert request.violations() == []
        return [name for name, _ in relations_of(OracleSubject(), request)]

    assert names(2**31 - 5) == []
    assert names(4) == ["M-5"]
