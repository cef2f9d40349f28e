"""verl's packing of sequences over the ranks of a context parallel group (F-ZIGZAG, F-REVERSE).

``verl.models.mcore.util``: it moves values, it gives no indices, so the values are the rows' own numbers. Megatron's
groups are stood in for; what all ranks hold comes from as many calls, as an all-gather would bring it. Sequences are
padded to multiples of 2p with 0 (``padded-with-0``: rows are numbered from 1 on).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import narrowed
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.standins import module_by_path, standin
from inputmeta.conformance.subjects import Capabilities, Conditions, Result, SubjectError

FIELDS = frozenset({"cp_mirror_len", "mirror_cp_index", "mirror_cp_reverse_index", "positions"})
MOST_RANKS = 64


class Params:
    """Stands for Megatron's PackedSeqParams: keeps what it is given."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - tensors and words
        self.__dict__.update(given)


class PackedSeqs(Adapter):
    """``preprocess_packed_seqs`` and ``postprocess_packed_seqs``: rows of a padded batch, chosen by a mask."""

    subject = "verl-zigzag"
    package = "verl"
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=FIELDS,
        max_cp_size=MOST_RANKS,
        yoco_modes=frozenset({"off", "mask", "compact"}),
        refuses=frozenset(),
        dialects=frozenset({"int64", "padded-with-0"}),
        conditions=Conditions(least_cp_size=2, empty_steps=False),
    )

    def load(self) -> None:
        """Import the one file, with stand-ins for Megatron and for the rest of verl."""
        import torch  # noqa: PLC0415 - the engine's

        self.torch: Any = torch
        self.group = SimpleNamespace(size=1, rank=0)
        groups = standin(
            "megatron.core.parallel_state",
            get_tensor_model_parallel_world_size=lambda: 1,
            get_context_parallel_world_size=lambda: self.group.size,
            get_context_parallel_rank=lambda: self.group.rank,
            get_context_parallel_group=lambda: None,
        )
        standins = [
            standin("megatron"),
            standin("megatron.core", parallel_state=groups),
            groups,
            standin("megatron.core.packed_seq_params", PackedSeqParams=Params),
            standin("verl"),
            standin("verl.utils"),
            standin("verl.utils.device", is_npu_available=False),
            standin("verl.utils.model", CausalLMOutputForPPO=object),
        ]
        file = packages.folder(self.package, self.version) / "verl/models/mcore/util.py"
        self.module = module_by_path(file, "verl_models_mcore_util", {module.__name__: module for module in standins})
        self.module.logger.warning_once = lambda *words: None  # transformers gives loggers this

    def call(self, request: Request) -> Raw:
        """``rows`` and ``positions`` of this rank [mirrored rows], ``restored`` [total_q] of what all ranks hold."""
        torch, ranks = self.torch, request.config.cp_size
        lengths = [sequence.seqlen_q for sequence in request.sequences]
        total = sum(lengths)
        positions = np.concatenate([np.arange(s.seqlen_k - s.seqlen_q, s.seqlen_k) for s in request.sequences])
        numbers = torch.arange(1, total + 1)
        held = [self.packed(numbers, lengths, ranks, rank) for rank in range(ranks)]
        size = held[0][0].shape[1]
        places = [torch.arange(rank * size, (rank + 1) * size).unsqueeze(0) for rank in range(ranks)]
        restored = self.restored(places, held[request.config.cp_rank][1], lengths, request.config.cp_rank)
        return {
            "rows": held[request.config.cp_rank][0][0].numpy(),
            "positions": self.packed(torch.from_numpy(positions), lengths, ranks, request.config.cp_rank)[0][0].numpy(),
            "restored": restored.numpy(),
        }

    def batch(self, values: Any, lengths: Sequence[int]) -> tuple[Any, Any]:  # noqa: ANN401 - tensors
        """Values of all rows as verl has them: padded to the longest, and a mask."""
        longest = max(lengths)
        mask = self.torch.arange(longest).unsqueeze(0) < self.torch.tensor(lengths).unsqueeze(1)
        padded = self.torch.zeros((len(lengths), longest), dtype=self.torch.int64)
        padded[mask] = values
        return padded, mask

    def packed(self, values: Any, lengths: Sequence[int], ranks: int, rank: int) -> tuple[Any, Any]:  # noqa: ANN401
        """What a rank holds of values of all rows, and Megatron's parameters."""
        self.group.size, self.group.rank = ranks, rank
        held, params = self.module.preprocess_packed_seqs(*self.batch(values, lengths))
        return held, params

    def restored(self, held: Sequence[Any], params: Any, lengths: Sequence[int], rank: int) -> Any:  # noqa: ANN401
        """Values of all rows out of what all ranks hold."""
        self.group.rank = rank
        _, mask = self.batch(self.torch.zeros(sum(lengths), dtype=self.torch.int64), lengths)
        with gathering(self.torch, held):
            padded = self.module.postprocess_packed_seqs(held[rank], params, mask, len(lengths), max(lengths))
        return padded[mask]

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """Rows are numbered from 0 on, padding is -1."""
        rows = np.asarray(raw["rows"])
        return {
            "cp_mirror_len": len(rows),
            "mirror_cp_index": narrowed(rows - 1),
            "mirror_cp_reverse_index": narrowed(np.asarray(raw["restored"])),
            "positions": narrowed(np.asarray(raw["positions"])),
        }


