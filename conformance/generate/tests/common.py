"""What the tests of this folder share."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case, Sequence

REPEATABLE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=(HealthCheck.too_slow,),
)
"""The same draws in every run. Only the speed check is off: it measures the machine's load."""


def oracle_conditions(case: Case, step: tuple[Sequence, ...]) -> set[str]:
    """The preconditions that the oracle finds broken in one step."""
    config = oracle.MetadataConfig(**{name: getattr(case.config, name) for name in case.config.__struct_fields__})
    sequences = [
        oracle.SequenceMetadata(**{name: getattr(sequence, name) for name in sequence.__struct_fields__})
        for sequence in step
    ]
    broken = oracle.violations(case.path, config, sequences, case.max_num_blocks)
    conditions = {error.condition for error in broken}
    return conditions or ({"P-OUT"} if case.out_fault else set())


def tagged_condition(case: Case) -> set[str]:
    """The condition that a case is tagged to break."""
    return {tag.removeprefix("invalid:") for tag in case.tags if tag.startswith("invalid:")}
