"""Copies of the oracle with one line changed the way such code breaks in practice, a copy a formula or more.

A name is the formula or precondition that is wrong and what was done to it. A wrong value spreads: what is computed
from it is declared as well.
"""

from __future__ import annotations

from inputmeta.conformance.mutants.mutant import Mutant, add
from inputmeta.conformance.subjects.base import Subject
from inputmeta.conformance.subjects.copies import copy_with
from inputmeta.conformance.subjects.oracle import OracleSubject


def changed_line(  # noqa: PLR0917 - a line of the table below
    name: str, kind: str, declared: str, stands_for: str, module: str, old: str, new: str
) -> None:
    """Enter a mutant: ``old`` stands once in ``module`` of the oracle and becomes ``new``.

    A wrong value that a reused buffer holds already looks as if nothing was written: UNWRITTEN goes with MISMATCH.
    """
    signatures = declared.split(" or ")
    signatures += [each.replace("MISMATCH", "UNWRITTEN") for each in signatures if each.startswith("MISMATCH")]

    def make() -> Subject:
        package = "oracle_with_" + "".join(c if c.isalnum() else "_" for c in name)
        return OracleSubject(copy_with(package, module, old, new), f"mutant:{name}")

    add(Mutant(name, kind, " or ".join(signatures), stands_for, make, in_process=True))


# fmt: off
changed_line("F-POS.one-late", "CHUNK", "MISMATCH:F- or CRASH:raised", "positions that count from 1",
    "common", "return Token(q_start + offset)", "return Token(q_start + offset + 1)")
changed_line("F-IDS.draft-one-on", "SPEC", "MISMATCH:F-IDS",
    "drafts are read from the end of the list, not behind the last token",
    "common", "draft_tokens[offset - 1]", "draft_tokens[offset - len(draft_tokens)]")
changed_line("F-IDS.chunk-start", "CHUNK", "MISMATCH:F-IDS",
    "the ids of the rows are shifted by the token sampled last",
    "common", "return TokenId(token_ids[pos])", "return TokenId(token_ids[max(0, pos - 1)])")
changed_line("F-NGRAM.no-pad-before-start", "LOOK", "MISMATCH:F-NGRAM or CRASH:raised",
    "the look-back reads the token at -1, the last one of the list",
    "common", "if looked_at < 0:", "if looked_at < -1:")
changed_line("F-NGRAM.raw-token", "LOOK", "MISMATCH:F-NGRAM",
    "look-back cells hold raw token ids, not those of the lookup table",
    "common", "TokenId(lookup_table[raw_token])", "TokenId(raw_token)")
changed_line("F-NGRAM.sentinel-kept", "LOOK", "MISMATCH:F-NGRAM",
    "the look-back stops behind an end-of-text token, not before it",
    "common", "            break\n        cells.append(value)",
    "            cells.append(value)\n            break\n        cells.append(value)")
changed_line("F-MASK.placeholder-valid", "SENT", "MISMATCH:F-MASK",
    "padding rows are marked as real ones",
    "common", "return not is_placeholder", "return True")
changed_line("F-QIDX.minus-one", "SENT", "MISMATCH:F-QIDX", "padding rows belong to sequence -1, the last one",
    "common", "NO_SEQUENCE if is_placeholder", "SequenceIndex(-1) if is_placeholder")
changed_line("F-CU.leading-zero", "CU", "MISMATCH:F-CU", "starts of sequences where their ends are read",
    "common", "prefix_sums(lengths)[1:]", "prefix_sums(lengths)[:-1]")
changed_line("F-CSLOT.block-not-scaled", "BT",
    "MISMATCH:F-CSLOT or MISMATCH:F-CDEC or ACCEPTED:P-INT32 or CRASH:raised:P-INT32",
    "a block number is taken for a slot",
    "compressed", "block * per_block + place_in_block", "block + place_in_block")
