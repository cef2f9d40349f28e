// ZOS decode: the cells of one query row, for one thread of a kernel on the host or on a device. The meaning is that of
// eager decode (sections 2 to 6); there a chunk's rows are written in runs, here each row stands alone.
//
// All is unsigned 32-bit: the plan has shown that every value written fits in int32, and ZosParams says why a divisor
// that does not fit may be cut.
#pragma once

#include <cstdint>

#include "core/exact_divisor.h"
#include "core/zos_arrays.h"
#include "core/zos_gather.h"

namespace inputmeta {

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
  outputs.put<Field::positions>(row, static_cast<int32_t>(position));
  outputs.put<Field::gate_force_random>(row, params.force_load_balance);
  outputs.put<Field::valid_token_mask>(row, !sequence.is_placeholder);
  outputs.put<Field::query_indices>(row, sequence.is_placeholder ? kNoQuery : static_cast<int32_t>(index));
  outputs.put<Field::context_lens>(row, static_cast<int32_t>(position + 1));
  outputs.put<Field::state_block_idx>(row, static_cast<int32_t>(sequence.state_id));
  outputs.put<Field::slot_mapping_store_swa>(row, zos_ring_slot(sequence, j, params.ring));
  outputs.put<Field::kv_swa_index_offset_len>(row, zos_window(sequence, position, params));
}

/// A ca ratio, and which bucket of the fields of sparse and dense ratios it is, -1: none.
struct ZosBucket {
  ZosRatio ratio;
  int32_t ca = 0;
  int32_t sparse = -1;
  int32_t dense = -1;
};

/// Which bucket of a field of this kind is the ratio's, -1: none. Without a ratio, that of a field without buckets.
INPUTMETA_ANYWHERE inline int32_t zos_bucket_index(Bucket kind, const ZosBucket* bucket) {
  if (bucket == nullptr || kind == Bucket::plain) return bucket == nullptr && kind == Bucket::plain ? 0 : -1;
  return kind == Bucket::ca ? bucket->ca : kind == Bucket::sparse ? bucket->sparse : bucket->dense;
}

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

INPUTMETA_ANYWHERE inline void zos_write_bucket(const ZosBucketCells& cells, int64_t row, const ZosBucket& bucket,
                                                const ZosOutputs& outputs) {
  outputs.put<Field::positions_c>(row, cells.stored.first, bucket.ca);
  outputs.put<Field::slot_mapping_store_ca>(row, cells.stored.second, bucket.ca);
  if (bucket.sparse >= 0) outputs.put<Field::klen>(row, cells.klen, bucket.sparse);
  if (bucket.dense >= 0) outputs.put<Field::kv_ca_index_offset_len>(row, cells.range, bucket.dense);
}

/// A neutral row, of a step without query rows (I-3) or past the shorter sum (F-TAIL): the fields without buckets, or the
/// buckets of one ratio.
INPUTMETA_ANYWHERE inline void zos_write_neutral_row(const ZosBucket* bucket, int64_t row, const ZosOutputs& outputs) {
  for_each_zos_field([&]<Field field>(ZosField<field> known) {
    const int32_t index = zos_bucket_index(known.kBucket, bucket);
    if (index < 0) return;
    auto* const cells = outputs.template cells<field>(index) + row * known.kColumns;
    for (int32_t column = 0; column < known.kColumns; ++column) cells[column] = known.kNeutral;
  });
}

/// What the host has made: from the extracted arrays to the fields.
struct ZosCopies {
  ZosTokenSources tokens;                    ///< fresh_cu_seqlens_q null: the extracted layout is the step's, all fresh
  const int32_t* ngram_token_ids = nullptr;  ///< [fresh rows, ngram_columns], null without look-back
  int32_t* out_cu_seqlens_q = nullptr;
  int32_t* out_input_ids = nullptr;
  int32_t* out_ngram_token_ids = nullptr;
  int64_t ngram_columns = 0;
  int32_t pad_token = 0;

  /// Whether each row says where its cells come from; else the arrays are copied as they are.
  INPUTMETA_ANYWHERE bool is_by_row() const { return tokens.fresh_cu_seqlens_q != nullptr; }
};

/// Token id and n-grams of row j of sequence `index`, the step's row `row`; what points outside is left out.
INPUTMETA_ANYWHERE inline void zos_copy_row(const ZosCopies& copies, int64_t index, uint32_t j, int64_t row) {
  const int32_t* const token = copies.tokens.token(index, j);
  if (token != nullptr) copies.out_input_ids[row] = *token;
  if (copies.ngram_token_ids == nullptr) return;
  const int64_t fresh_row = copies.tokens.fresh_row(index, j);
  if (fresh_row < 0) return;
  const int32_t* const source = copies.ngram_token_ids + fresh_row * copies.ngram_columns;
  int32_t* const out = copies.out_ngram_token_ids + row * copies.ngram_columns;
  for (int64_t column = 0; column < copies.ngram_columns; ++column) out[column] = source[column];
}

INPUTMETA_ANYWHERE inline void zos_copy_neutral_row(const ZosCopies& copies, int64_t row) {
  copies.out_input_ids[row] = 0;
  for (int64_t column = 0; column < copies.ngram_columns; ++column) {
    copies.out_ngram_token_ids[row * copies.ngram_columns + column] = copies.pad_token;
  }
}

}  // namespace inputmeta
