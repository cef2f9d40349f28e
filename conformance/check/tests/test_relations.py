"""The relations between builds hold for oracle and engine, and fail on what they are there to find."""

import pytest
from hypothesis import HealthCheck, given, settings

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import Request, step_request
from inputmeta.conformance.check.relations import (
    RelationError,
    contributions_land,
    decode_paths_agree,
    mask_shows_what_compact_shows,
    prompt_build,
    ranks_rebuild_the_whole,
)
from inputmeta.conformance.generate import Profile, batches
from inputmeta.conformance.mutants.formulas import fault_subject
from inputmeta.conformance.subjects import Subject, load_subject

SUBJECTS = ("oracle", "engine")
CONTEXT_PARALLEL = Profile(paths=("prompt",), max_cp_size=8, yoco_modes=("off", "compact"), invalid=0, tiers=("small",))
TRUNCATED = Profile(paths=("prompt",), max_cp_size=1, yoco_modes=("compact",), invalid=0, tiers=("small",))
DECODE = Profile(paths=("decode",), max_cp_size=1, invalid=0)
BOUNDED = settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


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
        check_ranks(fault_subject(fault), Request("prompt", CONFIG, [CHUNK]))


def test_a_clip_left_in_the_compact_pivots_is_seen() -> None:
    wrong = fault_subject("F-COMPACT.clip-not-taken-off")
    with pytest.raises(RelationError, match="mask shows"):
        mask_shows_what_compact_shows(prompt_build(wrong), CONFIG, [CHUNK])


def test_decode_paths_that_differ_are_seen() -> None:
    wrong = fault_subject("F-CU.leading-zero")
    step = oracle.SequenceMetadata(seqlen_q=1, seqlen_k=3, block_table=(4,), token_ids=(1, 2, 3))
    with pytest.raises(RelationError, match="cu_seqlens_q"):
        decode_paths_agree(wrong, Request("decode", CONFIG, [step]))
