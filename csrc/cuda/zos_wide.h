// The wide fields of a ZOS decode step for one thread, a buffer [rows, columns] each: block tables (F-BLOCKS), and, where
// they are wanted, the expansions of the window (F-SWADEC) and of a dense ratio (F-CAOFF). They come from the arrays of
// the step alone, not from its other fields. All rows of a sequence are much alike: a thread loads what its columns
// depend on once and stores it in each of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>

#include "core/zos_row.h"
#include "cuda/cells.h"
#include "cuda/expand.h"
#include "cuda/plant.h"
#include "cuda/zos_sequences.h"

namespace inputmeta::cuda {

inline constexpr uint32_t kStepThreads = 128;
inline constexpr uint32_t kWideLoads = 2;  ///< units of a thread that are on their way at once

enum class WideField : uint8_t { tables, window, dense };

struct ZosWide {
  WideField kind = WideField::tables;
  bool is_vector = false;          ///< four cells a store
  uint32_t blocks = 0;
  uint32_t lanes_log2 = 0;         ///< threads side by side in a row
  ExactDivisor column_tiles = {};  ///< blocks side by side in a row
  ExactDivisor row_tiles = {};     ///< blocks that share the rows of the same sequences
  int64_t tile_columns = 0;        ///< columns of a block of threads, in steps of kWideLoads units a lane
  int64_t columns = 0;
  int32_t* out = nullptr;
  int32_t* lens = nullptr;         ///< of a dense ratio: kv_ca_index_len, or null
  ZosRatio ratio = {};             ///< of a dense ratio

  INPUTMETA_ANYWHERE uint32_t cells_at_once() const { return is_vector ? 4 : 1; }

  /// Completes kind, columns, out, lens and ratio for `num_reqs` sequences of at most `longest` rows: tiles grow in
  /// columns until `limit` blocks hold them. One block at least, for the neutral row of a step without sequences.
  void plan(int64_t num_reqs, int64_t longest, int64_t limit) {
    constexpr int64_t kRowsOfABlock = 16;
    is_vector = columns % 4 == 0 && is_aligned(out);
    const int64_t units = (columns - 1) / cells_at_once() + 1;
    const auto lanes = std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(units, kStepThreads)));
    lanes_log2 = static_cast<uint32_t>(std::countr_zero(lanes));
    const int64_t sequences = kStepThreads >> lanes_log2;
    const int64_t sequence_tiles = std::max<int64_t>(1, (num_reqs + sequences - 1) / sequences);
    tile_columns = int64_t{kWideLoads * cells_at_once()} << lanes_log2;
    const auto tiles_of_columns = [&] { return (columns - 1) / tile_columns + 1; };
    if (sequence_tiles > limit) throw std::length_error("there are too many sequences for one launch");
    while (tiles_of_columns() > limit / sequence_tiles) tile_columns *= 2;
    const int64_t most = std::max<int64_t>(1, std::min<int64_t>(limit, 4096) / (sequence_tiles * tiles_of_columns()));
    const int64_t tiles_of_rows = std::clamp<int64_t>((longest + kRowsOfABlock - 1) / kRowsOfABlock, 1, most);
    column_tiles = ExactDivisor(static_cast<uint32_t>(tiles_of_columns()));
    row_tiles = ExactDivisor(static_cast<uint32_t>(tiles_of_rows));
    blocks = static_cast<uint32_t>(sequence_tiles * tiles_of_columns() * tiles_of_rows);
  }
};

/// A thread's sequence, its first row in it, its first column and where its tile's columns end.
struct ZosWidePart {
  uint32_t index;
  uint32_t first_row;
  int64_t column;
  int64_t stride;  ///< columns from one unit to the next
  int64_t end;
};

INPUTMETA_ANYWHERE inline ZosWidePart zos_wide_part(const ZosWide& wide, uint32_t block, uint32_t thread) {
  const uint32_t rest = wide.column_tiles.quotient(block);
  const uint32_t column_tile = block - rest * wide.column_tiles.value;
  const uint32_t sequence_tile = wide.row_tiles.quotient(rest);
  const uint32_t index = sequence_tile * (kStepThreads >> wide.lanes_log2) + (thread >> wide.lanes_log2);
  const uint32_t lane = thread & ((uint32_t{1} << wide.lanes_log2) - 1);
  const int64_t begin = column_tile * wide.tile_columns;
  return {index, rest - sequence_tile * wide.row_tiles.value, begin + int64_t{lane} * wide.cells_at_once(),
          int64_t{wide.cells_at_once()} << wide.lanes_log2, begin + wide.tile_columns};
}

// --- Block tables: columns right of a sequence's blocks are not written ----------------------------------------------

/// Stores `value` at `column` of every step-th row of a sequence.
template <class Unit>
INPUTMETA_ANYWHERE void zos_store_rows(const ZosWide& wide, const ZosRows& rows, int64_t column, const Unit& value,
                                       uint32_t first) {
INPUTMETA_ROLLED
  for (uint32_t row = first; row < rows.count; row += wide.row_tiles.value) {
    store_unit(wide.out + flat_cell(rows.first + row, wide.columns) + column, value);
  }
}

