"""The two ways to build a step on the host: a prompt step and an eager decode step."""

from collections.abc import Mapping, Sequence
from typing import Any

from inputmeta.engine import _core
from inputmeta.engine.container import InputMetadataV4
from inputmeta.engine.tensors import allocate_fields, table_columns, tensor_for


def prepare_prompt_v4(
    sequences: Sequence[_core.SequenceMetadata],
    config: _core.MetadataConfig,
    out: Mapping[str, Any] | None = None,
) -> InputMetadataV4:
    """Every field of a prompt step in its full layout, and what truncation adds.

    Expansions are left to `InputMetadataV4.compute_attn_info`, the layout of a rank to
    `InputMetadataV4.prepare_for_mirror_cp`.

    `out` maps flat keys ("klen.4") to int32 or bool host tensors: with it nothing is allocated, these tensors are
    filled in place and are the result's. All that the path writes must be there, other keys are ignored; scalars are
    not in it.

    Raises a subclass of PreconditionError, before anything is written, when the batch breaks a precondition (P-RATIO,
    P-LEN, P-TABLE, P-STATE, P-NGRAM, P-INT32) or `out` is not what the batch needs (P-OUT).
    """
    return _fill(_core.plan_prompt(sequences, config), out)


def prepare_decode_v4(
    sequences: Sequence[_core.SequenceMetadata],
    config: _core.MetadataConfig,
    out: Mapping[str, Any] | None = None,
) -> InputMetadataV4:
    """Every field of an eager decode step; `out` and errors as in `prepare_prompt_v4`.

    `block_tables` of `out` may have more columns than the batch needs (I-4); the offsets then count with these columns.
    """
    return _fill(_core.plan_decode(sequences, config, table_columns(out)), out)


def _fill(step: _core.Step, out: Mapping[str, Any] | None) -> InputMetadataV4:
    fields = step.fields()
    tensors = allocate_fields(fields) if out is None else [tensor_for(field, out) for field in fields]
    # Dtype and shape of these tensors are the planned ones: made so, or checked.
    step.fill([(tensor.data_ptr(), shape, dtype) for tensor, (_, dtype, shape) in zip(tensors, fields, strict=True)])
    flat: dict[str, Any] = step.scalars()
    flat.update((name, {}) for name in step.empty_buckets())
    flat.update((key, tensor) for (key, _, _), tensor in zip(fields, tensors, strict=True))
    return InputMetadataV4.from_flatten_dict(flat)
