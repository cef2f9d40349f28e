// What the kernels of a ZOS decode step read of one sequence. Arrays that do not agree are cut: nothing outside of them
// and of a buffer of total_q rows is read or written.
#pragma once

#include <cstdint>

#include "core/zos_arrays.h"
#include "cuda/cells.h"

namespace inputmeta::cuda {

struct ZosSequences {
  ZosInputs inputs;
  int64_t table_cells = 0;  ///< of inputs.block_tables
  uint32_t total_q = 0;
};

/// Rows of a sequence in the step.
struct ZosRows {
  uint32_t first;
  uint32_t count;
};

INPUTMETA_ANYWHERE inline ZosRows zos_load_rows(const ZosSequences& sequences, uint32_t index) {
  const auto count = static_cast<uint32_t>(sequences.inputs.seqlens_q[index]);
  const uint32_t first = static_cast<uint32_t>(sequences.inputs.cu_seqlens_q[index]) - count;
  const uint32_t left = first < sequences.total_q ? sequences.total_q - first : 0;
  return {first, count < left ? count : left};
}

/// Its cells of the flat tables.
struct ZosTable {
  const int32_t* cells;
  uint32_t count;
};

INPUTMETA_ANYWHERE inline ZosTable zos_load_table(const ZosSequences& sequences, uint32_t index) {
  const int64_t begin = sequences.inputs.block_tables_offsets[index];
  const int64_t end = sequences.inputs.block_tables_offsets[index + 1];
  const bool is_inside = begin >= 0 && begin <= end && end <= sequences.table_cells;
  return {sequences.inputs.block_tables + (is_inside ? begin : 0), is_inside ? static_cast<uint32_t>(end - begin) : 0};
}

/// Where the rows of the last sequence end: what lies behind it up to total_q is neutral (F-TAIL), and so is the one row
/// of a step without rows (I-3).
INPUTMETA_ANYWHERE inline uint32_t zos_load_end(const ZosSequences& sequences) {
  const int64_t count = sequences.inputs.num_reqs;
  return count == 0 ? 0 : static_cast<uint32_t>(sequences.inputs.cu_seqlens_q[count - 1]);
}

INPUTMETA_ANYWHERE inline uint32_t zos_buffer_rows(const ZosSequences& sequences) {
  return sequences.total_q > 0 ? sequences.total_q : 1;
}

}  // namespace inputmeta::cuda
