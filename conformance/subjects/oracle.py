"""The oracle, or a copy of it with one planted fault, as a subject."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import Capabilities, Rejection, Result

UNDEFINED = 0x6B6B6B6B
"""What a cell that is not defined holds in a fresh array: a value that no comparison may ever read."""


class OracleSubject:
    """Builds every field of every path from a module with the oracle's interface."""

    def __init__(self, module: ModuleType = oracle, name: str = "oracle") -> None:
        self.module: Any = module
        self.name = name
        self.capabilities = Capabilities(
            paths=frozenset({"prompt", "decode", "decode_zos"}),
            fields=frozenset(oracle.FIELDS),
            in_place=True,
            max_cp_size=2**16,
            yoco_modes=frozenset({"off", "mask", "compact"}),
            varlen=True,
            read_only=True,
        )

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        try:
            fields = self.module.expected_fields(
                request.path,
                self._own(self.module.MetadataConfig, request.config),
                [self._own(self.module.SequenceMetadata, sequence) for sequence in request.sequences],
                expand=request.expand,
                gather=request.gather,
                max_num_blocks=request.max_num_blocks,
            )
        except self.module.PreconditionError as error:
            raise Rejection(error.condition, error.sequence, error.field, str(error)) from error
        if request.out is not None:
            self._check_out(fields, request.out)
            if request.path == "decode_zos":
                check_stacks(request.out)
        return {key: self._store(key, field, request.out) for key, field in fields.items()}

    @staticmethod
    def _own(kind: Callable[..., object], value: oracle.MetadataConfig | oracle.SequenceMetadata) -> object:
        """``value`` as this module's own dataclass: a copy of the oracle has classes of its own."""
        return kind(**{f.name: getattr(value, f.name) for f in dataclasses.fields(value)})

    @staticmethod
    def _check_out(fields: Mapping[str, oracle.ExpectedField], out: dict[str, np.ndarray]) -> None:
        """P-OUT, before anything is written."""
        for key, field in fields.items():
            if field.shape:
                check_buffer(key, field.dtype, field.shape, out)

    @staticmethod
    def _store(key: str, field: oracle.ExpectedField, out: dict[str, np.ndarray] | None) -> np.ndarray | int | bool:
        """Write the defined cells of one field into its array."""
        if not field.shape:
            return bool(field.cells[0]) if field.dtype == "bool" else int(field.cells[0] or 0)
        array = np.full(field.shape, UNDEFINED, dtype=field.dtype) if out is None else out[key]
        flat = array.reshape(-1)
        defined = [i for i, cell in enumerate(field.cells) if cell is not None]
        values = [field.cells[i] for i in defined]
        flat[defined] = np.array(values, dtype=np.int64).astype(array.dtype)  # a fault may leave int32: wrap as C does
        return array


def check_buffer(key: str, dtype: str, shape: tuple[int, ...], out: Mapping[str, np.ndarray]) -> None:
    """P-OUT of one buffer.

    Raises:
        Rejection: it is missing, of another dtype or shape, or read-only.
    """
    if key not in out or (out[key].shape, out[key].dtype.name) != (shape, dtype):
        raise Rejection("P-OUT", None, key, f"P-OUT: {key} is missing or not {dtype} of shape {list(shape)}")
    if not out[key].flags.writeable:
        raise Rejection("P-OUT", None, key, f"P-OUT: {key} is read-only")


def check_stacks(out: Mapping[str, np.ndarray]) -> None:
    """F-STACK: the buckets of a field lie at even distances, none over another.

    Raises:
        Rejection: they do not (P-OUT).
    """
    fields: dict[str, list[str]] = {}
    for key in out:
        if "." in key:
            fields.setdefault(key.partition(".")[0], []).append(key)
    for keys in fields.values():
        starts = [out[key].ctypes.data for key in keys]
        distances = {after - before for before, after in pairwise(starts)}
        if len(distances) > 1 or any(distance < out[keys[0]].nbytes for distance in distances):
            raise Rejection("P-OUT", None, keys[-1], f"P-OUT: {keys[-1]} is not evenly spaced (F-STACK)")
