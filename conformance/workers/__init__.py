"""Subjects in worker processes: spawned, watched, replaced when they die, and what is learnt from their deaths."""