changed_line("F-CSLOT.int32-wrap", "OVF",
    "MISMATCH:F-CSLOT or ACCEPTED:P-INT32 or MISMATCH:F-CDEC or CRASH:raised:P-INT32",
    "a large slot wraps into the negative",
    "compressed", "return Slot(block * per_block + place_in_block)",
    "return Slot((block * per_block + place_in_block + 2**30) % 2**31 - 2**30)")
changed_line("F-NCQ.dropped-max", "ZERO", "CRASH:raised",
    "a chunk that completes no token has no row, not one empty row",
    "compressed", "return max(1, completed)", "return completed")
changed_line("F-CPOS.unscaled", "CMP", "MISMATCH:F-CPOS or MISMATCH:F-CDEC",
    "the position of a compressed token is its index",
    "compressed", "return Token(token * ratio)", "return Token(token)")
changed_line("F-CPOS.first-ceil", "CHUNK",
    "MISMATCH:F-CPOS or MISMATCH:F-CSLOT or CRASH:raised",
    "a chunk that starts inside a group leaves the group out",
    "compressed", "first = q_start // ratio", "first = -(-q_start // ratio)")
changed_line("F-CPOS.placeholder-stores", "SENT", "MISMATCH:F-CPOS or MISMATCH:F-CSLOT or CRASH:raised",
    "padding rows write compressed keys",
    "compressed", "if token is None or is_placeholder:", "if token is None:")
changed_line("F-CDEC.off-by-one", "CMP", "MISMATCH:F-CDEC or CRASH:raised", "a group is complete at its first token",
    "compressed", "(pos + 1) % ratio == 0", "pos % ratio == 0")
changed_line("F-CDEC.placeholder-stores", "SENT", "MISMATCH:F-CDEC",
    "padding rows of a decode step write compressed keys",
    "compressed", "if not completes_a_token or is_placeholder:", "if not completes_a_token:")
changed_line("F-BLOCKS.floor", "BT", "UNWRITTEN:F-BLOCKS or REJECTED:P-OUT or CRASH:raised:P-TABLE or ACCEPTED:P-OUT",
    "the last block, not full yet, is not counted",
    "blocks", "Block(ceiling_division(compressed_tokens, tokens_in_block))",
    "Block(compressed_tokens // tokens_in_block)")
changed_line("F-BLOCKS.no-minimum", "ZERO", "REJECTED:P-OUT", "a batch without blocks has a table of no columns",
    "blocks", "max([1, *counts])", "max([0, *counts])")
changed_line("F-RING.lost-modulo", "RING",
    "MISMATCH:F-RING or MISMATCH:F-SWADEC or MISMATCH:F-COMPACT or CRASH:raised or REJECTED:P-INT32",
    "the ring of the window does not wrap",
    "sliding_window", "state_id * swa_block_size + pos % swa_block_size)",
    "state_id * swa_block_size + pos)")
changed_line("F-RING.one-row-short", "RING", "MISMATCH:F-RING or MISMATCH:F-COMPACT",
    "the oldest row that the ring can hold is not stored",
    "sliding_window", "rows_to_the_end > swa_block_size", "rows_to_the_end >= swa_block_size")
changed_line("F-RING.placeholder-stores", "SENT", "MISMATCH:F-RING or MISMATCH:F-COMPACT or CRASH:raised",
    "padding rows write into the ring",
    "sliding_window", "if is_placeholder or rows_to_the_end", "if rows_to_the_end")
changed_line("F-SWAPLAN.unclamped", "CHUNK", "MISMATCH:F-SWAPLAN or REJECTED:P-INT32",
    "a trusted start behind the window is not cut at it",
    "sliding_window", "clamp(swa_valid_start - history_begin, 0, window_size)",
    "max(swa_valid_start - history_begin, 0)")
changed_line("F-SWAPLAN.no-split", "RING", "REJECTED:P-OUT", "a load that wraps in the ring is not split in two",
    "sliding_window", "min(end - begin, swa_block_size - ring_begin)", "end - begin")
changed_line("F-SWAPLAN.destination", "WIN", "MISMATCH:F-SWAPLAN",
    "the padding before a short history is left out of the destination",
    "sliding_window", "trusted_begin, q_start, destination + padding)",
    "trusted_begin, q_start, destination)")
