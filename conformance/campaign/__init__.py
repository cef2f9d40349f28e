"""Judging many cases: draw, examine, is it known, store, describe; reduce."""
