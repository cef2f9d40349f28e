// The output fields, declared once: name, type, shape rule, paths, and the neutral value of a row that stands for none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/batch.h"
#include "core/zos_row.h"

namespace inputmeta {

enum class Field : uint8_t {
  positions,
  input_ids,
  gate_force_random,
  valid_token_mask,
  query_indices,
  ngram_token_ids,
  cu_seqlens_q,
  cu_seqlens_k,
  state_block_idx,
  slot_mapping_store_swa,
  load_segments_swa,
  kv_swa_full_index_pivots,
  kv_swa_index_offset_len,
  cu_compressed_seqlens_q,
  positions_c,
  slot_mapping_store_ca,
  load_segments_ca,
  ks,
  ke,
  kv_ca_index_offset_len,
  klen,
  block_tables,
  context_lens,
  yoco_mask_swa_index_pivots,
  yoco_consumer_cu_seqlens_q,
  yoco_consumer_query_indices,
  yoco_consumer_positions,
  yoco_consumer_slot_mapping_store_swa,
  yoco_consumer_swa_index_pivots,
  yoco_consumer_ks,
  yoco_consumer_ke,
  yoco_consumer_kv_ca_index_offset_len,
  yoco_consumer_mirror_cp_index,
  yoco_consumer_mirror_cp_reverse_index,
  yoco_consumer_mirror_ks,
  yoco_consumer_mirror_ke,
  yoco_cp_contrib_index,
  yoco_cp_boundary_index,
};

enum class DType : uint8_t { int32, boolean };

/// What a row of the field stands for; it decides how many there are. consumer: a row that truncation keeps; mirrored:
/// a row of this rank's mirror of these; contributed: a row that a rank contributes to them.
enum class Rows : uint8_t {
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

/// The paths that fill the field; the last three: a prompt step that is truncated, compact_cp with cp_size > 1.
enum class Paths : uint8_t { prompt, decode, both, mask, compact, compact_cp };

/// What a query row holds when the batch has no query rows (I-3).
enum class Neutral : uint8_t { zero, minus_one, pad_token, no_query };

struct FieldDeclaration {
  Field field;
  const char* name;
  DType dtype;
  Rows rows;
  Columns columns;
  Bucket bucket;
  Paths paths;
  Neutral neutral;
};

std::span<const FieldDeclaration> field_declarations();

/// One tensor to allocate: `columns` is -1 for a field of one dimension.
struct FieldSpec {
  const FieldDeclaration* declaration;
  int64_t ratio;  ///< the bucket; 0 without buckets
  int64_t rows;
  int64_t columns;

  int64_t cells() const { return columns < 0 ? rows : rows * columns; }
  /// The name in a flat dictionary: "positions", "klen.4".
  std::string key() const;
};

/// Where the fields of one step are written: addresses that the caller has checked against the specs.
class Outputs {
 public:
  void bind(const FieldSpec& spec, void* address) { bound_.push_back({spec, address}); }

  /// Cells of an int32 field, rows laid end to end; empty when the path does not have the field.
  std::span<int32_t> int32s(Field field, int64_t ratio = 0) const;
  /// Cells of a bool field.
  std::span<bool> flags(Field field) const;
  /// Writes the neutral row into every query-aligned field: for a batch without query rows.
  void write_neutral_rows(int32_t pad_token) const;

 private:
  struct Binding {
    FieldSpec spec;
    void* address;
  };
  const Binding* find(Field field, int64_t ratio) const;

  std::vector<Binding> bound_;
};

}  // namespace inputmeta
