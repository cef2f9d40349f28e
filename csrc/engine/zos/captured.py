"""`ZosBuffers`: buffers that a graph captured, checked once, so that a step costs the host one launch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from inputmeta.engine import _core
from inputmeta.engine.container import InputMetadataV4
from inputmeta.engine.device import device_from, is_capturing, kernels, queue_of
from inputmeta.engine.errors import OutError
from inputmeta.engine.expansion import decode_targets, device_tensors, require_known
from inputmeta.engine.tensors import captured, prefix, table_columns
from inputmeta.engine.zos.buffers import get_or_create_stacked
from inputmeta.engine.zos.gather import require_sources_apart
from inputmeta.engine.zos.inputs import MetadataZOS, source_addresses

DTYPES = {"int32": torch.int32, "bool": torch.bool}

_INT32_MAX = 2**31 - 1
_DENSE = ("kv_ca_index", "kv_ca_index_len")
_MOST_VIEWS = 1024
"""Shapes of steps whose views are kept."""


class ZosBuffers(Mapping[str, torch.Tensor]):
    """The buffers of ZOS decode by flat key ("klen.4"), for any step that fits them: give them as `out`.

    `ZosBuffers(out, config)` checks buffers that are there, `ZosBuffers.allocate` makes new ones. `rows`, `num_reqs`
    and `columns` are the most that a step may have. They must not be resized afterwards. `expansions` names those that
    the steps may have too.
    """

    def __init__(
        self,
        out: Mapping[str, Any],
        config: _core.MetadataConfig,
        device: torch.device | str = "cuda",
        *,
        expansions: Collection[str] = (),
    ) -> None:
        """Raises OutError (P-OUT) unless `out` has every tensor that ZOS decode writes, as `get_or_create` and
        `get_or_create_stacked` want it, and those of `expansions`; Int32Error (P-INT32) when not even one row of its
        columns is within F-LIMIT; RuntimeError when there is no GPU.
        """
        self._bind(out, config, device_from(device), (1, 1, table_columns(out) or 1), expansions)

    @classmethod
    def allocate(
        cls,
        config: _core.MetadataConfig,
        num_reqs: int,
        total_q: int,
        columns: int,
        device: torch.device | str = "cuda",
        *,
        expansions: Collection[str] = (),
    ) -> ZosBuffers:
        """New buffers with undefined contents for steps of up to `num_reqs` sequences, `total_q` rows and `columns`
        blocks a sequence. Raises Int32Error (P-INT32) when the largest is past F-LIMIT; ExpansionTooLargeError for an
        expansion that the GPU cannot hold.
        """
        buffers = cls.__new__(cls)
        buffers._bind(None, config, device_from(device), (num_reqs, total_q, columns), expansions)
        return buffers

    @classmethod
    def for_step(
        cls,
        step: MetadataZOS,
        config: _core.MetadataConfig,
        out: Mapping[str, Any] | None,
        device: torch.device,
        expansions: Collection[str],
    ) -> ZosBuffers:
        """Buffers for one step, which may be larger: those of `out`, or new ones."""
        buffers = cls.__new__(cls)
        columns = max(step.max_num_blocks, table_columns(out) or 0)
        buffers._bind(out, config, device, (step.num_reqs, step.total_q, columns), expansions)
        return buffers

    def _bind(
        self,
        out: Mapping[str, Any] | None,
        config: _core.MetadataConfig,
        device: torch.device,
        size: tuple[int, int, int],
        expansions: Collection[str],
    ) -> None:
        """Checks or makes the tensors for at least `size`: sequences, rows, and exactly these columns."""
        plain, stacks = _core.zos_outputs(config, *size)
        self.config, self.device, self.columns = config, device, size[2]
        self._tensors: dict[str, torch.Tensor] = {}
        self._empty: list[str] = []
        places: dict[str, tuple[int, int]] = {}
        for key, dtype, shape in plain:
            if out is None:
                tensor = torch.empty(shape, dtype=DTYPES[dtype], device=device)
            else:
                tensor = captured(key, shape, DTYPES[dtype], out, device)
            self._tensors[key] = tensor
            places[key] = (tensor.data_ptr(), 0)
        for name, keys, shape in stacks:
            stacked, buckets = get_or_create_stacked(name, keys, shape, torch.int32, out, device)
            if not keys:
                self._empty.append(name)
                continue
            places[name] = (stacked.data_ptr(), stacked[0].numel())
            self._tensors.update(
                (f"{name}.{key}", buckets[key] if out is None else out[f"{name}.{key}"]) for key in keys
            )
        self._stacked = [name for name, keys, _ in stacks]
        self._dense = next(keys for name, keys, _ in stacks if name == "kv_ca_index_offset_len")
        self._expanded = self._expansion_buffers(out, size[1], expansions)
        self._tensors |= self._expanded
        self.num_reqs = self._tensors["cu_seqlens_q"].shape[0]
        self.rows = min(tensor.shape[0] for key, tensor in self._tensors.items() if key != "cu_seqlens_q")
        tokens_per_block = config.block_size // min(config.dense_ratios) if config.dense_ratios else 0
        self._cells_of_a_row = self.columns * tokens_per_block
        self._views: dict[tuple[int, int, bool, bool], InputMetadataV4] = {}
        self._target = None
        if device.type != "cpu":
            expanded = {key: tensor.data_ptr() for key, tensor in self._expanded.items()}
            self._target = kernels().ZosTarget(config, device.index, self.columns, places, expanded)

    def _expansion_buffers(
        self, out: Mapping[str, Any] | None, total_q: int, expansions: Collection[str]
    ) -> dict[str, torch.Tensor]:
        """Those of `out`, or new ones, by flat key."""
        self.expansions = frozenset(expansions)
        targets = decode_targets(self.config, self._dense, max(1, total_q), expansions)
        if out is None:
            made = device_tensors(targets, self.device)
        else:
            made = [captured(target.plan[0], target.shape, torch.int32, out, self.device) for target in targets]
        return {target.plan[0]: tensor for target, tensor in zip(targets, made, strict=True)}

    def __getitem__(self, key: str) -> torch.Tensor:
        return self._tensors[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def is_on(self, device: torch.device | str) -> bool:
        """Whether these are buffers on a GPU, and `device` is that one: torch's current GPU if it has no index."""
        if self._target is None:
            return False
        asked = torch.device(device)
        return asked == self.device or (asked.type == "cuda" and device_from(asked) == self.device)

    def write(
        self, step: MetadataZOS, config: _core.MetadataConfig, expansions: Collection[str] = ()
    ) -> InputMetadataV4:
        """The step in these buffers on their GPU; see `prepare_decode_v4_zos`."""
        if self.config is not config or step.config is not config:
            step.require_engine(config)
            step.require_engine(self.config)
            if config.force_load_balance != self.config.force_load_balance:
                raise ValueError("force_load_balance of the config is not that of the buffers")
        self._require_room(step)
        wanted = self._wanted(expansions)
        if not step.pack.is_cuda:
            if is_capturing(self.device):
                raise RuntimeError(
                    "the step lies in host memory while a CUDA graph is captured, and replays would read that memory; "
                    "give a step on the GPU (MetadataZOS.to)"
                )
            step = step.to(self.device)
        _, stream = queue_of(self.device)
        addresses = step.addresses(self.device)
        sources = step.sources(self.device)
        require_sources_apart(step, sources, self._tensors)
        self._target.run(  # type: ignore[union-attr]
            stream,
            addresses,
            source_addresses(sources),
            step.num_reqs,
            step.total_q,
            step.max_seqlen_q,
            step.table_cells,
            *wanted,
        )
        return self._container(step.num_reqs, step.total_q, *wanted)

    def _require_room(self, step: MetadataZOS) -> None:
        if step.num_reqs > self.num_reqs:
            raise OutError(None, "cu_seqlens_q", self.num_reqs, f"has room for {step.num_reqs} sequences")
        if step.total_q > self.rows:
            key = next(key for key, tensor in self._tensors.items() if tensor.shape[0] == self.rows)
            raise OutError(None, key, self.rows, f"has room for {step.total_q} rows")
        if step.max_num_blocks > self.columns:
            raise OutError(None, "block_tables", self.columns, f"has room for {step.max_num_blocks} columns")
        if step.total_q * self._cells_of_a_row > _INT32_MAX:
            _core.zos_outputs(self.config, step.num_reqs, step.total_q, self.columns)  # refuses, and says why

    def _wanted(self, expansions: Collection[str]) -> tuple[bool, bool]:
        """Whether the window's index and the dense ones are among `expansions`. OutError where there is no buffer."""
        require_known(expansions)
        for name in ("kv_swa_index", "kv_ca_index"):
            if name in expansions and name not in self.expansions:
                raise OutError(None, name, None, "is one of the expansions of the ZosBuffers")
        return "kv_swa_index" in expansions, "kv_ca_index" in expansions

    def _container(self, num_reqs: int, total_q: int, has_window: bool, has_dense: bool) -> InputMetadataV4:
        """A container of prefix views. They are made once a shape; a container is the caller's own to change."""
        shape = (num_reqs, total_q, has_window, has_dense)
        if shape not in self._views:
            if len(self._views) == _MOST_VIEWS:
                self._views.clear()
            self._views[shape] = self._prefixes(*shape)
        metadata = InputMetadataV4.__new__(InputMetadataV4)
        attributes = metadata.__dict__
        attributes.update(self._views[shape].__dict__)
        for name in (*self._stacked, *(_DENSE if has_dense else ())):
            attributes[name] = attributes[name].copy()
        return metadata

    def _prefixes(self, num_reqs: int, total_q: int, has_window: bool, has_dense: bool) -> InputMetadataV4:
        rows = max(1, total_q)
        left_out = {key for key in self._expanded if not (has_window if key == "kv_swa_index" else has_dense)}
        flat: dict[str, Any] = {
            key: prefix(tensor, num_reqs if key == "cu_seqlens_q" else rows)
            for key, tensor in self._tensors.items()
            if key not in left_out
        }
        flat.update((name, {}) for name in self._empty)
        if has_dense and not self._dense:
            flat.update((name, {}) for name in _DENSE)
        flat.update(num_reqs=num_reqs, total_q=total_q, is_prompt=False, max_num_blocks=self.columns)
        return InputMetadataV4.from_flatten_dict(flat)
