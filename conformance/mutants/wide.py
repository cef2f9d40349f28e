"""Faults of size: right on every batch that the ordinary tier draws, wrong past a bound. The wide tier finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from inputmeta.conformance import reference
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Mutant, name_of
from inputmeta.conformance.subjects.base import Result
from inputmeta.conformance.subjects.reference import ReferenceSubject, in_place, reference_of

Fields = dict[str, np.ndarray]
Spoil = Callable[[reference.Expected, Fields], None]

WIDE: dict[str, Mutant] = {}
"""Every fault of size by name."""


class TooNarrow(ReferenceSubject):
    """The reference with a place to go wrong. It checks no precondition: the oracle would take too long to."""

    def __init__(self, name: str, spoil: Spoil) -> None:
        super().__init__()
        self.name = f"mutant:{name}"
        self.spoil = spoil
        self.capabilities = replace(self.capabilities, refuses=frozenset())

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        step = reference_of(request)
        fields = reference.as_numpy(step.fields)
        # Some fields of the reference are views of others.
        fields = {key: value if isinstance(value, int) else value.copy() for key, value in fields.items()}
        self.spoil(step, {key: value for key, value in fields.items() if isinstance(value, np.ndarray)})
        return fields if request.out is None else in_place(step, fields, request.out)


def fault_of_size(kind: str, declared: str, stands_for: str) -> Callable[[Spoil], Spoil]:
    """Decorator: the function, by whose name the mutant goes, spoils the arrays of a right answer."""

    def enter(spoil: Spoil) -> Spoil:
        name = name_of(spoil)
        both = f"MISMATCH:{declared} or UNWRITTEN:{declared}"
        WIDE[name] = Mutant(name, kind, both, stands_for, lambda: TooNarrow(name, spoil), in_process=True)
        return spoil

    return enter


@fault_of_size("CHUNK", "F-POS:positions", "the offset of a row in its chunk kept in a byte: from row 256 on")
def row_offset_in_uint8(step: reference.Expected, fields: Fields) -> None:
    row = reference.host_array(step.batch.row)
    name = "positions_cp" if "positions_cp" in fields else "positions"
    if len(row):
        fields[name] -= row - (row & 255)


@fault_of_size("LOOK", "F-NGRAM:ngram_token_ids", "n-grams are looked up for a row kept in a byte: from row 256 on")
def look_back_of_a_row_in_uint8(step: reference.Expected, fields: Fields) -> None:
    late = np.flatnonzero(reference.host_array(step.batch.row) >= 256)
    cells = fields.get("ngram_token_ids")
    if cells is not None and len(cells) == step.batch.total_q:  # a mirror has the rows of one rank
        cells[late] = cells[late - 256]


@fault_of_size("BT", "F-CAOFF:kv_ca_index", "a ramp of columns in int16: from column 32,768 on")
def column_ramp_in_int16(step: reference.Expected, fields: Fields) -> None:
    for key in [key for key in fields if key.startswith("kv_ca_index.")]:
        far = fields[key][:, 2**15 :]
        far[far >= 0] -= 2**16


@fault_of_size("BT", "F-BLOCKS:block_tables", "columns of a table counted in int16: those from 32,768 on are column 0")
def table_ramp_in_int16(step: reference.Expected, fields: Fields) -> None:
    table = fields.get("block_tables")
    if table is not None and table.shape[1] > 2**15:
        table[:, 2**15 :] = table[:, :1] ^ 1


@fault_of_size("LOAD", "F-CAPLAN:load_segments_ca", "a grid of a block a segment has 65,535 blocks")
def segments_past_65535(step: reference.Expected, fields: Fields) -> None:
    for key in [key for key in fields if key.startswith("load_segments_ca.")]:
        fields[key][65_535:] = 0


@fault_of_size("LOAD", "F-IDS:input_ids", "a grid of a block a query row has 65,535 blocks in its second dimension")
def rows_past_65535(step: reference.Expected, fields: Fields) -> None:
    fields["input_ids"][65_535:] ^= 1


@fault_of_size("CHUNK", "F-IDS:input_ids", "the second tile of a chunk, at row 512, reads the tokens of the first")
def second_tile_at_row_512(step: reference.Expected, fields: Fields) -> None:
    late = np.flatnonzero(reference.host_array(step.batch.row) >= 512)
    fields["input_ids"][late] = fields["input_ids"][late - 512]


@fault_of_size("CU", "F-CU:cu_seqlens_q", "sums over blocks of 1,024 sequences, without those of the first one")
def second_tile_of_sums(step: reference.Expected, fields: Fields) -> None:
    sums = fields["cu_seqlens_q"]
    sums[1_024:] -= sums[1_023:1_024]


@fault_of_size("BT", "F-BLOCKS:block_tables", "a column of a table kept in uint16: from column 65,536 on")
def column_in_uint16(step: reference.Expected, fields: Fields) -> None:
    table = fields.get("block_tables")
    if table is not None and table.shape[1] > 2**16:
        table[:, 2**16 :] = table[:, : table.shape[1] - 2**16]


@fault_of_size("BT", "F-CTXLEN:context_lens", "the length of a context kept in uint16: from 65,536 tokens on")
def context_in_uint16(step: reference.Expected, fields: Fields) -> None:
    if "context_lens" in fields:
        fields["context_lens"] &= 2**16 - 1


@fault_of_size("SENT", "F-QIDX:query_indices", "the number of a sequence kept in a byte: from sequence 256 on")
def sequence_in_uint8(step: reference.Expected, fields: Fields) -> None:
    index = fields["query_indices"]
    index[index < 2**16] &= 255


@fault_of_size("SENT", "F-RING:state_block_idx", "ten bits for the sequence of a row: from sequence 1,024 on")
def sequence_in_10_bits(step: reference.Expected, fields: Fields) -> None:
    batch = step.batch
    if batch.path != "prompt":
        sequence = np.repeat(np.arange(batch.n_seq), batch.seqlen_q)
        fields["state_block_idx"][:] = batch.state_id[sequence & 1_023]


@fault_of_size("SENT", "F-MASK:valid_token_mask", "the rows of a decode step in a mask of 64 bits: from row 64 on")
def drafts_in_a_mask_of_64(step: reference.Expected, fields: Fields) -> None:
    if step.batch.path != "prompt":
        fields["valid_token_mask"][reference.host_array(step.batch.row) >= 64] = False


@fault_of_size("CHUNK", "F-POS:positions", "a position kept in 20 bits: from position 1,048,576 on")
def position_in_20_bits(step: reference.Expected, fields: Fields) -> None:
    fields["positions"] &= 2**20 - 1


@fault_of_size("RANK", "F-ZIGZAG:mirror_cp_index", "ranks in a mask of 32 bits: rank 32 is taken for rank 0")
def ranks_in_a_mask_of_32(step: reference.Expected, fields: Fields) -> None:
    batch = step.batch
    if batch.path == "prompt" and batch.config.cp_rank >= 32:
        config = replace(batch.config, cp_rank=batch.config.cp_rank - 32)
        fields["mirror_cp_index"][:] = reference.expected("prompt", batch.sequences, config).fields["mirror_cp_index"]
