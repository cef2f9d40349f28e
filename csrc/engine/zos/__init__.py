"""Decode without the host in the way (section 10): the same fields as eager decode, in buffers that a graph captured.

Three stages. `prepare_decode_zos_inputs` takes out of the sequences what a step says once a sequence, on the host.
`prepare_decode_v4_zos` gets or creates the buffers, and one kernel writes all per-row fields of all ratios, the block
tables and, where they are asked for, the expansions. Between the two, `prepare_decode_inputs_zos_varlen` makes a step
shorter whose drafts the last step's sampler decided; the token ids that only it knows are gathered in stage three, or
alone by `prepare_token_ids_zos` and `gather_input_ids_zos`.
"""

from inputmeta.engine.zos.buffers import get_or_create, get_or_create_stacked
from inputmeta.engine.zos.captured import ZosBuffers
from inputmeta.engine.zos.decode import prepare_decode_v4_zos
from inputmeta.engine.zos.gather import gather_input_ids_zos, prepare_token_ids_zos
from inputmeta.engine.zos.inputs import MetadataZOS, prepare_decode_zos_inputs
from inputmeta.engine.zos.varlen import prepare_decode_inputs_zos_varlen

__all__ = [
    "MetadataZOS",
    "ZosBuffers",
    "gather_input_ids_zos",
    "get_or_create",
    "get_or_create_stacked",
    "prepare_decode_inputs_zos_varlen",
    "prepare_decode_v4_zos",
    "prepare_decode_zos_inputs",
    "prepare_token_ids_zos",
]
