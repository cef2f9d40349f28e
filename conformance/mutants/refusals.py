"""Wrong refusals: of valid batches, of invalid ones for the wrong reason, or none at all."""

from __future__ import annotations

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Wrong, any_sequence, wrong_class
from inputmeta.conformance.subjects.base import Rejection, Result


@wrong_class("REFUSAL", "ACCEPTED:P-", "whatever the scheduler sends is taken to be right")
class ChecksNothing(Wrong):
    def build(self, request: Request) -> Result:
        try:
            return super().build(request)
        except Rejection:
            return request.out or {}


@wrong_class("REFUSAL", "REJECTED:P-LEN", "a bound of its own, below the model's")
class RefusesLongContexts(Wrong):
    def before(self, request: Request) -> None:
        for index, sequence in enumerate(request.sequences):
            if 16 < sequence.seqlen_k <= request.config.max_model_len and not request.violations():
                raise Rejection("P-LEN", index, "seqlen_k", f"seqlen_k {sequence.seqlen_k} is longer than 16")


@wrong_class("REFUSAL", "REJECTED:P-STATE", "a data-parallel rank without a request ends the run")
class RefusesPlaceholders(Wrong):
    def before(self, request: Request) -> None:
        if any_sequence(request, lambda s: s.is_placeholder) and not request.violations():
            raise Rejection("P-STATE", None, "is_placeholder", "no placeholders here")


class RefusesAs(Wrong):
    """Refuses what it should, in another way."""

    def build(self, request: Request) -> Result:
        try:
            return super().build(request)
        except Rejection as right:
            raise self.refusal(right) from None

    def refusal(self, right: Rejection) -> Exception:
        """What it raises in place of the right refusal."""
        raise NotImplementedError


@wrong_class("REFUSAL", "ACCEPTED:P-", "every error is reported as a bad length")
class RefusesForAnotherReason(RefusesAs):
    def refusal(self, right: Rejection) -> Exception:
        other = "P-LEN" if right.condition != "P-LEN" else "P-RATIO"
        return Rejection(other, right.sequence, right.field, str(right))


@wrong_class("REFUSAL", "ACCEPTED:P-", "an error number that names no precondition")
class RefusesWithACode(RefusesAs):
    def refusal(self, right: Rejection) -> Exception:
        return Rejection("E-22", None, "", "invalid argument")


@wrong_class(
    "REFUSAL", "ACCEPTED:sequence:P-", "the place in a batch sorted by length is reported, not the scheduler's"
)
class RefusesAtAnotherSequence(RefusesAs):
    def refusal(self, right: Rejection) -> Exception:
        sequence = None if right.sequence is None else right.sequence + 1
        return Rejection(right.condition, sequence, right.field, str(right))


@wrong_class("REFUSAL", "ACCEPTED:field:P-", "a check of several fields reports them all as the first")
class RefusesAtAnotherField(RefusesAs):
    def refusal(self, right: Rejection) -> Exception:
        field = "state_id" if right.field in {"swa_valid_start", "data_len", "block_table"} else right.field
        return Rejection(right.condition, right.sequence, field, str(right))


@wrong_class("REFUSAL", "CRASH:raised:P-", "an assertion deep inside stands for the check")
class RefusesWithAnAssertion(RefusesAs):
    def refusal(self, right: Rejection) -> Exception:
        return AssertionError(right.field)


@wrong_class("OVF", "ACCEPTED:P-INT32", "the product wraps to int32 before it is compared with the bound")
class WrapsBeforeItChecks(Wrong):
    def build(self, request: Request) -> Result:
        broken = {error.condition for error in request.violations()}
        if broken == {"P-INT32"}:
            return request.out or {}
        return super().build(request)


@wrong_class("CRASH", "CRASH:raised:P-TABLE", "an index error where a refusal is due")
class CrashesOnAShortTable(Wrong):
    def before(self, request: Request) -> None:
        broken = {error.condition for error in request.violations()}
        if broken == {"P-TABLE"}:
            raise IndexError("block_table: list index out of range")


@wrong_class(
    "OVF",
    "ACCEPTED:P-INT32",
    "each rank checks the rows that it computes: a pivot past int32 stops one rank and the others wait for it",
    paths=("prompt",),
)
class ChecksTheRowsOfItsRank(Wrong):
    def build(self, request: Request) -> Result:
        try:
            return super().build(request)
        except Rejection as right:
            # The last row is in the last block of its chunk, which is rank 0's.
            if right.condition != "P-INT32" or "pivots" not in right.field or request.config.cp_rank == 0:
                raise
            return request.out or {}