class Thd(PackedSeqs):
    """``preprocess_thd_engine`` and its inverse: nested tensors, positions of its own from 0 on.

    It differs: a padding row of a first block has a position past the sequence's end, where one of a second block has
    0 (``known/verl-zigzag-thd.toml``).
    """

    subject = "verl-zigzag-thd"
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=FIELDS,
        max_cp_size=MOST_RANKS,
        yoco_modes=frozenset({"off", "mask", "compact"}),
        refuses=frozenset(),
        dialects=frozenset({"int64", "padded-with-0"}),
        conditions=Conditions(least_cp_size=2, least_seqlen_q=1, history=False, empty_steps=False),
    )

    def load(self) -> None:
        """As above. Raises SubjectError for a release that has it not."""
        super().load()
        if not hasattr(self.module, "preprocess_thd_engine"):
            raise SubjectError(f"{self.name}: verl {self.version} has no preprocess_thd_engine")

    def call(self, request: Request) -> Raw:
        """As above, with the positions that verl makes."""
        raw = super().call(request)
        lengths = [sequence.seqlen_q for sequence in request.sequences]
        numbers = self.torch.arange(1, sum(lengths) + 1)
        _, _, positions = self.module.preprocess_thd_engine(self.nested(numbers, lengths))
        return {**raw, "positions": positions[0].numpy()}

    def nested(self, values: Any, lengths: Sequence[int]) -> Any:  # noqa: ANN401 - tensors
        """Values of all rows as verl has them: one tensor a sequence."""
        parts = list(self.torch.split(values, list(lengths)))
        return self.torch.nested.as_nested_tensor(parts, layout=self.torch.jagged)

    def packed(self, values: Any, lengths: Sequence[int], ranks: int, rank: int) -> tuple[Any, Any]:  # noqa: ANN401
        """As above."""
        self.group.size, self.group.rank = ranks, rank
        held, params, _ = self.module.preprocess_thd_engine(self.nested(values, lengths))
        return held, params

    def restored(self, held: Sequence[Any], params: Any, lengths: Sequence[int], rank: int) -> Any:  # noqa: ANN401
        """As above."""
        self.group.rank = rank
        whole = self.nested(self.torch.zeros(sum(lengths), dtype=self.torch.int64), lengths)
        with gathering(self.torch, held):
            return self.module.postprocess_thd_engine(held[rank], params, whole, len(lengths)).values()


class gathering:  # noqa: N801 - a context manager, read as a word
    """Within, torch's all-gather gives what the ranks are said to hold."""

    def __init__(self, torch: Any, held: Sequence[Any]) -> None:  # noqa: ANN401 - a module, tensors
        self.distributed, self.held = torch.distributed, held
        self.before: Callable[..., Any] | None = None

    def __enter__(self) -> None:
        self.before = getattr(self.distributed, "all_gather", None)

        def gather(into: list[Any], _: Any, group: object = None) -> None:  # noqa: ANN401 - tensors
            into[:] = list(self.held)

        self.distributed.all_gather = gather

    def __exit__(self, *_: object) -> None:
        self.distributed.all_gather = self.before
