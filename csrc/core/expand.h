// Expansions, on demand: index tensors that a kernel reads cell by cell, from the fields that give ranges. They read
// tensors that others may have written, so every range is checked before it is followed.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>

namespace inputmeta {

/// A range that does not lie in what it points into: the fields are not those of one plan.
class ExpansionError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Columns of kv_ca_index: a multiple of 128 that holds the longest context's compressed tokens, at least 128.
int64_t dense_index_width(int64_t max_model_len, int64_t ratio);

/// kv_swa_full_index [rows, width]: P0 … P0+P1, P2 … P2+P3, then -1 (F-PIVOT). `pivots` has 4 cells a row.
void expand_pivots(std::span<const int32_t> pivots, int64_t width, std::span<int32_t> out);

/// kv_swa_index [rows, width]: the ring slots of the window, wrapping inside the state block, then -1 (F-SWADEC).
/// `offset_len` has 2 cells a row.
void expand_ring(std::span<const int32_t> offset_len, int64_t ring, int64_t width, std::span<int32_t> out);

/// Prompt kv_ca_index [rows, width]: offset + k, then -1 (F-CAOFF).
void expand_offsets(std::span<const int32_t> offset_len, int64_t width, std::span<int32_t> out);

/// Decode kv_ca_index [rows, width]: through the flattened block tables, then -1 (F-CAOFF).
void expand_blocks(std::span<const int32_t> offset_len, std::span<const int32_t> block_tables, int64_t tokens_per_block,
                   int64_t width, std::span<int32_t> out);

}  // namespace inputmeta
