"""Planted faults: copies of the oracle with one line changed the way such code breaks in practice.

They measure the suite itself: each must be caught by a one-minute fuzz and by check (``python -m
inputmeta.conformance.mutants.detect``). A fault is a subject, ``--subject fault:ID``; its id is the formula and what
was done to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from inputmeta.conformance.subjects.base import SubjectError
from inputmeta.conformance.subjects.copies import copy_with
from inputmeta.conformance.subjects.oracle import OracleSubject


@dataclass(frozen=True)
class Fault:
    """One changed place in a copy of the oracle: ``old`` stands once in ``module`` and becomes ``new``."""

    id: str
    bug_class: str
    module: str
    old: str
    new: str

    @property
    def formula(self) -> str:
        """The formula or precondition that is wrong in the copy."""
        return self.id.partition(".")[0]


FAULTS = (
    Fault("F-POS.one-late", "CHUNK", "common", "return Token(q_start + offset)", "return Token(q_start + offset + 1)"),
    Fault("F-IDS.draft-one-on", "SPEC", "common", "draft_tokens[offset - 1]",
          "draft_tokens[offset - len(draft_tokens)]"),
    Fault("F-IDS.chunk-start", "CHUNK", "common", "return TokenId(token_ids[pos])",
          "return TokenId(token_ids[max(0, pos - 1)])"),
    Fault("F-NGRAM.no-pad-before-start", "LOOK", "common", "if looked_at < 0:", "if looked_at < -1:"),
    Fault("F-NGRAM.raw-token", "LOOK", "common", "TokenId(lookup_table[raw_token])", "TokenId(raw_token)"),
    Fault("F-NGRAM.sentinel-kept", "LOOK", "common", "            break\n        cells.append(value)",
          "            cells.append(value)\n            break\n        cells.append(value)"),
    Fault("F-MASK.placeholder-valid", "SENT", "common", "return not is_placeholder", "return True"),
    Fault("F-QIDX.minus-one", "SENT", "common", "NO_SEQUENCE if is_placeholder", "SequenceIndex(-1) if is_placeholder"),
    Fault("F-CU.leading-zero", "CU", "common", "prefix_sums(lengths)[1:]", "prefix_sums(lengths)[:-1]"),
    Fault("F-CSLOT.block-not-scaled", "BT", "compressed", "block * per_block + place_in_block",
          "block + place_in_block"),
    Fault("F-CSLOT.int32-wrap", "OVF", "compressed", "return Slot(block * per_block + place_in_block)",
          "return Slot((block * per_block + place_in_block + 2**30) % 2**31 - 2**30)"),
    Fault("F-NCQ.dropped-max", "ZERO", "compressed", "return max(1, completed)", "return completed"),
    Fault("F-CPOS.unscaled", "CMP", "compressed", "return Token(token * ratio)", "return Token(token)"),
    Fault("F-CPOS.first-ceil", "CHUNK", "compressed", "first = q_start // ratio", "first = -(-q_start // ratio)"),
    Fault("F-CPOS.placeholder-stores", "SENT", "compressed", "if token is None or is_placeholder:",
          "if token is None:"),
    Fault("F-CDEC.off-by-one", "CMP", "compressed", "(pos + 1) % ratio == 0", "pos % ratio == 0"),
    Fault("F-CDEC.placeholder-stores", "SENT", "compressed", "if not completes_a_token or is_placeholder:",
          "if not completes_a_token:"),
    Fault("F-BLOCKS.floor", "BT", "blocks", "Block(ceiling_division(compressed_tokens, tokens_in_block))",
          "Block(compressed_tokens // tokens_in_block)"),
    Fault("F-BLOCKS.no-minimum", "ZERO", "blocks", "max([1, *counts])", "max([0, *counts])"),
    Fault("F-RING.lost-modulo", "RING", "sliding_window", "state_id * swa_block_size + pos % swa_block_size)",
          "state_id * swa_block_size + pos)"),
    Fault("F-RING.one-row-short", "RING", "sliding_window", "rows_to_the_end > swa_block_size",
          "rows_to_the_end >= swa_block_size"),
    Fault("F-RING.placeholder-stores", "SENT", "sliding_window", "if is_placeholder or rows_to_the_end",
          "if rows_to_the_end"),
    Fault("F-SWAPLAN.unclamped", "CHUNK", "sliding_window", "clamp(swa_valid_start - history_begin, 0, window_size)",
          "max(swa_valid_start - history_begin, 0)"),
    Fault("F-SWAPLAN.no-split", "RING", "sliding_window", "min(end - begin, swa_block_size - ring_begin)",
          "end - begin"),
    Fault("F-SWAPLAN.destination", "WIN", "sliding_window", "trusted_begin, q_start, destination + padding)",
          "trusted_begin, q_start, destination)"),
    Fault("F-PIVOT.window-one-wide", "WIN", "sliding_window", "window_begin = pos - window_size + 1",
          "window_begin = pos - window_size"),
    Fault("F-PIVOT.no-upper-clamp", "WIN", "sliding_window", "clamp(lowest, 0, pos + 1)", "max(lowest, 0)"),
    Fault("F-PIVOT.self-left-out", "WIN", "sliding_window", "Token(offset - new_lo + 1)", "Token(offset - new_lo)"),
    Fault("F-SWADEC.full-window", "WIN", "sliding_window", "Token(min(pos + 1, window_size))", "Token(window_size)"),
    Fault("F-SWADEC.expand-no-wrap", "RING", "sliding_window", "(first + k) % swa_block_size",
          "(first % swa_block_size + k)"),
    Fault("F-KSTEP.dropped-max", "ZERO", "key_ranges", "CompressedToken(max(1, full_tokens))",
          "CompressedToken(full_tokens)"),
    Fault("F-CAPLAN.whole-last-block", "BT", "key_ranges", "min(per_block, num - done)", "per_block"),
    Fault("F-CAPLAN.no-zero-row", "ZERO", "key_ranges", "return [Segment(ZERO_FILL, 0, 1, destination)]", "return []"),
    Fault("F-KS.key-plus-one", "CMP", "key_ranges", "CompressedToken((pos + 1) // ratio)",
          "CompressedToken(pos // ratio + 1)"),
    Fault("F-CAOFF.stride", "BT", "key_ranges", "row * max_num_blocks * per_block", "row * max_num_blocks"),
    Fault("F-CAOFF.identity-table", "BT", "key_ranges", "block_table[k // per_block] * per_block + k % per_block", "k"),
    Fault("F-CTXLEN.before-this-row", "SPEC", "key_ranges", "return Token(pos + 1)", "return pos"),
    Fault("F-ZIGZAG.floor", "CP", "mirror", "Token(ceiling_division(length, 2 * cp_size))",
          "Token(max(length // (2 * cp_size), length > 0))"),
    Fault("F-ZIGZAG.swapped", "CP", "mirror", "return rank, 2 * cp_size - 1 - rank",
          "return 2 * cp_size - 1 - rank, rank"),
    Fault("F-REVERSE.owner-stride", "CP", "mirror", "owner * mirror_len + local_row",
          "owner * (mirror_len + 1) + local_row"),
    Fault("F-MIRRORKS.chunk-start-lost", "CP", "mirror", "pos = Token(seqlen_k - seqlen_q + offset)",
          "pos = Token(offset)"),
    Fault("F-MIRRORKS.compact-key-lengths", "CP", "assemble_yoco",
          "query.chunk.seqlen_k,\n                kept_offset(query),",
          "compact.lengths[query.chunk.index],\n                kept_offset(query),"),
    Fault("F-RECT.unclamped", "CHUNK", "truncation", "Token(max(0, data_len - keep_tokens))",
          "Token(data_len - keep_tokens + 1)"),
    Fault("F-CLIP.without-last-row", "CHUNK", "truncation", "q_start, 0, seqlen_q - 1))", "q_start, 0, seqlen_q))"),
    Fault("F-VIS.rect-ignored", "WIN", "truncation", "first_visible(pos, window_size, rect_lo, swa_valid_start)",
          "first_visible(pos, window_size, Token(0), swa_valid_start)"),
    Fault("F-COMPACT.clip-not-taken-off", "CHUNK", "truncation", "KeyRow(full.new_first - clip_prefix)",
          "KeyRow(full.new_first)"),
    Fault("F-COMPACT.stores-outside", "SENT", "truncation", "if not in_rect(pos, data_len, keep_tokens):",
          "if pos >= data_len:"),
    Fault("F-CONTRIB.no-clip", "RANK", "truncation", "begin = max(rows.start, clip_prefix)", "begin = rows.start"),
    Fault("F-CONTRIB.stride", "RANK", "truncation", "Row(owner * contrib_pad_len + place)",
          "Row(owner * (contrib_pad_len + 1) + place)"),
    Fault("F-CONTRIB.own-rows-first", "RANK", "truncation", "return kept_in_first + place_in_block",
          "return place_in_block"),
    Fault("F-GATHER.same-row", "SPEC", "zos", "if remap < 0:", "if remap <= 0:"),
    Fault("F-GATHER.draft-one-on", "SPEC", "zos", "prev_predict[remap][offset - 1]", "prev_predict[remap][offset - 2]"),
    Fault("F-LIMIT.product-in-blocks", "OVF", "limits", "total_q * max_num_blocks * compressed_per_block(",
          "total_q * max_num_blocks * min(1, "),
    Fault("P-RATIO.ring-unchecked", "RING", "preconditions", "if config.swa_block_size < config.window_size:",
          "if False:"),
    Fault("P-LEN.model-length", "SPEC", "preconditions", "if sequence.seqlen_k > config.max_model_len:",
          "if sequence.seqlen_k > config.max_model_len + 1:"),
    Fault("P-TABLE.one-short", "BT", "preconditions", "if len(table) < needed:", "if len(table) + 1 < needed:"),
    Fault("P-STATE.data-len", "CHUNK", "preconditions", '"swa_valid_start", "data_len")', '"swa_valid_start")'),
    Fault("P-NGRAM.recent-unchecked", "LOOK", "preconditions", "if not 0 <= wrong < table_size:",
          "if not wrong < table_size:"),
    Fault("P-INT32.uint32", "OVF", "limits", "if extreme.value > INT32_MAX:", "if extreme.value > 2 * INT32_MAX + 1:"),
)  # fmt: skip
BY_ID = {fault.id: fault for fault in FAULTS}


def fault_subject(fault_id: str) -> OracleSubject:
    """The copy of the oracle with one planted fault.

    Raises:
        SubjectError: there is no such fault.
    """
    fault = BY_ID.get(fault_id)
    if fault is None:
        raise SubjectError(f"fault {fault_id}: none of {', '.join(BY_ID)}")
    package = "oracle_with_" + "".join(c if c.isalnum() else "_" for c in fault_id)
    return OracleSubject(copy_with(package, fault.module, fault.old, fault.new), f"fault:{fault_id}")
