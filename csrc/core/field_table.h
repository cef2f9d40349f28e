// The output fields, declared once: name, type, shape rule, paths, and the neutral value of a query row that stands for
// none. All that names or lists fields is made from this table, on the host and in kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace inputmeta {

/// Of a tensor; int64 is for arrays that are no fields.
enum class DType : uint8_t { int32, int64, boolean };

/// What a row of the field stands for; it decides how many there are. none: the path does not have the field; consumer:
/// a query row that truncation keeps; mirrored: a row of this rank's mirror of these; contributed: a row that a rank
/// contributes to them.
enum class Rows : uint8_t {
  none,
  query,
  sequence,
  boundary,
  compressed,
  segment_swa,
  segment_ca,
  consumer,
  mirrored,
  contributed,
};

/// What a column stands for; single: the field has one dimension.
enum class Columns : uint8_t { single, pair, quad, ngram, blocks };

/// Which ratios have a tensor of their own; plain: the field has one tensor.
enum class Bucket : uint8_t { plain, ca, dense, sparse };

/// Which steps have the field; mask, compact: prompts of that yoco_mode, compact_cp: those with cp_size > 1.
enum class When : uint8_t { always, mask, compact, compact_cp };

/// What a query row holds when the batch has no query rows (I-3).
enum class Neutral : uint8_t { zero, minus_one, pad_token, no_query };

/// Who writes the field in a ZOS decode step: the metadata kernel, or others (block tables, copies from the pack).
enum class Zos : uint8_t { kernel, other };

/// query_indices of a query row that no sequence owns (section 2).
inline constexpr int32_t kNoQuery = 998244353;