changed_line("F-PIVOT.window-one-wide", "WIN", "MISMATCH:F-PIVOT or CRASH:raised or MISMATCH:F-COMPACT",
    "the window has one key too many",
    "sliding_window", "window_begin = pos - window_size + 1", "window_begin = pos - window_size")
changed_line("F-PIVOT.no-upper-clamp", "WIN",
    "MISMATCH:F-PIVOT or MISMATCH:F-COMPACT or REJECTED:P-INT32 or MISMATCH:F-VIS",
    "a window may begin behind its own row",
    "sliding_window", "clamp(lowest, 0, pos + 1)", "max(lowest, 0)")
changed_line("F-PIVOT.self-left-out", "WIN",
    "MISMATCH:F-PIVOT or MISMATCH:F-COMPACT or MISMATCH:F-VIS or ACCEPTED:P-INT32", "a row does not see itself",
    "sliding_window", "Token(offset - new_lo + 1)", "Token(offset - new_lo)")
changed_line("F-SWADEC.full-window", "WIN", "MISMATCH:F-SWADEC", "a full window in a context that is shorter than it",
    "sliding_window", "Token(min(pos + 1, window_size))", "Token(window_size)")
changed_line("F-SWADEC.expand-no-wrap", "RING", "MISMATCH:F-SWADEC", "a window that wraps in the ring runs out of it",
    "sliding_window", "(first + k) % swa_block_size", "(first % swa_block_size + k)")
changed_line("F-KSTEP.dropped-max", "ZERO", "CRASH:raised",
    "a sequence without compressed keys has no row, not one of zeros",
    "key_ranges", "CompressedToken(max(1, full_tokens))", "CompressedToken(full_tokens)")
changed_line("F-CAPLAN.whole-last-block", "BT", "MISMATCH:F-CAPLAN",
    "the last block is loaded whole, with what was never written",
    "key_ranges", "min(per_block, num - done)", "per_block")
changed_line("F-CAPLAN.no-zero-row", "ZERO", "CRASH:raised", "the row of zeros is not filled",
    "key_ranges", "return [Segment(ZERO_FILL, 0, 1, destination)]", "return []")
changed_line("F-KS.key-plus-one", "CMP", "MISMATCH:F- or CRASH:raised",
    "the last compressed key is visible before it is complete",
    "key_ranges", "CompressedToken((pos + 1) // ratio)", "CompressedToken(pos // ratio + 1)")
changed_line("F-CAOFF.stride", "BT", "MISMATCH:F-CAOFF",
    "rows of the index lie as far apart as the table has columns",
    "key_ranges", "row * max_num_blocks * per_block", "row * max_num_blocks")
changed_line("F-CAOFF.identity-table", "BT", "MISMATCH:F-CAOFF", "the block table is taken to be in order",
    "key_ranges", "block_table[k // per_block] * per_block + k % per_block", "k")
changed_line("F-CTXLEN.before-this-row", "SPEC", "MISMATCH:F-CTXLEN", "the context ends before the row, not with it",
    "key_ranges", "return Token(pos + 1)", "return pos")
changed_line("F-ZIGZAG.floor", "CP", "MISMATCH:F-ZIGZAG or REJECTED:P-OUT", "the length of a block is rounded down",
    "mirror", "Token(ceiling_division(length, 2 * cp_size))",
    "Token(max(length // (2 * cp_size), length > 0))")
changed_line("F-ZIGZAG.swapped", "CP", "MISMATCH:F-", "a rank's second block comes first",
    "mirror", "return rank, 2 * cp_size - 1 - rank", "return 2 * cp_size - 1 - rank, rank")
changed_line("F-REVERSE.owner-stride", "CP", "MISMATCH:F-REVERSE",
    "the inverse of one rank layout applied to another",
    "mirror", "owner * mirror_len + local_row", "owner * (mirror_len + 1) + local_row")
changed_line("F-MIRRORKS.chunk-start-lost", "CP", "MISMATCH:F-MIRRORKS or MISMATCH:F-KLEN",
    "a mirrored row of a later chunk sees the keys of the first",
    "mirror", "pos = Token(seqlen_k - seqlen_q + offset)", "pos = Token(offset)")
