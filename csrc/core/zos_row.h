// ZOS decode: the cells of one query row, for one thread of a kernel on the host or on a device. The meaning is that of
// eager decode (sections 2 to 6); there a chunk's rows are written in runs, here each row stands alone.
//
// All is unsigned 32-bit: the plan has shown that every value written fits in int32, and ZosParams says why a divisor
// that does not fit may be cut.
#pragma once

#include <cstdint>

#include "core/exact_divisor.h"
#include "core/zos_arrays.h"

namespace inputmeta {

/// query_indices of a row that no sequence owns (section 2).
inline constexpr int32_t kNoQuery = 998244353;

/// One ratio n and its b_c = block_size // n.
struct ZosRatio {
  ExactDivisor value;
  ExactDivisor tokens_per_block;
};

/// What a step's rows share. Every member is min(value, 2^32 - 1): positions and lengths are below 2^31, so a larger
/// divisor divides them alike, and where one is a factor, int32 holds the product, so that the other factor is 0.
struct ZosParams {
  uint32_t window_size = 1;     ///< W, tokens
  ExactDivisor ring;            ///< B, slots
  uint32_t max_num_blocks = 1;  ///< columns of block_tables in use
  bool force_load_balance = false;
};

/// One sequence, as read from the arrays.
struct ZosSequence {
  uint32_t q_start;
  uint32_t seqlen_q;
  uint32_t state_id;
  bool is_placeholder;
  const int32_t* block_table;
  uint32_t num_blocks;  ///< cells of block_table that may be read
};

/// A pair of cells: an offset and a length, or a position and a slot.
struct ZosPair {
  int32_t first;
  int32_t second;
};

INPUTMETA_ANYWHERE inline void zos_write_pair(int32_t* out, int64_t row, ZosPair pair) {
  out[2 * row] = pair.first;
  out[2 * row + 1] = pair.second;
}

/// F-RING for row j: a row that a later one overwrites is not stored, nor is a placeholder's.
INPUTMETA_ANYWHERE inline int32_t zos_ring_slot(const ZosSequence& sequence, uint32_t j, const ExactDivisor& ring) {
  if (sequence.is_placeholder || sequence.seqlen_q - j > ring.value) return -1;
  return static_cast<int32_t>(sequence.state_id * ring.value + ring.remainder(sequence.q_start + j));
}

/// F-SWADEC for the row at `position`: first ring slot and keys of its window.
INPUTMETA_ANYWHERE inline ZosPair zos_window(const ZosSequence& sequence, uint32_t position, const ZosParams& params) {
  const uint32_t len = position < params.window_size ? position + 1 : params.window_size;
  const uint32_t first = sequence.state_id * params.ring.value + params.ring.remainder(position + 1 - len);
  return {static_cast<int32_t>(first), static_cast<int32_t>(len)};
}

/// Compressed keys that the row at `position` sees, its klen: the tokens that it and those before it complete.
INPUTMETA_ANYWHERE inline uint32_t zos_complete_tokens(uint32_t position, const ZosRatio& ratio) {
  return ratio.value.quotient(position + 1);
}

/// F-CDEC and F-CSLOT: position and slot of the compressed token that the row at `position` completes as the last of
/// its `complete` tokens, or 0 and -1. Nor is a token stored whose block the table does not have: P-TABLE does not hold
/// for arrays that others changed on a device, and what lies behind a table must not be read.
INPUTMETA_ANYWHERE inline ZosPair zos_compressed(const ZosSequence& sequence, uint32_t position, uint32_t complete,
                                                 const ZosRatio& ratio) {
  const uint32_t begin = (complete - 1) * ratio.value.value;  // of the last complete token, if there is one
  if (sequence.is_placeholder || complete * ratio.value.value != position + 1 || complete == 0) return {0, -1};
  const uint32_t token = complete - 1;
  const uint32_t block = ratio.tokens_per_block.quotient(token);
  if (block >= sequence.num_blocks) return {0, -1};
  const uint32_t place = token - block * ratio.tokens_per_block.value;
  const uint32_t slot = static_cast<uint32_t>(sequence.block_table[block]) * ratio.tokens_per_block.value + place;
  return {static_cast<int32_t>(begin), static_cast<int32_t>(slot)};
}

/// F-CAOFF: where query row `row` begins in the flattened block tables, and its compressed keys.
INPUTMETA_ANYWHERE inline ZosPair zos_dense_range(uint32_t row, uint32_t complete, const ZosRatio& ratio,
                                                  const ZosParams& params) {
  return {static_cast<int32_t>(row * params.max_num_blocks * ratio.tokens_per_block.value),
          static_cast<int32_t>(complete)};
}

/// Fields without buckets of row j of sequence `index`, the step's row `row`.
INPUTMETA_ANYWHERE inline void zos_write_row(const ZosSequence& sequence, int64_t index, uint32_t j, int64_t row,
                                             const ZosParams& params, const ZosOutputs& outputs) {
  const uint32_t position = sequence.q_start + j;
  outputs.positions[row] = static_cast<int32_t>(position);
  outputs.gate_force_random[row] = params.force_load_balance;
  outputs.valid_token_mask[row] = !sequence.is_placeholder;
  outputs.query_indices[row] = sequence.is_placeholder ? kNoQuery : static_cast<int32_t>(index);
  outputs.context_lens[row] = static_cast<int32_t>(position + 1);
  outputs.state_block_idx[row] = static_cast<int32_t>(sequence.state_id);
  outputs.slot_mapping_store_swa[row] = zos_ring_slot(sequence, j, params.ring);
  zos_write_pair(outputs.kv_swa_index_offset_len, row, zos_window(sequence, position, params));
}

/// The same of a step without rows: its neutral row (I-3).
INPUTMETA_ANYWHERE inline void zos_write_neutral_row(const ZosOutputs& outputs) {
  outputs.positions[0] = outputs.context_lens[0] = outputs.state_block_idx[0] = 0;
  outputs.gate_force_random[0] = outputs.valid_token_mask[0] = false;
  outputs.query_indices[0] = kNoQuery;
  outputs.slot_mapping_store_swa[0] = -1;
  zos_write_pair(outputs.kv_swa_index_offset_len, 0, {0, 0});
}

/// A ca ratio, and which bucket of the fields of sparse and dense ratios it is, -1: none.
struct ZosBucket {
  ZosRatio ratio;
  int32_t ca = 0;
  int32_t sparse = -1;
  int32_t dense = -1;
};

/// What the buckets of one ratio hold in one row.
struct ZosBucketCells {
  ZosPair stored;
  int32_t klen;
  ZosPair range;
};

INPUTMETA_ANYWHERE inline ZosBucketCells zos_bucket_cells(const ZosSequence& sequence, uint32_t position, uint32_t row,
                                                          const ZosBucket& bucket, const ZosParams& params) {
  const uint32_t complete = zos_complete_tokens(position, bucket.ratio);
  return {zos_compressed(sequence, position, complete, bucket.ratio), static_cast<int32_t>(complete),
          zos_dense_range(row, complete, bucket.ratio, params)};
}

/// I-3 for the buckets of a step without rows.
INPUTMETA_ANYWHERE inline ZosBucketCells zos_neutral_bucket_cells() { return {{0, -1}, 0, {0, 0}}; }

INPUTMETA_ANYWHERE inline void zos_write_bucket(const ZosBucketCells& cells, int64_t row, const ZosBucket& bucket,
                                                const ZosOutputs& outputs) {
  outputs.positions_c.bucket(bucket.ca)[row] = cells.stored.first;
  outputs.slot_mapping_store_ca.bucket(bucket.ca)[row] = cells.stored.second;
  if (bucket.sparse >= 0) outputs.klen.bucket(bucket.sparse)[row] = cells.klen;
  if (bucket.dense >= 0) zos_write_pair(outputs.kv_ca_index_offset_len.bucket(bucket.dense), row, cells.range);
}

}  // namespace inputmeta
