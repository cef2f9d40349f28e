"""The texts of the formulas and preconditions, by name: what a report quotes beside a difference."""

from __future__ import annotations

FORMULAS: dict[str, str] = {
    "F-POS": "positions[i_q] = q_start + j, q_start = seqlen_k - seqlen_q",
    "F-IDS": "prompt: input_ids = token_ids[pos]\ndecode: token_ids[q_start] for j = 0, draft_tokens[j - 1] for j >= 1",
    "F-NGRAM": (
        "t = pos - r: pad_token if t < 0; compressed_tokens[t] if t < L; else lookup_table[recent_tokens[t - L]]\n"
        "from the first r whose value is image_sentinel on: pad_token"
    ),
    "F-GATE": "gate_force_random[i_q] = force_load_balance",
    "F-MASK": "valid_token_mask[i_q] = not is_placeholder (mirrored: and the row is no padding)",
    "F-QIDX": "query_indices[i_q] = i, 998244353 for a placeholder",
    "F-CU": (
        "prompt, eager decode: prefix sums of the lengths with the leading 0, length n + 1\n"
        "ZOS decode: cu_seqlens_q without the leading 0, length n"
    ),
    "F-COUNT": "num_reqs = n_seq; total_q = sum of seqlen_q; is_prompt = the path is prompt",
    "F-CSLOT": "slot(c) = block_table[c // b_c] * b_c + c % b_c, b_c = block_size // n",
    "F-NCQ": (
        "compressed rows of a sequence = max(1, seqlen_k // n - q_start // n)\n"
        "cu_compressed_seqlens_q = their prefix sums with the leading 0, length n_seq + 1"
    ),
    "F-CPOS": (
        "for c in [q_start // n, seqlen_k // n): positions_c = c * n, slot_mapping_store_ca = slot(c)\n"
        "empty range: one compressed row 0, -1; placeholder: each of them 0, -1"
    ),
    "F-CDEC": (
        "if (pos + 1) % n == 0: c = pos // n, positions_c = c * n, slot_mapping_store_ca = slot(c); otherwise 0, -1\n"
        "placeholder: 0, -1"
    ),
    "F-BLOCKS": (
        "num_blocks = cdiv(seqlen_k // m, block_size // m), m = min(ca_ratios); max_num_blocks = max(1, largest)\n"
        "block_tables row = block_table[:num_blocks], the rest is not defined"
    ),
    "F-RING": (
        "slot_mapping_store_swa = state_id * B + pos % B if seqlen_q - j <= B, else -1; placeholder: -1\n"
        "state_block_idx = state_id (prompt: a sequence; decode: a row)"
    ),
    "F-SWAPLAN": (
        "padding = clamp(swa_valid_start - (q_start - W), 0, W): [-1, 0, padding, i * W] if padding > 0; then the\n"
        "ring range [q_start - W + padding, q_start) of state_id, split where it wraps; total_k_swa = n_seq * W"
    ),
    "F-PIVOT": (
        "lo = clamp(max(pos - W + 1, rect_lo, swa_valid_start), 0, pos + 1); start = min(lo, q_start) - (q_start - W); "
        "k_lo = max(lo - q_start, 0)\n"
        "P0 = i * W + start, P1 = W - start, P2 = n_seq * W + cu_seqlens_q[i] + k_lo, P3 = j - k_lo + 1; "
        "expanded P0..P0+P1, P2..P2+P3, -1"
    ),
    "F-SWADEC": (
        "len = min(pos + 1, W); kv_swa_index_offset_len = (state_id * B + (pos - len + 1) % B, len)\n"
        "kv_swa_index = state_id * B + (pos - len + 1 + k) % B for k < len, then -1"
    ),
    "F-KSTEP": (
        "compressed key rows of a sequence = max(1, seqlen_k // n); base_i = their sum over sequences before i"
    ),
    "F-CAPLAN": (
        "num = seqlen_k // n; num = 0: [-1, 0, 1, dst]; else a block a segment:\n"
        "[block_table[b], 0, min(b_c, num - b * b_c), dst]; total_k_compressed = sum of max(1, num)"
    ),
    "F-KS": "ks = base_i; ke = base_i + (pos + 1) // r",
    "F-KLEN": "klen = (pos + 1) // r; in prompt ke - ks",
    "F-CAOFF": (
        "prompt: (base_i, (pos + 1) // n), expanded offset + k; "
        "decode: (i_q * max_num_blocks * b_c, (pos + 1) // n),\n"
        "expanded x = offset + k: block_tables.flat[x // b_c] * b_c + x % b_c; -1 right of the length"
    ),
    "F-VISIBLE": (
        "window: positions [lo, pos] of the row's sequence, lo of F-PIVOT (rect_lo = 0; decode: swa_valid_start = 0)\n"
        "ratio n: the positions c * n of its compressed tokens c < (pos + 1) // n"
    ),
    "F-CTXLEN": "context_lens[i_q] = pos + 1",
    "F-ZIGZAG": (
        "b = cdiv(L, 2p); rank r owns blocks r and 2p - 1 - r, each b rows: the row, or -1 past the chunk's end\n"
        "cp_mirror_len = sum of 2 * cdiv(seqlen_q, 2p)"
    ),
    "F-REVERSE": "mirror_cp_reverse_index[g] = owner * cp_mirror_len + local row: the inverse of F-ZIGZAG",
    "F-MIRRORKS": "ks = base_i, ke = base_i + (pos + 1) // r, pos = (seqlen_k - seqlen_q) + row in chunk; padding 0, 0",
    "F-RECT": "rect = [max(0, data_len - k), data_len) of [q_start, q_end), k = yoco_prefill_keep_tokens",
    "F-CLIP": (
        "compact: clip_prefix = clamp(data_len - k - q_start, 0, seqlen_q - 1), 0 when seqlen_q = 0; mask mode: 0"
    ),
    "F-VIS": "F-PIVOT with rect_lo = max(0, data_len - k)",
    "F-COMPACT": (
        "rows j >= clip_prefix only; cu over seqlen_q - clip_prefix; slots -1 outside rect; ks, ke, dense offsets as\n"
        "in the full layout; pivots: F-VIS with sec2 = n_seq * W + consumer_cu[i] and P2 less clip_prefix"
    ),
    "F-CONTRIB": (
        "kept[r] = sum over its blocks of max(min(b * (blk + 1), L) - max(b * blk, clip), 0); pad_len = max kept\n"
        "contrib_index = this rank's kept full-mirror rows, then -1; boundary_index = owner * pad_len + place, or -1"
    ),
    "F-LIMIT": (
        "every value written fits in int32; decode with dense ratios: "
        "total_q * max_num_blocks * (block_size // min(dense_ratios)) <= 2^31 - 1"
    ),
    "F-GATHER": (
        "remap[i] < 0: fresh_input_ids of the same extracted row; else prev_sampled[remap[i]] for j = 0, "
        "prev_predict[remap[i], j - 1] for j >= 1"
    ),
    "F-REMAP": (
        "num_accepted[i] = prev_num_accepted_tokens[remap[i]]; rejected[i] = prev_seqlens_q[remap[i]] - 1 - "
        "num_accepted[i];\nboth 0 for remap[i] < 0"
    ),
    "F-VARLEN": (
        "H, K, C: seqlens_q, seqlens_k and cu_seqlens_q as extracted; seqlens_k' = K - (H - seqlens_q) - rejected\n"
        "cu_seqlens_q = inclusive sums of seqlens_q; fresh tokens and n-grams of (i, j) are those of row C[i - 1] + j"
    ),
    "F-TAIL": "rows from the last cu_seqlens_q to the extracted total_q are neutral: they store nothing",
    "F-EXTRACT": (
        "MetadataZOS: seqlens_q, seqlens_k, state ids, placeholder flags a sequence; cu_seqlens_q inclusive;\n"
        "block tables end to end, num_blocks entries each, offsets with the leading 0; token ids and n-grams a row"
    ),
    "F-STACK": (
        "buckets of one field lie in one buffer [n_ratio, q_stride, ...]; a smaller total_q uses prefixes of its rows"
    ),
}
"""Formula name -> its text."""

