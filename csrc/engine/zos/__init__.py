"""Decode without the host in the way (section 10): the same fields as eager decode, in buffers that a graph captured.

Three stages. `prepare_decode_zos_inputs` takes out of the sequences what a step says once a sequence, on the host.
`prepare_decode_v4_zos` gets or creates the buffers, and one kernel writes all per-row fields of all ratios, a second
the block tables. Token ids that only the last step's output knows are gathered by `gather_input_ids_zos`.
"""

from inputmeta.engine.zos.buffers import get_or_create, get_or_create_stacked
from inputmeta.engine.zos.captured import ZosBuffers
from inputmeta.engine.zos.decode import prepare_decode_v4_zos
from inputmeta.engine.zos.gather import gather_input_ids_zos, prepare_decode_inputs_zos_varlen
from inputmeta.engine.zos.inputs import MetadataZOS, prepare_decode_zos_inputs

__all__ = [
    "MetadataZOS",
    "ZosBuffers",
    "gather_input_ids_zos",
    "get_or_create",
    "get_or_create_stacked",
    "prepare_decode_inputs_zos_varlen",
    "prepare_decode_v4_zos",
    "prepare_decode_zos_inputs",
]
