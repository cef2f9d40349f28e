"""The page of a run: whole, bounded, without network or script, and nothing of others is taken for markup."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.summary import Summary
from inputmeta.conformance.report import html
from inputmeta.conformance.report.html import MOST_FAILURES, MOST_PICTURES, page

from .cases import FAILING, MANY
from .pages import HOSTILE, Parsed, hostile, judged


def test_a_failing_case_has_every_picture(tmp_path: Path) -> None:
    text = page(judged(list(FAILING.values()), tmp_path))
    parsed = Parsed(text)
    assert parsed.open == []
    titles = ("Sequences", "Cells of slot_mapping_store_swa", "Where ke.4 differs", "Key ranges: ks.4 to ke.4")
    for title in (*titles, "Zigzag by rank", "Block tables", "Window ring"):
        assert f"<h4>{title}</h4>" in text, title
    for kind in ("history", "untrusted", "chunk", "draft", "padding", "placeholder", "keys", "rows"):
        assert f'<i class="k-{kind} ' in text, kind
    for state in ("stored", "differs", "failing", "want", "got"):
        assert f'c-{state}"' in text, state
    assert "want state block 1, cell 3, got state block 2, cell 3" in parsed.text
    assert "background: var(--q" in text  # the style sheet is in the page


def test_nothing_of_others_is_markup(tmp_path: Path) -> None:
    text = page(hostile())
    parsed = Parsed(text)
    assert parsed.open == []
    assert not {"script", "img", "iframe", "object"} & set(parsed.tags)
    assert parsed.handlers == []
    assert parsed.text.count("<script>alert(1)</script>") >= 10  # said as it is, as text
    assert "{{ 7 * 7 }}" in parsed.text
    assert not any(character in text for character in HOSTILE if not character.isprintable())
    assert all(address.startswith(("#", "data:")) for address in parsed.addresses)
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.slow
def test_a_case_of_thousands_of_sequences_is_a_small_page_that_says_what_it_leaves_out(tmp_path: Path) -> None:
    text = page(judged([(MANY, "F-SWADEC.full-window")], tmp_path))
    assert len(text) < 60_000
    assert "Shown: sequences 2492 to 2507 of 4,000." in text
    assert "Shown: 12 of 4,000 rows." in text


def test_of_many_failures_some_are_drawn_and_the_page_says_so(tmp_path: Path) -> None:
    once = judged([FAILING["prompt"]], tmp_path)
    many = dataclasses.replace(once, failures=once.failures * (MOST_FAILURES + 5))
    text = page(many)
    total = len(many.failures)
    assert text.count("<h4>Sequences</h4>") == MOST_PICTURES
    assert f"{MOST_FAILURES} of {total} are listed." in text
    assert f"The first {MOST_PICTURES} are drawn" in text
    assert len(text) < 1_000_000


def test_a_run_that_ended_early_says_so() -> None:
    run = Summary("fuzz", ("engine",))
    run.close(exits.INTERRUPTED, "Ctrl-C")
    text = page(run)
    assert "Ended early: Ctrl-C." in text
    assert "ended early</span>" in text
    assert "Nothing ran." in text


def test_a_case_that_cannot_be_drawn_is_told_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = judged([FAILING["prompt"]], tmp_path)

    def broken(*_: object) -> None:
        raise ValueError("no picture of this")

    monkeypatch.setattr(html, "picture_of", broken)
    text = page(run)
    assert "The case could not be drawn: ValueError: no picture of this" in text
    assert "MISMATCH slot_mapping_store_swa" in text
