"""Wrong claims and refusals, which ``subject check`` reports and no mutant has: the suite asks nothing of them."""

from __future__ import annotations

import dataclasses

from inputmeta.conformance.subjects import Rejection, Unsupported
from inputmeta.conformance.subjects.oracle import OracleSubject


class Claims(OracleSubject):
    """Claims what it is told to."""

    def __init__(self, **claims):
        super().__init__()
        self.capabilities = dataclasses.replace(self.capabilities, **claims)


def claims_an_unknown_field():
    return Claims(fields=frozenset({"positions", "position_ids"}))


def claims_nothing():
    return Claims(paths=frozenset())


class TakesAll(Claims):
    """Builds every batch, one that breaks a precondition as if it were empty."""

    def build(self, request):
        try:
            return super().build(request)
        except Rejection:
            return {}


def checks_none():
    return TakesAll(refuses=frozenset())


def checks_tables_alone():
    return TakesAll(refuses=frozenset({"P-TABLE"}))


class RefusesBadly(OracleSubject):
    def build(self, request):
        try:
            return super().build(request)
        except Rejection as rejection:
            raise Rejection(rejection.condition, 99, "thing", "") from rejection


class BuildsSome(Claims):
    """Builds no batch of several sequences, and of no batch the positions. It is right: that is its answer."""

    def build(self, request):
        if len(request.sequences) > 1:
            raise Unsupported("more than one sequence")
        return dict(super().build(request)) | {"positions": Unsupported("never")}


class BuildsNone(Claims):
    """Builds nothing at all."""

    def build(self, request):
        raise Unsupported("never")
