"""`InputMetadataV4VL`: the container of a model that reads images."""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from inputmeta.engine.container import InputMetadataV4
from inputmeta.engine.index_kernels import gather
from inputmeta.engine.mirror import GATHERED, GatheredField
from inputmeta.engine.views import kept_rows


@dataclass(eq=False)
class InputMetadataV4VL(InputMetadataV4):
    """`InputMetadataV4` with the caller's image mask and token types: no prepare call makes them."""

    _gathered: ClassVar[tuple[GatheredField, ...]] = (
        *GATHERED,
        GatheredField("images_seq_mask", "images_seq_mask", False, original="images_seq_mask_full"),
    )

    # [total_q], the caller's, of the full layout always: the kind of each row's token. Read by the aligner, before the
    # layers; neither the mirror nor a view reorders it.
    mm_token_type: torch.Tensor | None = None
    # [total_q] bool, mirrored: the row is an image token's. Made by the caller, read by the MoE gate.
    images_seq_mask: torch.Tensor | None = None
    # [total_q] bool: images_seq_mask before it was mirrored, in a view too. Read by get_consumer_view, which gathers by
    # global rows.
    images_seq_mask_full: torch.Tensor | None = None

    def get_consumer_view(self) -> Self:
        """As `InputMetadataV4.get_consumer_view`, with images_seq_mask of the kept rows; mm_token_type and
        images_seq_mask_full stay those of the full layout.
        """
        view = super().get_consumer_view()
        full = self.images_seq_mask if self.images_seq_mask_full is None else self.images_seq_mask_full
        view.images_seq_mask = kept_rows(self, full)
        if view.images_seq_mask is not None and view.mirror_cp_index is not None:
            view.images_seq_mask = gather(view.images_seq_mask, view.mirror_cp_index, False)
        return view
