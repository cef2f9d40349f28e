"""A vectorised numpy implementation of the fields that the engine writes: what a good numpy programmer would ship.

It is the yardstick of the benchmark and, as it shares no code with oracle or engine but the types of its inputs, a
third opinion in the tests.
`prepare_prompt` and `prepare_decode` give the fields of `prepare_prompt_v4` and `prepare_decode_v4`; the expansions are
functions of their own, as `compute_attn_info` makes them on demand only. See `numpy_base` for what it leaves out.
"""

from .numpy_base import Fields
from .numpy_decode import prepare_decode
from .numpy_expand import klen, kv_ca_index, kv_ca_index_len, kv_ca_index_width, kv_swa_full_index, kv_swa_index
from .numpy_prompt import prepare_prompt

__all__ = [
    "Fields",
    "klen",
    "kv_ca_index",
    "kv_ca_index_len",
    "kv_ca_index_width",
    "kv_swa_full_index",
    "kv_swa_index",
    "prepare_decode",
    "prepare_prompt",
]
