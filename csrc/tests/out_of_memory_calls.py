"""Fails each allocation of each call of the bindings in turn: run with fail_new.cpp preloaded.

A call raises MemoryError or succeeds, writes nothing if it raises, and works afterwards. Prints the calls and how many
of their allocations were failed.
"""

import ctypes

import numpy as np

from inputmeta.engine import PreconditionError, _core

NEW = ctypes.CDLL(None)
POISON = 77
CONFIG = {
    "block_size": 8,
    "dense_ratios": [1],
    "sparse_ratios": [4],
    "window_size": 4,
    "swa_block_size": 6,
    "max_model_len": 64,
    "max_ngram_size": 2,
    "lookup_table": list(range(256)),
    "yoco_mode": "compact",
    "yoco_prefill_keep_tokens": 2,
    "cp_size": 2,
}
PROMPT = {
    "seqlen_q": 3,
    "seqlen_k": 8,
    "block_table": [5],
    "token_ids": list(range(100, 108)),
    "recent_tokens": list(range(8)),
    "data_len": 8,
}
DECODE = PROMPT | {"seqlen_k": 10, "block_table": [5, 6], "draft_tokens": [91, 92], "recent_tokens": list(range(10))}


def fail_each(name, call, unharmed=lambda: True):
    """Fail the allocations of ``call`` one after the other, until it needs no more."""
    call()
    failed = number = 0
    while True:
        number += 1
        NEW.fail_new_at(number)
        try:
            call()
            raised = False
        except MemoryError:
            raised = True
        finally:
            made = NEW.count_of_new()
            NEW.fail_new_at(0)
        if made < number:
            break
        failed += raised
        assert not raised or unharmed(), f"{name}: wrote before it ran out of memory"
    call()
    print(name, failed)


def check_path(name, plan, values):
    """Every call from the sequences to the filled tensors."""
    config = _core.MetadataConfig(**CONFIG)
    fail_each(f"{name} sequence", lambda: _core.SequenceMetadata(**values))
    sequences = [_core.SequenceMetadata(**values) for _ in range(2)]
    fail_each(f"{name} plan", lambda: plan(sequences, config))
    broken = [_core.SequenceMetadata(**values | {"block_table": []})]
    fail_each(f"{name} refusal", lambda: refused(plan, broken, config))
    step = plan(sequences, config)
    fail_each(f"{name} fields", step.fields)
    fail_each(f"{name} scalars", lambda: (step.scalars(), step.empty_buckets()))
    arrays = [np.full(shape, POISON, np.int32) for _, _, shape in step.fields()]
    views = [(a.ctypes.data, shape, dtype) for a, (_, dtype, shape) in zip(arrays, step.fields(), strict=True)]

    def fill():
        for array in arrays:
            array.fill(POISON)
        step.fill(views)

    fail_each(f"{name} fill", fill, lambda: all((array == POISON).all() for array in arrays))


def refused(plan, sequences, config):
    try:
        plan(sequences, config)
    except PreconditionError:
        return
    raise AssertionError("was not refused")


if __name__ == "__main__":
    fail_each("config", lambda: _core.MetadataConfig(**CONFIG))
    check_path("prompt", _core.plan_prompt, PROMPT)
    check_path("decode", _core.plan_decode, DECODE)
    zos_config, rows = _core.MetadataConfig(**CONFIG), [_core.SequenceMetadata(**DECODE)]
    fail_each("zos plan", lambda: _core.plan_zos(rows, zos_config))
    fail_each("zos layout", _core.plan_zos(rows, zos_config).layout)
    fail_each("zos outputs", lambda: _core.zos_outputs(zos_config, 1, 3, 2))
