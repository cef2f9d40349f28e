"""One wrong builder for each class of fault that real engines had (``BUG_CLASSES``)."""

from __future__ import annotations

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Fields, Wrong, wrong_answer, wrong_class

DECODE = ("decode", "decode_zos")


def row_lengths(request: Request) -> np.ndarray:
    """``seqlen_q`` of each query row's sequence."""
    lengths = [sequence.seqlen_q for sequence in request.sequences]
    return np.repeat(lengths, lengths)


@wrong_answer(
    "SPEC", "MISMATCH:F-CTXLEN:context_lens", "drafts are in the length already and are added once more", paths=DECODE
)
def drafts_counted_twice(request: Request, fields: Fields) -> None:
    fields["context_lens"][:] += (row_lengths(request) - 1).astype(np.int32)


@wrong_class(
    "SPEC",
    "MISMATCH:F-QIDX:query_indices",
    "a token to sequence map kept from the step with drafts is used in the step without",
    label="not flaky",
)
class MapOfTheWiderStep(Wrong):
    widest = np.zeros(0, dtype=np.int32)

    def after(self, request: Request, fields: Fields) -> None:
        rows = fields["query_indices"]
        if len(rows) > len(self.widest):
            self.widest = rows.copy()
        rows[:] = self.widest[: len(rows)]


@wrong_answer(
    "SENT",
    "MISMATCH:F-RING:slot_mapping_store_swa",
    "the padding slot -1 is clamped into the pool: padding rows write cell 0",
)
def sentinel_clamped_to_cell_0(_: Request, fields: Fields) -> None:
    np.maximum(fields["slot_mapping_store_swa"], 0, out=fields["slot_mapping_store_swa"])


@wrong_answer(
    "BT",
    "MISMATCH:F-BLOCKS:block_tables",
    "a table copied with a stride of one column: every block past the first is block 0",
    paths=DECODE,
)
def table_columns_of_block_0(_: Request, fields: Fields) -> None:
    fields["block_tables"][:, 1:] = 0


@wrong_answer(
    "BT",
    "MISMATCH:F-CAPLAN:load_segments_ca",
    "blocks are loaded once a step: a block of a common prefix is missing from the keys of the second sequence",
    paths=("prompt",),
)
def loads_a_shared_block_once(_: Request, fields: Fields) -> None:
    for plan in (fields[key] for key in fields if key.startswith("load_segments_ca.")):
        seen: set[int] = set()
        for segment in plan:
            block = int(segment[0])
            if block >= 0 and block in seen:
                segment[0] = -1
            seen.add(block)


@wrong_answer(
    "BT",
    "MISMATCH:F-BLOCKS:block_tables",
    "a map from block to owner with one place a block: a common prefix belongs to the last sequence alone",
    paths=DECODE,
)
def one_owner_of_a_block(request: Request, fields: Fields) -> None:
    owners = {block: index for index, s in enumerate(request.sequences) for block in s.block_table}
    rows = [index for index, s in enumerate(request.sequences) for _ in range(s.seqlen_q)]
    for cells, index in zip(fields["block_tables"], rows, strict=True):
        cells[[owners.get(int(cell), index) != index for cell in cells]] = 0


@wrong_answer(
    "SPEC",
    "MISMATCH:F-IDS:input_ids",
    "the remap is inverted into one place a row: of two sequences that continue from a row the first gets fresh tokens",
    paths=("decode_zos",),
)
def one_heir_of_a_row(request: Request, fields: Fields) -> None:
    gather = request.gather
    if gather is None:
        return
    heirs = {row: index for index, row in enumerate(gather.remap) if row >= 0}
    begin = 0
    for index, (sequence, row) in enumerate(zip(request.sequences, gather.remap, strict=True)):
        end = begin + sequence.seqlen_q
        if row >= 0 and heirs[row] != index:
            fields["input_ids"][begin:end] = gather.fresh_input_ids[begin:end]
        begin = end


