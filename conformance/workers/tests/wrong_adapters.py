"""Subjects that are wrong in one way each, for the tests of ``subject check``."""

from __future__ import annotations

import dataclasses

import numpy as np

from inputmeta.conformance.subjects import Rejection
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


def claims_tails_that_it_does_not_write():
    return WritesBatchRowsOnly(neutral_tails=True)


class WritesBatchRowsOnly(Claims):
    """Fills the rows of the batch where the caller's buffers have more."""

    def build(self, request):
        if request.out is None:
            return super().build(request)
        shapes = {key: field.shape for key, field in request.expected().items() if field.shape}
        rows = {key: request.out[key][: shape[0]] for key, shape in shapes.items() if key in request.out}
        return super().build(dataclasses.replace(request, out=rows))


class Changed(OracleSubject):
    """The oracle with something done to its answers."""

    calls = 0

    def build(self, request):
        self.calls += 1
        result = dict(super().build(request))
        self.change(request, result)
        return result


class ReturnsInt64(Changed):
    def change(self, request, result):
        if request.out is None:
            result["positions"] = result["positions"].astype(np.int64)


class ReturnsTensors(Changed):
    class Tensor:
        pass

    def change(self, request, result):
        if request.out is None:
            result["positions"] = self.Tensor()


class OneRowShort(Changed):
    def change(self, request, result):
        if request.out is None:
            result["query_indices"] = result["query_indices"][:-1]


class ForgetsAField(Changed):
    def change(self, request, result):
        result.pop("total_q")


class CountsCalls(Changed):
    def change(self, request, result):
        if request.out is None:
            result["positions"][0] = self.calls


class RemembersAfterARefusal(Changed):
    refused = False

    def build(self, request):
        try:
            return super().build(request)
        except Rejection:
            self.refused = True
            raise

    def change(self, request, result):
        if request.out is None and self.refused:
            result["positions"][0] += 1


class ChangesItsInput(Changed):
    def change(self, request, result):
        object.__setattr__(request.sequences[0], "seqlen_k", 1)


class RefusesEverything(OracleSubject):
    def build(self, request):
        raise Rejection("P-LEN", 0, "seqlen_k", "too long")


class AcceptsEverything(OracleSubject):
    def build(self, request):
        try:
            return super().build(request)
        except Rejection:
            return {}


class RefusesBadly(OracleSubject):
    def build(self, request):
        try:
            return super().build(request)
        except Rejection as rejection:
            raise Rejection(rejection.condition, 99, "thing", "") from rejection


class RaisesInsteadOfRefusing(OracleSubject):
    def build(self, request):
        try:
            return super().build(request)
        except Rejection as rejection:
            raise ValueError(str(rejection)) from rejection


class IgnoresOut(OracleSubject):
    def build(self, request):
        return super().build(dataclasses.replace(request, out=None))


class WritesBehind(OracleSubject):
    def build(self, request):
        result = super().build(request)
        if request.out is not None:
            view = request.out["positions"]
            root = view.base
            root[(view.ctypes.data - root.ctypes.data) // 4 + view.size] = 1
        return result


class WritesBeforeItRefuses(OracleSubject):
    def build(self, request):
        if request.out is not None:
            request.out["positions"][:] = 7
        return super().build(request)


class Dies(OracleSubject):
    def build(self, request):
        raise SystemExit(3)
