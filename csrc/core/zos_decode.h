// ZOS decode, stage three (section 10): the metadata kernel and the expansion of block tables, on the host. Inputs and
// outputs are those of a device kernel: arrays with a cell a sequence come in, buffers stacked by ratio go out.
#pragma once

#include <cstdint>
#include <vector>

#include "core/batch.h"
#include "core/ratios.h"
#include "core/zos_row.h"

namespace inputmeta {

/// Per-sequence arrays of a step: n cells each but where said.
struct ZosInputs {
  int64_t num_reqs = 0;
  const int32_t* seqlens_q = nullptr;
  const int32_t* seqlens_k = nullptr;
  const int32_t* cu_seqlens_q = nullptr;  ///< inclusive: cell i is the row past sequence i's last
  const int32_t* state_ids = nullptr;
  const bool* is_placeholder = nullptr;
  const int64_t* block_tables_offsets = nullptr;  ///< [n + 1], into block_tables
  const int32_t* block_tables = nullptr;          ///< flat, the blocks of F-BLOCKS of each sequence

  int64_t first_row(int64_t index) const { return index == 0 ? 0 : cu_seqlens_q[index - 1]; }
};

/// F-STACK: one buffer [n_ratio, q_stride, cells of a row], contiguous; bucket k is the prefix of its row k.
struct ZosStack {
  int32_t* address = nullptr;
  int64_t ratio_stride = 0;  ///< cells from one ratio to the next

  int32_t* bucket(size_t index) const { return address + static_cast<int64_t>(index) * ratio_stride; }
};

struct ZosOutputs {
  int32_t* positions = nullptr;
  bool* gate_force_random = nullptr;
  bool* valid_token_mask = nullptr;
  int32_t* query_indices = nullptr;
  int32_t* context_lens = nullptr;
  int32_t* state_block_idx = nullptr;
  int32_t* slot_mapping_store_swa = nullptr;
  int32_t* kv_swa_index_offset_len = nullptr;  ///< two cells a row
  ZosStack positions_c;                        ///< a bucket a ca ratio
  ZosStack slot_mapping_store_ca;              ///< a bucket a ca ratio
  ZosStack klen;                               ///< a bucket a sparse ratio
  ZosStack kv_ca_index_offset_len;             ///< a bucket a dense ratio, two cells a row
};

/// What the kernel takes by value: ZosParams and the ratios, ascending.
struct ZosConstants {
  ZosParams params;
  std::vector<ZosRatio> ca;
  std::vector<ZosRatio> sparse;
  std::vector<ZosRatio> dense;

  ZosConstants(const Config& config, const Ratios& ratios, int64_t max_num_blocks);
};

/// Throws std::invalid_argument unless the arrays agree with each other, with `total_q` rows, `columns` block-table
/// columns and `table_cells` cells of the flat tables: after that the kernels stay inside their buffers.
void check_zos_arrays(const ZosInputs& inputs, const Ratios& ratios, int64_t total_q, int64_t columns,
                      int64_t table_cells);

/// All per-row fields of all ratios but input_ids, ngram_token_ids and block_tables. A sequence at a time, each
/// independent of the others: the thread blocks of a device kernel.
void zos_decode_kernel(const ZosInputs& inputs, const ZosConstants& constants, const ZosOutputs& outputs);

/// block_tables [total_q, columns] (F-BLOCKS): the first num_blocks columns of each row; the others are not written.
void zos_block_tables_kernel(const ZosInputs& inputs, int64_t columns, int32_t* tables);

}  // namespace inputmeta