changed_line("F-MIRRORKS.compact-key-lengths", "CP", "MISMATCH:F-MIRRORKS",
    "keys are counted over the rows kept, not over the context",
    "assemble_yoco", "compact.lengths[index], query.chunk.seqlen_k, offset",
    "compact.lengths[index], compact.lengths[index], offset")
changed_line("F-RECT.unclamped", "CHUNK", "MISMATCH:F-COMPACT or MISMATCH:F-VIS or REJECTED:P-INT32",
    "the rows kept begin one late and before the start",
    "truncation", "Token(max(0, data_len - keep_tokens))", "Token(data_len - keep_tokens + 1)")
changed_line("F-CLIP.without-last-row", "CHUNK",
    "MISMATCH:F-COMPACT or REJECTED:P-OUT or ACCEPTED:P-INT32",
    "a sequence may lose its last row, the one that is sampled",
    "truncation", "q_start, 0, seqlen_q - 1))", "q_start, 0, seqlen_q))")
changed_line("F-VIS.rect-ignored", "WIN", "MISMATCH:F-VIS or MISMATCH:F-COMPACT or ACCEPTED:P-INT32",
    "rows that were cut off stay visible",
    "truncation", "first_visible(pos, window_size, rect_lo, swa_valid_start)",
    "first_visible(pos, window_size, Token(0), swa_valid_start)")
changed_line("F-COMPACT.clip-not-taken-off", "CHUNK", "MISMATCH:F-COMPACT",
    "rows of the cut batch are counted as before the cut",
    "truncation", "KeyRow(full.new_first - clip_prefix)", "KeyRow(full.new_first)")
changed_line("F-COMPACT.stores-outside", "SENT", "MISMATCH:F-COMPACT",
    "rows before the kept ones write into the ring",
    "truncation", "if not in_rect(pos, data_len, keep_tokens):", "if pos >= data_len:")
changed_line("F-CONTRIB.no-clip", "RANK", "MISMATCH:F-CONTRIB or REJECTED:P-OUT",
    "a rank hands over rows that were cut off",
    "truncation", "begin = max(rows.start, clip_prefix)", "begin = rows.start")
changed_line("F-CONTRIB.stride", "RANK", "MISMATCH:F-CONTRIB",
    "ranks of different widths are gathered with one rank's own stride",
    "truncation", "Row(owner * contrib_pad_len + place)", "Row(owner * (contrib_pad_len + 1) + place)")
changed_line("F-CONTRIB.own-rows-first", "RANK", "MISMATCH:F-CONTRIB",
    "the rows of a rank's second block stand where those of its first should",
    "truncation", "return kept_in_first + place_in_block", "return place_in_block")
changed_line("F-GATHER.same-row", "SPEC", "MISMATCH:F-IDS", "the sequence of row 0 is taken for a new one",
    "zos", "if remap < 0:", "if remap <= 0:")
changed_line("F-GATHER.draft-one-on", "SPEC", "MISMATCH:F-IDS",
    "drafts are read one too early, the first one from the end",
    "zos", "prev_predict[remap][offset - 1]", "prev_predict[remap][offset - 2]")
changed_line("F-GATHER.fresh-at-the-same-row", "SPEC", "MISMATCH:F-IDS or CRASH:raised",
    "fresh tokens are read at the shorter row, not where the host laid them out",
    "assemble", "gather.fresh_input_ids[query.chunk.extracted_row + query.offset]", "gather.fresh_input_ids[query.row]")
changed_line("F-REMAP.by-sequence", "SPEC", "MISMATCH:F- or CRASH:raised",
    "every sequence is given the accepted count of the last step's first one",
    "varlen", "accepted_drafts(prev_num_accepted_tokens, remap))",
    "accepted_drafts(prev_num_accepted_tokens, min(0, remap)))")