READS: dict[str, tuple[str, ...]] = {
    "F-IDS": ("F-POS",),
    "F-NGRAM": ("F-POS",),
    "F-CDEC": ("F-POS",),
    "F-RING": ("F-POS",),
    "F-PIVOT": ("F-POS",),
    "F-SWADEC": ("F-POS",),
    "F-KS": ("F-POS",),
    "F-KLEN": ("F-POS", "F-KS", "F-MIRRORKS"),
    "F-CAOFF": ("F-POS", "F-BLOCKS", "F-KS"),
    "F-CTXLEN": ("F-POS",),
    "F-REVERSE": ("F-ZIGZAG",),
    "F-MIRRORKS": ("F-ZIGZAG", "F-KS"),
    "F-COMPACT": ("F-CLIP",),
    "F-CONTRIB": ("F-ZIGZAG", "F-CLIP"),
}
"""Formula name -> the formulas whose values it is computed from, beside those that the declaration of a field names: a
wrong value of the second makes one of the first."""

PRECONDITIONS: dict[str, str] = {
    "P-RATIO": (
        "block_size >= 1; every ratio >= 1 and divides block_size; at least one ratio; "
        "W >= 1; B >= W; p >= 1; 0 <= rank < p"
    ),
    "P-LEN": (
        "at least one sequence; 0 <= seqlen_q <= seqlen_k <= max_model_len; prompt: len(token_ids) >= seqlen_k; "
        "decode: seqlen_q = 1 + len(draft_tokens) and seqlen_k = len(token_ids) - 1 + seqlen_q"
    ),
    "P-TABLE": "block_table covers cdiv(seqlen_k // m, block_size // m) blocks, m = min(ca_ratios); every entry >= 0",
    "P-STATE": "state_id >= 0; swa_valid_start >= 0; data_len >= 0",
    "P-NGRAM": (
        "max_ngram_size > 0: len(compressed_tokens) + len(recent_tokens) >= seqlen_k and "
        "0 <= every recent token < len(lookup_table)"
    ),
    "P-INT32": "every value that comes in as an array and every value written fits in int32 (F-LIMIT)",
    "P-OUT": (
        "with out given, each tensor that the call writes exists, is writable and has the shape, dtype and device "
        "that the path wants"
    ),
}
"""Precondition name -> its text, in the order in which they are checked."""