/// Copies kWideLoads units of a table of `count` cells into the sequence's rows.
template <class Unit>
INPUTMETA_ANYWHERE void zos_copy_units(const ZosWide& wide, const ZosWidePart& part, const ZosRows& rows,
                                       const int32_t* table, int64_t count, int64_t column) {
  constexpr int64_t kCells = UnitOf<Unit>::kCells;
  Unit units[kWideLoads] = {};
INPUTMETA_UNROLL
  for (uint32_t k = 0; k < kWideLoads; ++k) {
    if (column + k * part.stride + kCells <= count) units[k] = load_unit<Unit>(table + column + k * part.stride);
  }
INPUTMETA_UNROLL
  for (uint32_t k = 0; k < kWideLoads; ++k) {
    const int64_t at = column + k * part.stride;
    if (at + kCells <= count) {
      zos_store_rows(wide, rows, at, units[k], part.first_row);
      continue;
    }
INPUTMETA_ROLLED
    for (int64_t cell = at; cell < count; ++cell) {  // the table's last cells, fewer than a unit
      zos_store_rows(wide, rows, cell, table[cell], part.first_row);
    }
  }
}

template <class Unit>
INPUTMETA_ANYWHERE void zos_write_tables(const ZosWide& wide, const ZosSequences& sequences, const ZosWidePart& part) {
  const ZosRows rows = zos_load_rows(sequences, part.index);
  const ZosTable table = zos_load_table(sequences, part.index);
  int64_t count = table.count < wide.columns ? table.count : wide.columns;
#if INPUTMETA_PLANTED(missing_bound)
  count = part.end;
#endif
  const int64_t end = part.end < count ? part.end : count;
INPUTMETA_ROLLED
  for (int64_t column = part.column; column < end; column += kWideLoads * part.stride) {
    zos_copy_units<Unit>(wide, part, rows, table.cells, count, column);
  }
}

// --- Expansions: every column is written -----------------------------------------------------------------------------

/// Rows of a window. fetch(column) is what all rows have in common there, value(row(j), fetched, column) what row j has.
template <class Unit>
struct ZosWindowRows {
  RingSource<Unit> ring;
  uint32_t window_size;
  uint32_t q_start;
  uint32_t state_id;

  INPUTMETA_ANYWHERE typename RingSource<Unit>::Row row(uint32_t j) const {
    const uint32_t position = q_start + j;
    const uint32_t len = position < window_size ? position + 1 : window_size;
    return {state_id * ring.ring.value, ring.ring.remainder(position + 1 - len), len};
  }
  INPUTMETA_ANYWHERE Nothing fetch(int64_t) const { return {}; }
  INPUTMETA_ANYWHERE Unit value(const typename RingSource<Unit>::Row& row, Nothing, int64_t column) const {
    return ring.value(row, {}, column / UnitOf<Unit>::kCells);
  }
};

/// Rows of a dense ratio: they have the slots in common, and their own number of them.
template <class Unit>
struct ZosDenseRows {
  ZosRatio ratio;
  ZosTable table;
  uint32_t q_start;
  uint32_t longest;  ///< the number of the last row

  struct Row {
    uint32_t len;
  };
  INPUTMETA_ANYWHERE Row row(uint32_t j) const { return {zos_complete_tokens(q_start + j, ratio)}; }

  INPUTMETA_ANYWHERE Unit fetch(int64_t column) const {
    const uint32_t token = column_of(column);
    if (token >= longest) return UnitOf<Unit>::make([](uint32_t) { return 0; });
    const ExactDivisor& per_block = ratio.tokens_per_block;
    const uint32_t index = per_block.quotient(token);
    if (per_block.value == 1 && index + UnitOf<Unit>::kCells <= table.count) {
      return load_unit<Unit>(table.cells + index);
    }
    const uint32_t place = token - index * per_block.value;
    if (place + UnitOf<Unit>::kCells <= per_block.value) {
      const uint32_t slot = slot_of(index, place);
      return UnitOf<Unit>::make([&](uint32_t k) { return static_cast<int32_t>(slot + k); });
    }
    return UnitOf<Unit>::make([&](uint32_t k) {
      const uint32_t block = per_block.quotient(token + k);
      return static_cast<int32_t>(slot_of(block, token + k - block * per_block.value));
    });
  }
  INPUTMETA_ANYWHERE Unit value(const Row& row, const Unit& slots, int64_t column) const {
    const uint32_t token = column_of(column);
    if constexpr (UnitOf<Unit>::kCells == 1) {
      return token < row.len ? slots : -1;
    } else {
      return UnitOf<Unit>::make([&](uint32_t k) { return token + k < row.len ? slots.cell[k] : -1; });
    }
  }

 private:
  INPUTMETA_ANYWHERE uint32_t slot_of(uint32_t index, uint32_t place) const {
    const uint32_t block = index < table.count ? static_cast<uint32_t>(table.cells[index]) : 0;
    return block * ratio.tokens_per_block.value + place;
  }
};

