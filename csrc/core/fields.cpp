#include "core/fields.h"

#include <algorithm>

namespace inputmeta {
namespace {

using F = Field;
using enum DType;
using enum Rows;
using enum Columns;
using enum Bucket;
using enum Paths;
using enum Neutral;

// clang-format off
constexpr FieldDeclaration kDeclarations[] = {
    {F::positions,                "positions",                int32,   query,       single, plain,  both,   zero},
    {F::input_ids,                "input_ids",                int32,   query,       single, plain,  both,   zero},
    {F::gate_force_random,        "gate_force_random",        boolean, query,       single, plain,  both,   zero},
    {F::valid_token_mask,         "valid_token_mask",         boolean, query,       single, plain,  both,   zero},
    {F::query_indices,            "query_indices",            int32,   query,       single, plain,  both,   no_query},
    {F::ngram_token_ids,          "ngram_token_ids",          int32,   query,       ngram,  plain,  both,   pad_token},
    {F::cu_seqlens_q,             "cu_seqlens_q",             int32,   boundary,    single, plain,  both,   zero},
    {F::cu_seqlens_k,             "cu_seqlens_k",             int32,   boundary,    single, plain,  both,   zero},
    {F::state_block_idx,          "state_block_idx",          int32,   sequence,    single, plain,  prompt, zero},
    {F::state_block_idx,          "state_block_idx",          int32,   query,       single, plain,  decode, zero},
    {F::slot_mapping_store_swa,   "slot_mapping_store_swa",   int32,   query,       single, plain,  both,   minus_one},
    {F::load_segments_swa,        "load_segments_swa",        int32,   segment_swa, quad,   plain,  prompt, zero},
    {F::kv_swa_full_index_pivots, "kv_swa_full_index_pivots", int32,   query,       quad,   plain,  prompt, zero},
    {F::kv_swa_index_offset_len,  "kv_swa_index_offset_len",  int32,   query,       pair,   plain,  decode, zero},
    {F::cu_compressed_seqlens_q,  "cu_compressed_seqlens_q",  int32,   boundary,    single, ca,     prompt, zero},
    {F::positions_c,              "positions_c",              int32,   compressed,  single, ca,     prompt, zero},
    {F::positions_c,              "positions_c",              int32,   query,       single, ca,     decode, zero},
    {F::slot_mapping_store_ca,    "slot_mapping_store_ca",    int32,   compressed,  single, ca,     prompt, minus_one},
    {F::slot_mapping_store_ca,    "slot_mapping_store_ca",    int32,   query,       single, ca,     decode, minus_one},
    {F::load_segments_ca,         "load_segments_ca",         int32,   segment_ca,  quad,   ca,     prompt, zero},
    {F::ks,                       "ks",                       int32,   query,       single, sparse, prompt, zero},
    {F::ke,                       "ke",                       int32,   query,       single, sparse, prompt, zero},
    {F::kv_ca_index_offset_len,   "kv_ca_index_offset_len",   int32,   query,       pair,   dense,  both,   zero},
    {F::klen,                     "klen",                     int32,   query,       single, sparse, decode, zero},
    {F::block_tables,             "block_tables",             int32,   query,       blocks, plain,  decode, zero},
    {F::context_lens,             "context_lens",             int32,   query,       single, plain,  decode, zero},

    // Truncation; the names are long.
    {F::yoco_mask_swa_index_pivots, "yoco_mask_swa_index_pivots",
     int32, query, quad, plain, mask, zero},
    {F::yoco_consumer_cu_seqlens_q, "yoco_consumer_cu_seqlens_q",
     int32, boundary, single, plain, compact, zero},
    {F::yoco_consumer_query_indices, "yoco_consumer_query_indices",
     int32, consumer, single, plain, compact, no_query},
    {F::yoco_consumer_positions, "yoco_consumer_positions",
     int32, consumer, single, plain, compact, zero},
    {F::yoco_consumer_slot_mapping_store_swa, "yoco_consumer_slot_mapping_store_swa",
     int32, consumer, single, plain, compact, minus_one},
    {F::yoco_consumer_swa_index_pivots, "yoco_consumer_swa_index_pivots",
     int32, consumer, quad, plain, compact, zero},
    {F::yoco_consumer_ks, "yoco_consumer_ks",
     int32, consumer, single, sparse, compact, zero},
    {F::yoco_consumer_ke, "yoco_consumer_ke",
     int32, consumer, single, sparse, compact, zero},
    {F::yoco_consumer_kv_ca_index_offset_len, "yoco_consumer_kv_ca_index_offset_len",
     int32, consumer, pair, dense, compact, zero},
    {F::yoco_consumer_mirror_cp_index, "yoco_consumer_mirror_cp_index",
     int32, mirrored, single, plain, compact_cp, minus_one},
    {F::yoco_consumer_mirror_cp_reverse_index, "yoco_consumer_mirror_cp_reverse_index",
     int32, consumer, single, plain, compact_cp, minus_one},
    {F::yoco_consumer_mirror_ks, "yoco_consumer_mirror_ks",
     int32, mirrored, single, sparse, compact_cp, zero},
    {F::yoco_consumer_mirror_ke, "yoco_consumer_mirror_ke",
     int32, mirrored, single, sparse, compact_cp, zero},
    {F::yoco_cp_contrib_index, "yoco_cp_contrib_index",
     int32, contributed, single, plain, compact_cp, minus_one},
    {F::yoco_cp_boundary_index, "yoco_cp_boundary_index",
     int32, mirrored, single, plain, compact_cp, minus_one},
};
// clang-format on

/// Rows that come from query rows: without these they have none either.
bool is_query_aligned(Rows rows) {
  return rows == query || rows == consumer || rows == mirrored || rows == contributed;
}

int32_t neutral_value(Neutral neutral, int32_t pad_token) {
  switch (neutral) {
    case Neutral::zero: return 0;
    case Neutral::minus_one: return -1;
    case Neutral::pad_token: return pad_token;
    case Neutral::no_query: return kNoQuery;
  }
  return 0;
}

}  // namespace

std::span<const FieldDeclaration> field_declarations() { return kDeclarations; }

std::string FieldSpec::key() const {
  return ratio == 0 ? declaration->name : std::string(declaration->name) + "." + std::to_string(ratio);
}

const Outputs::Binding* Outputs::find(Field field, int64_t ratio) const {
  for (const Binding& binding : bound_) {
    if (binding.spec.declaration->field == field && binding.spec.ratio == ratio) return &binding;
  }
  return nullptr;
}

std::span<int32_t> Outputs::int32s(Field field, int64_t ratio) const {
  const Binding* binding = find(field, ratio);
  if (binding == nullptr) return {};
  return {static_cast<int32_t*>(binding->address), static_cast<size_t>(binding->spec.cells())};
}

std::span<bool> Outputs::flags(Field field) const {
  const Binding* binding = find(field, 0);
  if (binding == nullptr) return {};
  return {static_cast<bool*>(binding->address), static_cast<size_t>(binding->spec.cells())};
}

void Outputs::write_neutral_rows(int32_t pad_token) const {
  for (const Binding& binding : bound_) {
    const FieldDeclaration& declaration = *binding.spec.declaration;
    if (!is_query_aligned(declaration.rows)) continue;
    const auto cells = static_cast<size_t>(binding.spec.cells());
    if (declaration.dtype == boolean) {
      std::fill_n(static_cast<bool*>(binding.address), cells, false);
    } else {
      std::fill_n(static_cast<int32_t*>(binding.address), cells, neutral_value(declaration.neutral, pad_token));
    }
  }
}

}  // namespace inputmeta
