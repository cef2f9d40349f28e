"""The bundled engine on a GPU as a subject. Imported only when it is asked for."""

from __future__ import annotations

import dataclasses
from typing import cast

import numpy as np
import torch

from inputmeta import engine
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import SubjectError, Unsupported
from inputmeta.conformance.subjects.device import Buffers, DeviceResult, DeviceSubject
from inputmeta.conformance.subjects.engine import EngineSubject
from inputmeta.conformance.subjects.oracle import UNDEFINED
from inputmeta.oracle.blocks import block_count
from inputmeta.oracle.units import Token


class EngineCudaSubject(DeviceSubject, EngineSubject):
    """All three paths with their fields on the device.

    A prompt and an eager decode step are filled in pinned memory and copied, a ZOS step is written by the kernels;
    mirror, expansions and gathers run on the device.

    Raises:
        SubjectError: the engine has no CUDA part, or there is no GPU.
    """

    name = "engine-cuda"

    def __init__(self, device: str = "cuda") -> None:
        super().__init__()
        if device != "cpu":
            require_gpu()
            self.capabilities = dataclasses.replace(self.capabilities, devices=frozenset({"cuda"}))
        self.device = torch.device(device)

    def build_tensors(self, request: Request, out: Buffers) -> DeviceResult:
        """See :meth:`inputmeta.conformance.subjects.device.DeviceSubject.build_tensors`."""
        return cast(DeviceResult, self.container(request, out).to_flatten_dict())

    def fetched(self, key: str, value: object, request: Request) -> np.ndarray | int | bool | Unsupported:
        """A field in host memory. Cells of tables that are not defined are not even copied: initcheck would tell."""
        if key != "block_tables" or not isinstance(value, torch.Tensor):
            return super().fetched(key, value, request)
        cells = torch.from_numpy(defined_blocks(request, value.shape[1]))
        host = torch.full(value.shape, UNDEFINED, dtype=value.dtype)
        host.view(-1)[cells] = value.reshape(-1)[cells.to(value.device)].cpu()
        return host.numpy()

    def host_buffers(self, request: Request, out: Buffers) -> Buffers:
        """None: the engine packs a step as it likes. A table width (I-4) is said by the caller's buffers alone."""
        if out is None or request.max_num_blocks is None:
            return None
        pinned = self.device.type == "cuda"
        host = {key: torch.empty_like(buffer, device="cpu", pin_memory=pinned) for key, buffer in out.items()}
        for buffer in host.values():
            buffer.fill_(UNDEFINED if buffer.dtype == torch.int32 else True)
        return host

    def placed(self, host: engine.InputMetadataV4, out: Buffers) -> engine.InputMetadataV4:
        """The step on the device, by asynchronous copies."""
        return host.to(self.device, out=out)

    def mirror(
        self,
        metadata: engine.InputMetadataV4,
        host: engine.InputMetadataV4,
        config: engine.MetadataConfig,
        out: Buffers,
    ) -> None:
        """Indices and key ranges come from the host, fields are gathered on the device."""
        assert host.cu_seqlens_q is not None
        assert host.cu_seqlens_k is not None
        assert host.cp_mirror_len is not None
        share = engine.prepare_cp_mirror(
            host.cu_seqlens_q,
            host.cu_seqlens_k,
            config.cp_size,
            config.cp_rank,
            [int(ratio) for ratio in host.ks or {}],
            host.total_q,
            host.cp_mirror_len,
        )
        metadata.prepare_for_mirror_cp(config, out=out, share=share.to(self.device))


def defined_blocks(request: Request, columns: int) -> np.ndarray:
    """Flat indices, int64, of the cells of ``block_tables`` [rows, columns] that are defined (F-BLOCKS)."""
    config = request.config
    smallest = config.ca_ratios[0]
    lengths = rows_and_keys(request)
    counts = [block_count(Token(keys), Token(config.block_size), smallest) for _, keys in lengths]
    of_row = np.repeat(np.asarray(counts), [rows for rows, _ in lengths])
    return np.flatnonzero(np.arange(columns) < of_row[:, None])


def rows_and_keys(request: Request) -> list[tuple[int, int]]:
    """seqlen_q and seqlen_k of each sequence, of a step of variable length those that are left (F-VARLEN)."""
    extracted = [(sequence.seqlen_q, sequence.seqlen_k) for sequence in request.sequences]
    if request.gather is None or request.gather.varlen is None:
        return extracted
    varlen, left = request.gather.varlen, []
    for (rows, keys), fewer, place in zip(extracted, varlen.seqlens_q, request.gather.remap, strict=True):
        accepted = varlen.prev_num_accepted_tokens[place] if place >= 0 else 0
        rejected = varlen.prev_seqlens_q[place] - 1 - accepted if place >= 0 else 0
        left.append((fewer, keys - (rows - fewer) - rejected))
    return left


def require_gpu() -> None:
    """Raise SubjectError, which says what is missing, unless the engine's kernels can run here."""
    if not engine.cuda_available():
        missing = "the engine was built without CUDA" if torch.cuda.is_available() else "there is no GPU"
        raise SubjectError(f"subject engine-cuda: {missing}")
