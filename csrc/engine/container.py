"""`InputMetadataV4`: the fields of one step, and what the engine does with them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

import torch
import torch.distributed

from inputmeta.engine import _core
from inputmeta.engine.broadcast import broadcast
from inputmeta.engine.copying import copy_tensors, tensors_on
from inputmeta.engine.device import target_from
from inputmeta.engine.expansion import EXPANSIONS, expand
from inputmeta.engine.fields import StepFields
from inputmeta.engine.mirror import GATHERED, CpMirror, GatheredField, mirror
from inputmeta.engine.views import consumer_view, mask_view


@dataclass(eq=False)
class InputMetadataV4(StepFields):
    """The fields of one step (`StepFields`), which the prepare calls make.

    Tensors are in host memory, or all on one GPU: what is then made from them is made there, on torch's current stream,
    without waiting for it, and ranges that the host does not see are not checked.

    `prepare_for_mirror_cp` gives a prompt step of a context parallel group the layout of its rank: from then on the
    fields marked "mirrored" have cp_mirror_len rows; all others stay as they were (I-15).
    """

    # How prepare_for_mirror_cp moves query-aligned fields.
    _gathered: ClassVar[tuple[GatheredField, ...]] = GATHERED
    # What a broadcast leaves where it is: caches of a rank's kernels.
    _unsent: ClassVar[tuple[str, ...]] = ("mlp_relu_schedule_metadata", "flash_mla_sched_meta_dict")

    def compute_attn_info(
        self,
        config: _core.MetadataConfig,
        out: Mapping[str, Any] | None = None,
        *,
        expansions: Collection[str] = EXPANSIONS,
    ) -> None:
        """Makes the expansions of `expansions` that are not there yet, and a prompt's klen; again: changes nothing.

        `config` is the one the step was prepared with. `out` maps flat keys to the tensors to fill, as in the prepare
        calls; all that is made must be there (P-OUT); of a decode step they may have more rows, as captured buffers do.
        Without it, an expansion that free memory cannot hold raises ExpansionTooLargeError with its size in bytes.
        Either way nothing is written and no field is set.
        """
        for name, value in expand(self, config, out, expansions).items():
            setattr(self, name, value)

    def to(self, device: torch.device | str, out: Mapping[str, Any] | None = None) -> Self:
        """The step with its tensors on another device; all that is no tensor is shared. Copies from pinned memory, in
        which the prepare calls put a step where there is a GPU, are asynchronous, on torch's current stream.

        Without `out`, tensors that are there already are not copied, one that is referenced twice stays one, and those
        that share a storage go over in one copy. `out` maps flat keys to the buffers to fill, which may have more rows;
        all tensors must be there (P-OUT), and nothing is written when one is refused.
        """
        return self.from_flatten_dict(tensors_on(self.to_flatten_dict(), target_from(device), out))

    def prepare_for_mirror_cp(
        self, config: _core.MetadataConfig, out: Mapping[str, Any] | None = None, *, share: CpMirror | None = None
    ) -> None:
        """Gives a prompt step the layout of its rank's mirror (section 7); again: changes nothing.

        Fields marked "mirrored" are gathered by mirror_cp_index, key ranges made anew (F-MIRRORKS); padding rows hold
        what a neutral row does (I-8). Expansions that are there are gathered too; later ones are made for the mirrored
        rows. A decode step, and a group of one rank, keep their layout: nothing is done. `config` is the one the step
        was prepared with.

        `out` maps flat keys to the tensors to fill: mirror_cp_index, mirror_cp_reverse_index, gate_force_random_cp,
        ks.r, ke.r and the mirrored fields that are there; they share no memory with the full layout's (P-OUT). When a
        call is refused, nothing is written and no field is set.

        `share` are the indices and key ranges of this rank, where they have been made already. A step on a GPU needs
        them, as `prepare_cp_mirror` makes them of host tensors and `CpMirror.to` sends them; ValueError without it.
        """
        if not self.is_prompt or config.cp_size == 1 or self.mirror_cp_index is not None:
            return
        for name, value in mirror(self, config, out, self._gathered, share).items():
            setattr(self, name, value)

    def get_mask_view(self) -> Self:
        """The step with yoco_mask_swa_index_pivots in place of the pivots; kv_swa_full_index is to be expanded again.

        A shallow copy: all other fields share their tensors, which must not be written through either. ValueError when
        the step was not prepared in mask mode.
        """
        return mask_view(self)

    def get_consumer_view(self) -> Self:
        """The step in the layout of its kept rows, for the truncated layers.

        A shallow copy with the yoco_consumer_* fields under their plain names (query_indices: global rows), and with
        valid_token_mask and gate_force_random of the kept rows; kv_ca_index, kv_ca_index_len, klen and
        kv_swa_full_index are to be expanded again. With cp_size > 1 it is mirrored, by the second mirror, whose full
        layout is that of the kept rows. All other fields share their tensors, which must not be written through either,
        input_ids and ngram_token_ids among them: what reads these comes before. ValueError when the step was not
        prepared in compact mode.
        """
        return consumer_view(self)

    def recursive_copy_(self, other: Self) -> None:
        """Copies the tensors of `other` into those of this container, one dict level deep; addresses do not move.

        On a GPU the copies are asynchronous, on torch's current stream; so is one from pinned host memory, which must
        not change until it is done. Scalars are left alone: a graph was captured with them, its caller updates them.
        Raises ValueError, before anything is copied, for a tensor that only one of the two has, or that differs in
        shape or dtype.
        """
        copy_tensors(self.to_flatten_dict(), other.to_flatten_dict())

    @classmethod
    def broadcast(
        cls,
        metadata: Self | None,
        *,
        src: int,
        timeout: timedelta,
        device_group: torch.distributed.ProcessGroup | None = None,
        control_group: torch.distributed.ProcessGroup | None = None,
        device: torch.device | None = None,
        template: Self | None = None,
        receiver: Self | None = None,
    ) -> Self:
        """The container of rank `src` on every rank: tensors through the device group, the rest through a gloo group.

        `metadata` is rank `src`'s own, None elsewhere. A tensor that is referenced twice is sent once and is one tensor
        there; empty dicts arrive, dicts of any depth; the caches of a rank's kernels do not. `receiver`, not on rank
        `src`: a container to be filled, whose tensors keep their addresses where they fit (I-41). Raises
        engine.broadcast.BroadcastError, on every rank and within `timeout`, when a rank is gone or its `template` does
        not fit; one that is a TypeError for a value of another kind. See engine.broadcast for what may be sent.
        """
        return broadcast(
            metadata,
            src=src,
            container=cls,
            device_group=device_group,
            control_group=control_group,
            timeout=timeout,
            device=device,
            template=template,
            receiver=receiver,
        )

    @staticmethod
    def get_clean_list() -> list[str]:
        """Fields that are derived from others or cached for a step's shape: None before a graph is reused."""
        return [
            "kv_ca_index_len",
            "kv_swa_index",
            "kv_ca_index",
            "mlp_relu_schedule_metadata",
            "flash_mla_sched_meta_dict",
        ]

    def clean(self) -> None:
        """Sets the fields of `get_clean_list` to None; compute_attn_info makes the expansions again."""
        for name in self.get_clean_list():
            setattr(self, name, None)
