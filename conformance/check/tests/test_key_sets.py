"""What a row sees, as a set: by hand, on several paths, in any order; and each wrong form and key that is seen."""

import dataclasses
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import Request, affordable_key_sets, step_request
from inputmeta.conformance.check.key_sets import difference, triples
from inputmeta.conformance.check.report import describe
from inputmeta.conformance.check.runner import Outcome, run_case
from inputmeta.conformance.check.tests.test_runner import CONFIG, DECODE, PROMPT, case, sequence
from inputmeta.conformance.check.verdicts import Signature
from inputmeta.conformance.dialects import DialectError, key_set_of_mask, key_set_of_windows, query_rows
from inputmeta.conformance.mutants.key_sets import SeesKeys
from inputmeta.conformance.subjects import Result, Unsupported

RANKS = msgspec.structs.replace(PROMPT, config=msgspec.structs.replace(CONFIG, cp_size=2, cp_rank=1))
CASES = {"prompt": PROMPT, "decode": DECODE, "ranks": RANKS, "nothing": case((sequence(4, 0),))}


class Changed(SeesKeys):
    """Key sets that are changed after the fact."""

    def __init__(self, change: Callable[[Request, dict], object]) -> None:
        super().__init__()
        self.change = change

    def build(self, request: Request) -> Result:
        fields = dict(super().build(request))
        self.change(request, fields)
        return fields


def run(one: Case, change: Callable[[Request, dict], object]) -> Outcome:
    return run_case(one, Changed(change))


@pytest.mark.parametrize("name", CASES)
def test_sets_in_any_order_conform(name: str) -> None:
    def turned(_: Request, fields: dict) -> None:
        for key in list(fields):
            if key.startswith("visible"):
                fields[key] = fields[key][::-1]

    outcome = run(CASES[name], turned)
    assert outcome.findings == []
    assert {"visible_swa", "visible_ca.1", "visible_ca.2"} <= outcome.keys
    assert outcome.cells > 1 or name == "nothing"
    shown = {"kv_ca_index", "klen"} | ({"kv_swa_index"} if name == "decode" else {"kv_swa_full_index", "ks", "ke"})
    assert outcome.shown[0] == shown | {"positions"}
    assert not outcome.unsupported & shown


def test_a_prompt_by_hand() -> None:
    """W = 2; rows 0 to 2 stand at positions 4 to 6 of 7 keys, rows 3 and 4 at 0 and 1 of 2; 5 is trusted first."""
    one = case((sequence(7, 3, swa_valid_start=5), sequence(2, 2)))
    found = step_request(one, 0).visible_keys()
    window = [(1, 0, 5), (2, 0, 5), (2, 0, 6), (3, 1, 0), (4, 1, 0), (4, 1, 1)]
    assert [tuple(pair) for pair in found["visible_swa"]] == window
    halves = [(0, 0, 0), (0, 0, 2), (1, 0, 0), (1, 0, 2), (1, 0, 4), (2, 0, 0), (2, 0, 2), (2, 0, 4), (4, 1, 0)]
    assert [tuple(pair) for pair in found["visible_ca.2"]] == halves


def test_the_sets_say_what_the_fields_say() -> None:
    """Of the expanded window, row by row: positions behind buffer rows (F-PIVOT) and ring cells (F-SWADEC)."""
    prompt = step_request(PROMPT, 0)
    seen = [[key[1:] for key in prompt.visible_keys()["visible_swa"] if key.row == row] for row in range(5)]
    cells = np.array(prompt.expected()["kv_swa_full_index"].cells).reshape(5, -1)
    history = len(prompt.sequences) * CONFIG.window_size
    for row, buffer_rows in enumerate(cells):
        index, begin, start = (0, 0, 4) if row < 3 else (1, 3, 0)
        base = [start - CONFIG.window_size - index * CONFIG.window_size, start - begin - history]
        assert seen[row] == [(index, int(cell) + base[int(cell >= history)]) for cell in buffer_rows if cell >= 0]
    decode = step_request(DECODE, 0)
    lengths = np.array(decode.expected()["kv_swa_index_offset_len"].cells).reshape(-1, 2)[:, 1]
    window = [key.row for key in decode.visible_keys()["visible_swa"]]
    assert np.array_equal(np.bincount(window, minlength=len(lengths)), lengths)


def test_ranks_together_see_what_one_rank_sees() -> None:
    ranks = [
        step_request(msgspec.structs.replace(RANKS, config=msgspec.structs.replace(RANKS.config, cp_rank=rank)), 0)
        for rank in (0, 1)
    ]
    together = [pair for request in ranks for pair in request.visible_keys()["visible_swa"]]
    assert sorted(together) == step_request(PROMPT, 0).visible_keys()["visible_swa"]