template <class Unit, class Source>
INPUTMETA_ANYWHERE void zos_expand_rows(const ZosWide& wide, const ZosWidePart& part, const ZosRows& rows,
                                        const Source& source) {
  const int64_t end = part.end < wide.columns ? part.end : wide.columns;
INPUTMETA_ROLLED
  for (int64_t column = part.column; column < end; column += kWideLoads * part.stride) {
    decltype(source.fetch(column)) fetched[kWideLoads];
INPUTMETA_UNROLL
    for (uint32_t k = 0; k < kWideLoads; ++k) {
      const int64_t at = column + k * part.stride;
      fetched[k] = source.fetch(at < end ? at : column);
    }
INPUTMETA_ROLLED
    for (uint32_t j = part.first_row; j < rows.count; j += wide.row_tiles.value) {
      const auto row = source.row(j);
      int32_t* const out = wide.out + flat_cell(rows.first + j, wide.columns);
INPUTMETA_UNROLL
      for (uint32_t k = 0; k < kWideLoads; ++k) {
        const int64_t at = column + k * part.stride;
        if (at >= end || keeps_cells(row.len, at)) continue;
        store_unit(out + at, source.value(row, fetched[k], at));
      }
      if (column == 0 && wide.lens != nullptr) wide.lens[rows.first + j] = static_cast<int32_t>(row.len);
    }
  }
}

template <class Unit>
INPUTMETA_ANYWHERE void zos_write_window(const ZosWide& wide, const ZosSequences& sequences, const ZosParams& params,
                                         const ZosWidePart& part) {
  const ZosRows rows = zos_load_rows(sequences, part.index);
  const auto seqlen_q = static_cast<uint32_t>(sequences.inputs.seqlens_q[part.index]);
  const uint32_t q_start = static_cast<uint32_t>(sequences.inputs.seqlens_k[part.index]) - seqlen_q;
  const auto state_id = static_cast<uint32_t>(sequences.inputs.state_ids[part.index]);
  const ZosWindowRows<Unit> source = {{nullptr, params.ring}, params.window_size, q_start, state_id};
  zos_expand_rows<Unit>(wide, part, rows, source);
}

template <class Unit>
INPUTMETA_ANYWHERE void zos_write_dense(const ZosWide& wide, const ZosSequences& sequences, const ZosWidePart& part) {
  const ZosRows rows = zos_load_rows(sequences, part.index);
  const ZosTable table = zos_load_table(sequences, part.index);
  const auto seqlen_q = static_cast<uint32_t>(sequences.inputs.seqlens_q[part.index]);
  const auto seqlen_k = static_cast<uint32_t>(sequences.inputs.seqlens_k[part.index]);
  const ZosDenseRows<Unit> source = {wide.ratio, table, seqlen_k - seqlen_q, wide.ratio.value.quotient(seqlen_k)};
  zos_expand_rows<Unit>(wide, part, rows, source);
}

/// One of `threads` threads' part of the rows past the last sum: no slots.
template <class Unit>
INPUTMETA_ANYWHERE void zos_write_wide_tail(const ZosWide& wide, const ZosSequences& sequences, int64_t thread,
                                            int64_t threads) {
  const int64_t first = zos_load_end(sequences);
  const int64_t rows = int64_t{zos_buffer_rows(sequences)} - first;
  if (rows <= 0) return;
  int32_t* const out = wide.out + flat_cell(first, wide.columns);
  const Unit none = UnitOf<Unit>::make([](uint32_t) { return -1; });
  const int64_t cells = rows * wide.columns;
INPUTMETA_ROLLED
  for (int64_t cell = thread * UnitOf<Unit>::kCells; cell < cells; cell += threads * UnitOf<Unit>::kCells) {
    store_unit(out + cell, none);
  }
  if (wide.lens == nullptr) return;
INPUTMETA_ROLLED
  for (int64_t row = thread; row < rows; row += threads) wide.lens[first + row] = 0;
}

template <class Unit>
INPUTMETA_ANYWHERE void zos_expand_thread(const ZosWide& wide, const ZosSequences& sequences, const ZosParams& params,
                                          bool has_tail, uint32_t block, uint32_t thread) {
  const ZosWidePart part = zos_wide_part(wide, block, thread);
  if (part.index < sequences.inputs.num_reqs) {
    if (wide.kind == WideField::window) {
      zos_write_window<Unit>(wide, sequences, params, part);
    } else {
      zos_write_dense<Unit>(wide, sequences, part);
    }
  }
  if (!has_tail) return;
  const int64_t threads = int64_t{wide.blocks} * kStepThreads;
  zos_write_wide_tail<Unit>(wide, sequences, int64_t{block} * kStepThreads + thread, threads);
}

template <class Unit>
INPUTMETA_ANYWHERE void zos_tables_thread(const ZosWide& wide, const ZosSequences& sequences, uint32_t block,
                                          uint32_t thread) {
  const ZosWidePart part = zos_wide_part(wide, block, thread);
  if (part.index < sequences.inputs.num_reqs) zos_write_tables<Unit>(wide, sequences, part);
}

}  // namespace inputmeta::cuda
