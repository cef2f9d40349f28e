"""The speed of the reference is measured on batches that it and the oracle agree on."""

from __future__ import annotations

from inputmeta.conformance.benchmarks import reference_speed
from inputmeta.conformance.benchmarks.wide import Form


def test_a_line_holds_sizes_times_and_rates() -> None:
    text = reference_speed.line(Form("a few", "decode", 5, (1, 1), (0, 300)))
    assert text.startswith("a few ")
    sequences, rows, *times, ours, theirs = (float(cell.replace(",", "")) for cell in text[6:].split())
    assert (sequences, rows) == (5, 5)
    assert len(times) == 3
    assert min(*times, ours, theirs) > 0
