// The expansion of block tables (F-BLOCKS) for one thread: the table of a sequence, once a row. A thread loads cells
// once and stores them in all rows of its sequence. Columns right of a sequence's blocks are not written.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>

#include "core/zos_arrays.h"
#include "cuda/cells.h"
#include "cuda/plant.h"
#include "cuda/sequence_tiles.h"

namespace inputmeta::cuda {

inline constexpr uint32_t kTablesThreads = 128;
inline constexpr uint32_t kTableLoads = 2;  ///< units of a thread that are on their way at once

struct ZosTablesArgs {
  ZosInputs inputs;
  int64_t table_cells = 0;  ///< of inputs.block_tables
  int32_t* out = nullptr;   ///< [total_q, columns]
  int64_t columns = 0;
  uint32_t total_q = 0;
  uint32_t lanes_log2 = 0;     ///< threads side by side in a row
  int64_t tile_columns = 0;    ///< columns of a block of threads, in steps of kTableLoads units a lane
  ExactDivisor column_tiles;   ///< blocks side by side in a row
  ExactDivisor row_tiles;      ///< blocks that share the rows of the same sequences
  bool is_vector = false;      ///< four cells a store
  uint32_t blocks = 0;

  INPUTMETA_ANYWHERE uint32_t cells_at_once() const { return is_vector ? 4 : 1; }
};

/// Completes the launch of `args`, which has its arrays: tiles grow in columns until a grid of `limit` blocks holds
/// them.
inline void plan_zos_tables(ZosTablesArgs& args, int64_t longest, int64_t limit = kGridLimit) {
  constexpr int64_t kRowsOfABlock = 16;
  args.is_vector = args.columns % 4 == 0 && is_aligned(args.out);
  const int64_t units = (args.columns - 1) / args.cells_at_once() + 1;
  const auto lanes = std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(units, kTablesThreads)));
  args.lanes_log2 = static_cast<uint32_t>(std::countr_zero(lanes));
  const int64_t sequences = kTablesThreads >> args.lanes_log2;
  const int64_t sequence_tiles = (args.inputs.num_reqs + sequences - 1) / sequences;
  if (sequence_tiles == 0) return;
  args.tile_columns = int64_t{kTableLoads * args.cells_at_once()} << args.lanes_log2;
  const auto column_tiles = [&] { return (args.columns - 1) / args.tile_columns + 1; };
  if (sequence_tiles > limit) throw std::length_error("there are too many sequences for one launch");
  while (column_tiles() > limit / sequence_tiles) args.tile_columns *= 2;
  const int64_t most = std::max<int64_t>(1, 4096 / (sequence_tiles * column_tiles()));
  const int64_t row_tiles = std::clamp<int64_t>((longest + kRowsOfABlock - 1) / kRowsOfABlock, 1, most);
  args.column_tiles = ExactDivisor(static_cast<uint32_t>(column_tiles()));
  args.row_tiles = ExactDivisor(static_cast<uint32_t>(row_tiles));
  args.blocks = static_cast<uint32_t>(sequence_tiles * column_tiles() * row_tiles);
}

/// Rows and blocks of one sequence, cut to what the arrays have.
struct ZosTableRows {
  uint32_t first_row;
  uint32_t rows;
  const int32_t* cells;
  int64_t count;
};

INPUTMETA_ANYWHERE inline ZosTableRows zos_load_table(const ZosTablesArgs& args, uint32_t index) {
  const int64_t begin = args.inputs.block_tables_offsets[index];
  const int64_t end = args.inputs.block_tables_offsets[index + 1];
  const auto rows = static_cast<uint32_t>(args.inputs.seqlens_q[index]);
  const uint32_t first_row = static_cast<uint32_t>(args.inputs.cu_seqlens_q[index]) - rows;
  const bool is_inside = begin >= 0 && begin <= end && end <= args.table_cells && first_row < args.total_q;
  if (!is_inside) return {0, 0, nullptr, 0};
  const uint32_t left = args.total_q - first_row;
  const int64_t count = end - begin < args.columns ? end - begin : args.columns;
  return {first_row, rows < left ? rows : left, args.inputs.block_tables + begin, count};
}

/// Stores `value` at `column` of every step-th row of a sequence.
template <class Unit>
INPUTMETA_ANYWHERE void zos_store_rows(const ZosTablesArgs& args, const ZosTableRows& table, int64_t column,
                                       const Unit& value, uint32_t first, uint32_t step) {
  for (uint32_t row = first; row < table.rows; row += step) {
    store_unit(args.out + flat_cell(table.first_row + row, args.columns) + column, value);
  }
}

/// Copies kTableLoads units of a table, `stride` columns apart, into the sequence's rows from `first` on.
template <class Unit>
INPUTMETA_ANYWHERE void zos_copy_units(const ZosTablesArgs& args, const ZosTableRows& table, int64_t column,
                                       int64_t stride, uint32_t first) {
  constexpr auto kCells = static_cast<int64_t>(sizeof(Unit) / sizeof(int32_t));
  Unit units[kTableLoads] = {};
INPUTMETA_UNROLL
  for (uint32_t k = 0; k < kTableLoads; ++k) {
    if (column + k * stride + kCells <= table.count) units[k] = load_unit<Unit>(table.cells + column + k * stride);
  }
INPUTMETA_UNROLL
  for (uint32_t k = 0; k < kTableLoads; ++k) {
    const int64_t at = column + k * stride;
    if (at + kCells <= table.count) {
      zos_store_rows(args, table, at, units[k], first, args.row_tiles.value);
      continue;
    }
    for (int64_t cell = at; cell < table.count; ++cell) {  // the table's last cells, fewer than a unit
      zos_store_rows(args, table, cell, table.cells[cell], first, args.row_tiles.value);
    }
  }
}

/// `Unit` is what args.cells_at_once() says: a kernel of its own for each.
template <class Unit>
INPUTMETA_ANYWHERE void zos_tables_thread(const ZosTablesArgs& args, uint32_t block, uint32_t thread) {
  const uint32_t rest = args.column_tiles.quotient(block);
  const uint32_t column_tile = block - rest * args.column_tiles.value;
  const uint32_t sequence_tile = args.row_tiles.quotient(rest);
  const uint32_t row_tile = rest - sequence_tile * args.row_tiles.value;
  const uint32_t index = sequence_tile * (kTablesThreads >> args.lanes_log2) + (thread >> args.lanes_log2);
  const uint32_t lane = thread & ((uint32_t{1} << args.lanes_log2) - 1);
  if (index >= args.inputs.num_reqs) return;
  ZosTableRows table = zos_load_table(args, index);
  const int64_t begin = column_tile * args.tile_columns;
#if INPUTMETA_PLANTED(missing_bound)
  table.count = begin + args.tile_columns;
#endif
  const int64_t end = begin + args.tile_columns < table.count ? begin + args.tile_columns : table.count;
  constexpr auto kCells = static_cast<int64_t>(sizeof(Unit) / sizeof(int32_t));
  const int64_t stride = kCells << args.lanes_log2;
  for (int64_t column = begin + lane * kCells; column < end; column += kTableLoads * stride) {
    zos_copy_units<Unit>(args, table, column, stride, row_tile);
  }
}

}  // namespace inputmeta::cuda