@pytest.mark.parametrize(
    ("spoilt", "kind", "detail"),
    [
        (lambda value: None, "missing", "the key set is missing"),
        (lambda value: value.tolist(), "type", "an array is wanted, got list"),
        (lambda value: value.astype(np.int32), "dtype", "dtype int32, want int64"),
        (lambda value: value[:, 1:], "shape", "shape [9, 2], want [pairs, 3]: row, sequence, position"),
        (lambda value: value[1:], "value", "row 0 does not see position 3 of sequence 0"),
        (
            lambda value: value[[*range(9), 8]],
            "value",
            "row 4 sees more than once position 1 of sequence 1",
        ),
        (
            lambda value: value + np.array([0, 1, 0]) * (value[:, :1] == 0),
            "value",
            "row 0 sees positions 3, 4 of sequence 1; does not see positions 3, 4 of sequence 0",
        ),
        (lambda value: value[:0], "value", "row 0 does not see positions 3, 4 of sequence 0"),
    ],
)
def test_a_wrong_set_is_a_mismatch(spoilt: Callable[[np.ndarray], object], kind: str, detail: str) -> None:
    def change(_: Request, fields: dict) -> None:
        fields["visible_swa"] = spoilt(fields["visible_swa"])

    (finding,) = run(PROMPT, change).findings
    assert finding.signature == f"MISMATCH:prompt:F-VISIBLE:visible_swa:{kind}"
    assert finding.detail.startswith(detail)


def test_what_is_not_built_is_counted_and_no_pass() -> None:
    def change(_: Request, fields: dict) -> None:
        fields["visible_ca.1"] = Unsupported("ratio 1")

    outcome = run(DECODE, change)
    assert outcome.findings == []
    assert "visible_ca: ratio 1" in outcome.unsupported
    assert "visible_ca.1" not in outcome.keys


def test_a_large_set_is_not_asked_for() -> None:
    long = oracle.SequenceMetadata(seqlen_q=2**15, seqlen_k=2**15)
    config = oracle.MetadataConfig(
        block_size=8, window_size=2, swa_block_size=2, max_model_len=2**15, dense_ratios=(1,), sparse_ratios=(8,)
    )
    assert affordable_key_sets(Request("prompt", config, [long])) == {"visible_swa"}
    assert affordable_key_sets(Request("prompt", dataclasses.replace(config, window_size=3), [long])) == frozenset()


def test_masks_and_windows_become_sets() -> None:
    request = step_request(PROMPT, 0)
    want = {key: triples(pairs) for key, pairs in request.visible_keys().items()}
    rows, keys = query_rows(request), np.array([7, 2])
    position = np.concatenate([np.arange(7), np.arange(2)])
    own = np.repeat([0, 1], keys) == rows.sequence[:, None]
    causal = own & (position <= rows.position[:, None])
    window = causal & (position > rows.position[:, None] - CONFIG.window_size)
    assert np.array_equal(key_set_of_mask(request, window), want["visible_swa"])
    assert np.array_equal(key_set_of_mask(request, causal), want["visible_ca.1"])
    halves = np.zeros((5, 4), dtype=bool)
    for row, _, pos in want["visible_ca.2"].tolist():
        halves[row, pos // 2 + 3 * (row > 2)] = True
    assert np.array_equal(key_set_of_mask(request, halves, 2), want["visible_ca.2"])
    newest_first = rows.position[:, None] - np.arange(CONFIG.window_size)
    windows = key_set_of_windows(rows.sequence, newest_first)
    assert np.array_equal(windows[np.lexsort(windows.T[::-1])], want["visible_swa"])
    with pytest.raises(DialectError, match=r"a mask is bool \[rows, 9\], got int64"):
        key_set_of_mask(request, window.astype(np.int64))
    with pytest.raises(DialectError, match=r"got \[5, 2\], \[4\]"):
        key_set_of_windows(rows.sequence[1:], newest_first)


def test_a_long_difference_is_cut() -> None:
    want = np.stack([np.zeros(20, dtype=np.int64)] * 2 + [np.arange(20)], axis=1)
    text = "row 0 does not see positions 0, 1, 2, 3, 4, 5, 6, 7, … of sequence 0"
    assert difference(want[:0], want) == text


def test_a_finding_on_a_set_is_told_and_known_again() -> None:
    def change(_: Request, fields: dict) -> None:
        fields["visible_swa"] = fields["visible_swa"][1:]

    (finding,) = run(PROMPT, change).findings
    text = describe(finding, PROMPT, "inputmeta replay x")
    assert "  key set  visible_swa  int64[pairs, 3]" in text
    assert "formula  F-VISIBLE  window:" in text
    assert Signature.parse(finding.signature) == finding.identity