// clang-format off
/// FIELD(name, dtype, rows of a prompt, rows of decode, columns, bucket, when, neutral, zos), in the order of a step's
/// tensors.
#define INPUTMETA_FIELDS(FIELD)                                                                                        \
  FIELD(positions,                int32,   query,       query,    single, plain,  always, zero,      kernel)           \
  FIELD(input_ids,                int32,   query,       query,    single, plain,  always, zero,      other)            \
  FIELD(gate_force_random,        boolean, query,       query,    single, plain,  always, zero,      kernel)           \
  FIELD(valid_token_mask,         boolean, query,       query,    single, plain,  always, zero,      kernel)           \
  FIELD(query_indices,            int32,   query,       query,    single, plain,  always, no_query,  kernel)           \
  FIELD(ngram_token_ids,          int32,   query,       query,    ngram,  plain,  always, pad_token, other)            \
  FIELD(cu_seqlens_q,             int32,   boundary,    boundary, single, plain,  always, zero,      other)            \
  FIELD(cu_seqlens_k,             int32,   boundary,    boundary, single, plain,  always, zero,      other)            \
  FIELD(state_block_idx,          int32,   sequence,    query,    single, plain,  always, zero,      kernel)           \
  FIELD(slot_mapping_store_swa,   int32,   query,       query,    single, plain,  always, minus_one, kernel)           \
  FIELD(load_segments_swa,        int32,   segment_swa, none,     quad,   plain,  always, zero,      other)            \
  FIELD(kv_swa_full_index_pivots, int32,   query,       none,     quad,   plain,  always, zero,      other)            \
  FIELD(kv_swa_index_offset_len,  int32,   none,        query,    pair,   plain,  always, zero,      kernel)           \
  FIELD(cu_compressed_seqlens_q,  int32,   boundary,    none,     single, ca,     always, zero,      other)            \
  FIELD(positions_c,              int32,   compressed,  query,    single, ca,     always, zero,      kernel)           \
  FIELD(slot_mapping_store_ca,    int32,   compressed,  query,    single, ca,     always, minus_one, kernel)           \
  FIELD(load_segments_ca,         int32,   segment_ca,  none,     quad,   ca,     always, zero,      other)            \
  FIELD(ks,                       int32,   query,       none,     single, sparse, always, zero,      other)            \
  FIELD(ke,                       int32,   query,       none,     single, sparse, always, zero,      other)            \
  FIELD(kv_ca_index_offset_len,   int32,   query,       query,    pair,   dense,  always, zero,      kernel)           \
  FIELD(klen,                     int32,   none,        query,    single, sparse, always, zero,      kernel)           \
  FIELD(block_tables,             int32,   none,        query,    blocks, plain,  always, zero,      other)            \
  FIELD(context_lens,             int32,   none,        query,    single, plain,  always, zero,      kernel)           \
  FIELD(yoco_mask_swa_index_pivots,            int32, query,       none, quad,   plain,  mask,       zero,      other) \
  FIELD(yoco_consumer_cu_seqlens_q,            int32, boundary,    none, single, plain,  compact,    zero,      other) \
  FIELD(yoco_consumer_query_indices,           int32, consumer,    none, single, plain,  compact,    no_query,  other) \
  FIELD(yoco_consumer_positions,               int32, consumer,    none, single, plain,  compact,    zero,      other) \
  FIELD(yoco_consumer_slot_mapping_store_swa,  int32, consumer,    none, single, plain,  compact,    minus_one, other) \
  FIELD(yoco_consumer_swa_index_pivots,        int32, consumer,    none, quad,   plain,  compact,    zero,      other) \
  FIELD(yoco_consumer_ks,                      int32, consumer,    none, single, sparse, compact,    zero,      other) \
  FIELD(yoco_consumer_ke,                      int32, consumer,    none, single, sparse, compact,    zero,      other) \
  FIELD(yoco_consumer_kv_ca_index_offset_len,  int32, consumer,    none, pair,   dense,  compact,    zero,      other) \
  FIELD(yoco_consumer_mirror_cp_index,         int32, mirrored,    none, single, plain,  compact_cp, minus_one, other) \
  FIELD(yoco_consumer_mirror_cp_reverse_index, int32, consumer,    none, single, plain,  compact_cp, minus_one, other) \
  FIELD(yoco_consumer_mirror_ks,               int32, mirrored,    none, single, sparse, compact_cp, zero,      other) \
  FIELD(yoco_consumer_mirror_ke,               int32, mirrored,    none, single, sparse, compact_cp, zero,      other) \
  FIELD(yoco_cp_contrib_index,                 int32, contributed, none, single, plain,  compact_cp, minus_one, other) \
  FIELD(yoco_cp_boundary_index,                int32, mirrored,    none, single, plain,  compact_cp, minus_one, other)
// clang-format on

#define INPUTMETA_FIELD_NAME(name, ...) name,
enum class Field : uint8_t { INPUTMETA_FIELDS(INPUTMETA_FIELD_NAME) };
#undef INPUTMETA_FIELD_NAME

struct FieldDeclaration {
  Field field;
  const char* name;
  DType dtype;
  Rows prompt_rows;
  Rows decode_rows;
  Columns columns;
  Bucket bucket;
  When when;
  Neutral neutral;
  Zos zos;
};

#define INPUTMETA_FIELD_DECLARATION(name, dtype, prompt_rows, decode_rows, columns, bucket, when, neutral, zos)       \
  {Field::name, #name, DType::dtype, Rows::prompt_rows, Rows::decode_rows, Columns::columns, \
   Bucket::bucket, When::when, Neutral::neutral, Zos::zos},
/// By the number of the field.
inline constexpr FieldDeclaration kFields[] = {INPUTMETA_FIELDS(INPUTMETA_FIELD_DECLARATION)};
#undef INPUTMETA_FIELD_DECLARATION

constexpr const FieldDeclaration& declaration_of(Field field) { return kFields[static_cast<size_t>(field)]; }

constexpr int32_t neutral_value(Neutral neutral, int32_t pad_token) {
  switch (neutral) {
    case Neutral::zero: return 0;
    case Neutral::minus_one: return -1;
    case Neutral::pad_token: return pad_token;
    case Neutral::no_query: return kNoQuery;
  }
  return 0;
}

}  // namespace inputmeta