changed_line("F-REMAP.accepted-taken-back", "SPEC", "MISMATCH:F- or CRASH:raised",
    "what was accepted is taken back, and what was rejected stays",
    "varlen", "return Token(verified - accepted_drafts(prev_num_accepted_tokens, remap))",
    "return accepted_drafts(prev_num_accepted_tokens, remap)")
changed_line("F-REMAP.sampled-counted", "SPEC", "MISMATCH:F- or CRASH:raised",
    "the token that was sampled is counted among the rejected drafts",
    "varlen", "prev_seqlens_q[remap] - 1", "prev_seqlens_q[remap]")
changed_line("F-VARLEN.host-key-lengths", "SPEC", "MISMATCH:F-",
    "the rows are fewer and the key lengths are still the host's: rows end where the drafts would have",
    "varlen", "Token(extracted_k - rows_left_out - rejected)", "Token(extracted_k - rejected)")
changed_line("F-VARLEN.nothing-taken-back", "SPEC", "MISMATCH:F-",
    "rejected drafts stay in the context",
    "varlen", "Token(extracted_k - rows_left_out - rejected)", "Token(extracted_k - rows_left_out)")
changed_line("F-VARLEN.n-grams-at-own-position", "LOOK", "MISMATCH:F-NGRAM",
    "n-grams are looked up at positions that the host had not extracted",
    "assemble", "common.position(query.chunk.extracted_start, query.offset)", "query.position")
changed_line("F-TAIL.last-rows-twice", "STALE", "MISMATCH:F- or CRASH:raised",
    "rows past the shorter sum repeat the last row: they store where it does",
    "rows", "queries += [None] * len(tail)", "queries += [queries[-1]] * len(tail)")
changed_line("F-LIMIT.product-in-blocks", "OVF", "ACCEPTED:P-INT32",
    "a bound is checked in blocks where tokens are counted",
    "limits", "total_q * max_num_blocks * compressed_per_block(", "total_q * max_num_blocks * min(1, ")
changed_line("P-RATIO.ring-unchecked", "RING", "ACCEPTED:P-RATIO", "a ring shorter than the window is taken",
    "preconditions", "if config.swa_block_size < config.window_size:", "if False:")
changed_line("P-LEN.model-length", "SPEC", "ACCEPTED:P-LEN", "one token more than the model can hold is taken",
    "preconditions", "if sequence.seqlen_k > config.max_model_len:",
    "if sequence.seqlen_k > config.max_model_len + 1:")
changed_line("P-TABLE.one-short", "BT", "CRASH:raised:P-TABLE",
    "a table one block too short is taken and read past its end",
    "preconditions", "if len(table) < needed:", "if len(table) + 1 < needed:")
changed_line("P-STATE.data-len", "CHUNK", "ACCEPTED:P-STATE",
    "a negative length of the whole sequence is taken as it is",
    "preconditions", '"swa_valid_start", "data_len")', '"swa_valid_start")')
changed_line("P-NGRAM.recent-unchecked", "LOOK", "ACCEPTED:P-NGRAM",
    "a negative recent token is looked up from the table's end",
    "preconditions", "if not 0 <= wrong < table_size:", "if not wrong < table_size:")
changed_line("P-INT32.uint32", "OVF", "CRASH:raised:P-INT32 or ACCEPTED:P-INT32",
    "products are checked as uint32 and written as int32: a negative slot",
    "limits", "if extreme.value > INT32_MAX:", "if extreme.value > 2 * INT32_MAX + 1:")
changed_line("P-INT32.total-unchecked", "OVF", "ACCEPTED:P-INT32 or CRASH:raised:P-INT32",
    "rows of history are counted, those of the step that follow them are not",
    "limits", 'yield Extreme("kv_swa_full_index_pivots", chunk.index, highest_pivot(plain))', "pass")
changed_line("P-INT32.window-one-early", "OVF", "REJECTED:P-INT32",
    "the end of the histories, one past their last row, is held against the bound",
    "limits", 'yield Extreme("total_k_swa", None, total_window_keys(len(chunks), window))',
    'yield Extreme("total_k_swa", None, total_window_keys(len(chunks), window) + 1)')
# fmt: on
