"""A step whose lengths the last step's sampler decides, on the device: F-REMAP and F-VARLEN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from inputmeta.engine import _core
from inputmeta.engine.device import HOST, device_of, kernels, queue_of
from inputmeta.engine.tensors import view_of
from inputmeta.engine.zos.gather import output, require_apart
from inputmeta.engine.zos.inputs import MetadataZOS, step_views


def prepare_decode_inputs_zos_varlen(metadata_zos: MetadataZOS, out: Mapping[str, Any] | None = None) -> MetadataZOS:
    """The step with the rows that it really has: its seqlens_k and cu_seqlens_q made anew (F-VARLEN).

    The host extracts an upper bound: all drafts, and a last step whose drafts were all accepted (I-32). By now the
    sampler has overwritten `seqlens_q` of the step, and `dataclasses.replace` has brought `remap` and what the last
    step left; without `remap` all sequences are new. What follows reads the result: its total_q, max_seqlen_q and
    max_num_blocks are the extracted ones (I-36), fresh_cu_seqlens_q the extracted sums. `seqlens_k` of the argument
    must be the extracted ones: never call it on its own result.

    It is done where the step lies; on a GPU by two kernels on torch's current stream, without waiting, so that a graph
    may capture it. `out` has the buffers "seqlens_k" and "cu_seqlens_q", at least [n] int32, apart from all that is
    read, the extracted sums among it: replays read these again.

    Raises, before anything is written, ValueError for an array that is missing, lies elsewhere or has another dtype or
    shape; in host memory also, with the array and the index, where the arrays break I-37: 1 <= seqlens_q[i] <= the rows
    extracted, remap[i] < m, 0 <= prev_num_accepted_tokens <= prev_seqlens_q - 1, drafts for all rows of a sequence that
    goes on, no more rejected than there are keys before the step, and slots of the earlier positions in int32. On a GPU
    what they hold is not checked: nothing outside of them is read or written, and the cells are not defined. OutError
    (P-OUT) for `out`.
    """
    device = device_of(metadata_zos.seqlens_q)
    lengths, accepted = metadata_zos.lengths(device), metadata_zos.accepted(device)
    inputs = {**lengths, **accepted}
    like = metadata_zos.seqlens_q
    seqlens_k = output("seqlens_k", like, out, inputs, in_place=False)
    cu_seqlens_q = output("cu_seqlens_q", like, out, inputs, in_place=False)
    if out is not None:
        require_apart("cu_seqlens_q", cu_seqlens_q, {"seqlens_k": seqlens_k})
    if device == HOST:
        views = step_views(metadata_zos, inputs | metadata_zos.sources(device), ("state_ids", "block_tables"))
        outputs = view_of(seqlens_k), view_of(cu_seqlens_q)
        _core.zos_varlen(metadata_zos.config, views, *outputs, metadata_zos.total_q)
    else:
        names = ("seqlens_q", "seqlens_k", "fresh_cu_seqlens_q", "remap", "prev_seqlens_q", "prev_num_accepted_tokens")
        kernels().zos_varlen(
            *queue_of(device),
            tuple(inputs[name].data_ptr() if name in inputs else 0 for name in names),
            metadata_zos.num_reqs,
            accepted["prev_seqlens_q"].shape[0] if accepted else 0,
            (seqlens_k.data_ptr(), cu_seqlens_q.data_ptr()),
        )
    return replace(
        metadata_zos,
        seqlens_k=seqlens_k,
        cu_seqlens_q=cu_seqlens_q,
        fresh_cu_seqlens_q=lengths["fresh_cu_seqlens_q"],
    )
