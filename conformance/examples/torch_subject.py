"""An engine on a GPU as a subject: ``--subject inputmeta.conformance.examples.torch_subject:TorchSubject``.

There is no line of CUDA in it: what it builds are tensors of a device of torch, and a kernel of yours may stand where
the lines of torch stand. The suite's fenced and poisoned buffers are copied to the device, fences included, and back
(:class:`inputmeta.conformance.subjects.DeviceCopies`), and the wide tier compares on the device. Without a GPU
the device is the CPU.
"""

from __future__ import annotations

import torch

from inputmeta.conformance.examples.callable_subject import refuse_broken
from inputmeta.conformance.subjects import Capabilities, DeviceSubject, Rejection, Request
from inputmeta.conformance.subjects.device import Buffers, DeviceResult

NO_SEQUENCE = 998244353


class TorchSubject(DeviceSubject):
    """Positions, sequence indices, masks and context lengths of eager decode steps, in place."""

    name = "torch-example"

    def __init__(self) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.capabilities = Capabilities(
            paths=frozenset({"decode"}),
            fields=frozenset({"total_q", "positions", "query_indices", "valid_token_mask", "context_lens"}),
            in_place=True,
            devices=frozenset({self.device.type}),
            int32_arrays=True,
            read_only=False,
        )

    def build_tensors(self, request: Request, out: Buffers) -> DeviceResult:
        """See :meth:`inputmeta.conformance.subjects.device.DeviceSubject.build_tensors`."""
        refuse_broken(request)
        queries = self.on_device([sequence.seqlen_q for sequence in request.sequences])
        keys = self.on_device([sequence.seqlen_k for sequence in request.sequences])
        valid = ~self.on_device([sequence.is_placeholder for sequence in request.sequences])
        total = sum(sequence.seqlen_q for sequence in request.sequences)
        sequences = torch.arange(len(queries), device=self.device)
        rows = torch.repeat_interleave(sequences, queries, output_size=total)
        first_rows = torch.cumsum(queries, 0) - queries
        positions = (keys - queries)[rows] + torch.arange(total, device=self.device) - first_rows[rows]
        fields = {
            "positions": positions.to(torch.int32),
            "query_indices": torch.where(valid, sequences, NO_SEQUENCE)[rows].to(torch.int32),
            "valid_token_mask": valid[rows],
            "context_lens": (positions + 1).to(torch.int32),
        }
        return {"total_q": total, **stored(fields, out)}

    def on_device(self, values: list[int] | list[bool]) -> torch.Tensor:
        """One dimension, int64 or bool."""
        return torch.tensor(values, device=self.device)


def stored(fields: dict[str, torch.Tensor], out: Buffers) -> dict[str, torch.Tensor]:
    """The fields, or the caller's buffers filled with them; P-OUT before anything is written."""
    if out is None:
        return fields
    for key, value in fields.items():
        if key not in out or out[key].shape != value.shape or out[key].dtype != value.dtype:
            raise Rejection("P-OUT", None, key, f"P-OUT: {key} is missing, or no {value.dtype} {list(value.shape)}")
    return {key: out[key].copy_(value) for key, value in fields.items()}
