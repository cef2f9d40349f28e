"""What a GPU runner runs: ``./ci/gpu`` calls ``python -m inputmeta.conformance.gpu``.

Stages (tests, check, fuzz, trace, sanitizers, planted faults, benchmark) as processes of their own, JUnit XML and one
JSON summary. Nothing here needs a GPU but the processes that it starts.
"""
