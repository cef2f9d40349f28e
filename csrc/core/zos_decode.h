// ZOS decode, stage three (section 10): the metadata kernel and the expansion of block tables, on the host. Inputs and
// outputs are those of a device kernel: arrays with a cell a sequence come in, buffers stacked by ratio go out.
#pragma once

#include <cstdint>
#include <vector>

#include "core/batch.h"
#include "core/ratios.h"
#include "core/zos_arrays.h"
#include "core/zos_row.h"

namespace inputmeta {

/// What the kernel takes by value: ZosParams and the ca ratios, ascending.
struct ZosConstants {
  ZosParams params;
  std::vector<ZosBucket> buckets;

  ZosConstants(const Config& config, const Ratios& ratios, int64_t max_num_blocks);
};

/// Throws std::invalid_argument unless the arrays agree with each other, with `total_q` rows, `columns` block-table
/// columns and `table_cells` cells of the flat tables: after that the kernels stay inside their buffers. A step that is
/// `shorter` (F-VARLEN) has at most total_q rows, and one or more in each sequence (I-33).
void check_zos_arrays(const ZosInputs& inputs, const Ratios& ratios, int64_t total_q, int64_t columns,
                      int64_t table_cells, bool is_shorter = false);

/// A divisor, or another factor, of the row formulas: min(value, 2^32 - 1), see ZosParams.
uint32_t zos_cut(int64_t value);

/// All per-row fields of all ratios but input_ids, ngram_token_ids and block_tables. A sequence at a time, each
/// independent of the others: the thread blocks of a device kernel. Rows past the last sum are neutral (F-TAIL), and so
/// is the one row of a step without rows (I-3).
void zos_decode_kernel(const ZosInputs& inputs, int64_t total_q, const ZosConstants& constants, const ZosOutputs& outputs);

/// cu_seqlens_q, input_ids and ngram_token_ids, with the same neutral rows.
void zos_copies_kernel(const ZosInputs& inputs, int64_t total_q, const ZosCopies& copies);

/// block_tables [total_q, columns] (F-BLOCKS): the first num_blocks columns of each row; the others are not written.
void zos_block_tables_kernel(const ZosInputs& inputs, int64_t columns, int32_t* tables);

}  // namespace inputmeta