@wrong_answer(
    "CHUNK",
    "MISMATCH:F-POS:positions",
    "the offset of a cached prefix is added to positions that hold it already",
    paths=("prompt",),
)
def prefix_counted_twice(request: Request, fields: Fields) -> None:
    prefixes = [s.seqlen_k - s.seqlen_q for s in request.sequences for _ in range(s.seqlen_q)]
    if request.config.cp_size == 1 and prefixes:
        fields["positions"][:] += np.array(prefixes, dtype=np.int32)


@wrong_answer(
    "CMP", "MISMATCH:F-KLEN:klen", "(p // r) + 1 compressed keys: the last one is not complete yet", paths=DECODE
)
def counts_the_unfinished_group(_: Request, fields: Fields) -> None:
    for key in (key for key in fields if key.startswith("klen.")):
        fields[key][:] = (fields["context_lens"] - 1) // int(key.partition(".")[2]) + 1


@wrong_answer(
    "ZERO",
    "MISMATCH:F-KLEN:klen",
    "a row that sees no key has the count -1, which a kernel reads as 4294967295",
    paths=DECODE,
)
def no_keys_as_minus_1(request: Request, fields: Fields) -> None:
    for key in (key for key in fields if key.startswith("klen.")):
        fields[key][fields[key] == 0] = -1


@wrong_answer(
    "CU", "MISMATCH:F-CU:cu_seqlens_q", "starts (with the leading 0) where ends are read", paths=("decode_zos",)
)
def two_conventions_of_cu(_: Request, fields: Fields) -> None:
    cu = fields["cu_seqlens_q"]
    cu[1:] = cu[:-1].copy()
    cu[0] = 0


@wrong_answer(
    "RING",
    "MISMATCH:F-RING:slot_mapping_store_swa",
    "the ring wraps at the window, not behind the room for drafts: a draft overwrites a key still read",
)
def ring_without_draft_room(request: Request, fields: Fields) -> None:
    size, slots = request.config.swa_block_size, fields["slot_mapping_store_swa"]
    stored = slots >= 0
    slots[stored] = slots[stored] // size * size + slots[stored] % size % request.config.window_size


@wrong_answer(
    "AGREE",
    "MISMATCH:F-MASK:valid_token_mask",
    "the ZOS builder takes sequences of more than 4 rows for padding, the eager one does not",
    paths=("decode_zos",),
)
def zos_threshold_of_its_own(request: Request, fields: Fields) -> None:
    fields["valid_token_mask"][row_lengths(request) > 4] = False


@wrong_class(
    "ALIAS",
    "MISMATCH:F-CU:cu_seqlens_q",
    "counts are added to what a cached view still holds: building a batch twice adds twice",
    paths=("decode",),
)
class GrowsAtARepeat(Wrong):
    last: object = None

    def after(self, request: Request, fields: Fields) -> None:
        batch = [(s.seqlen_q, s.seqlen_k, s.token_ids) for s in request.sequences]
        if batch == self.last:
            fields["cu_seqlens_q"][1:] += 2
        self.last = batch


@wrong_answer("DTYPE", "MISMATCH:F-IDS:input_ids", "ids that the host holds as int64 are read as int32: 1, 0, 2, 0")
def int64_read_as_int32(_: Request, fields: Fields) -> None:
    ids = fields["input_ids"]
    ids[:] = ids.astype(np.int64).view(np.int32)[: len(ids)]


@wrong_answer(
    "LOOK",
    "MISMATCH:F-NGRAM:ngram_token_ids",
    "the look-back of a sequence's first rows goes on into the sequence before it",
    paths=("prompt",),
)
def look_back_into_the_neighbour(request: Request, fields: Fields) -> None:
    rows = fields.get("ngram_token_ids")
    if rows is not None and request.config.cp_size == 1:
        rows[1:, 1:] = rows[:-1, :-1].copy()


@wrong_answer(
    "RANK",
    "MISMATCH:F-ZIGZAG:cp_mirror_len",
    "a scalar that rank 0 forgets to broadcast is missing on the others",
    paths=("prompt",),
)
def none_on_one_rank(request: Request, fields: Fields) -> None:
    if request.config.cp_rank > 0:
        del fields["cp_mirror_len"]
