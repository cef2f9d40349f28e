"""The tool under fault: it is struck many times, and what was lost, hung, left behind or mislabelled is counted.

``python -m inputmeta.conformance.strikes --count 1000 --seed 7``. `plan.py` says what is struck, `run.py` strikes and
watches, `judge.py` says what of that may not be, `subjects.py` has subjects that break.
"""
