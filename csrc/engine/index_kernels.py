"""Index tensors from ranges and rows: each function runs where its tensors lie, in the core or on torch's stream."""

from __future__ import annotations

import torch

from inputmeta.engine import _core
from inputmeta.engine.device import HOST, device_of, kernels, queue_of
from inputmeta.engine.tensors import allocate, view_of


def gather(source: torch.Tensor, rows: torch.Tensor, padding: int, out: torch.Tensor | None = None) -> torch.Tensor:
    """Row k of the result is row rows[k] of `source`, all `padding` where rows[k] is -1.

    Past the source: ValueError on the host, `padding` on a GPU.
    """
    device = device_of(source)
    view = view_of(source, device)
    if out is None:
        out = allocate(view[2], (rows.shape[0], *source.shape[1:]), device)
    if device == HOST:
        _core.gather(view, view_of(rows), int(padding), view_of(out))
    else:
        target = view_of(out, device)
        kernels().gather_rows(*queue_of(device), view, view_of(rows, device), int(padding), target)
    return out


def expand_pivots(pivots: torch.Tensor, index: torch.Tensor) -> None:
    """kv_swa_full_index (F-PIVOT)."""
    device = device_of(pivots)
    views = view_of(pivots, device), view_of(index, device)
    if device == HOST:
        _core.expand_pivots(*views)
    else:
        kernels().expand_pivots(*queue_of(device), *views)


def expand_ring(windows: torch.Tensor, ring: int, index: torch.Tensor) -> None:
    """kv_swa_index (F-SWADEC)."""
    device = device_of(windows)
    views = view_of(windows, device), ring, view_of(index, device)
    if device == HOST:
        _core.expand_ring(*views)
    else:
        kernels().expand_ring(*queue_of(device), *views)


def expand_offsets(ranges: torch.Tensor, index: torch.Tensor, lens: torch.Tensor | None = None) -> None:
    """A prompt's kv_ca_index and, if it is wanted, kv_ca_index_len (F-CAOFF)."""
    device = device_of(ranges)
    views = view_of(ranges, device), view_of(index, device)
    if device == HOST:
        _core.expand_offsets(*views)
        _copy_lens(ranges, lens)
    else:
        kernels().expand_offsets(*queue_of(device), *views, None if lens is None else view_of(lens, device))


def expand_blocks(
    ranges: torch.Tensor,
    tables: torch.Tensor,
    tokens_per_block: int,
    index: torch.Tensor,
    lens: torch.Tensor | None = None,
) -> None:
    """A decode step's kv_ca_index and, if it is wanted, kv_ca_index_len (F-CAOFF)."""
    device = device_of(ranges)
    views = view_of(ranges, device), view_of(tables, device), tokens_per_block, view_of(index, device)
    if device == HOST:
        _core.expand_blocks(*views)
        _copy_lens(ranges, lens)
    else:
        kernels().expand_blocks(*queue_of(device), *views, None if lens is None else view_of(lens, device))


def _copy_lens(ranges: torch.Tensor, lens: torch.Tensor | None = None) -> None:
    if lens is not None:
        lens.copy_(ranges[:, 1])
