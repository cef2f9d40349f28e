// The expansions as sources of row tiles: what one thread needs of a row, loads and writes. A unit is `Unit`: one cell,
// or four where the buffer allows it. They do not check the ranges, which the host does not see: cells of a range that
// is none are not defined, but nothing is read outside the tables, nor written outside the buffer.
#pragma once

#include <cstdint>

#include "cuda/cells.h"
#include "cuda/plant.h"

namespace inputmeta::cuda {

/// A column as an unsigned number that no length exceeds if the column is past int32.
INPUTMETA_ANYWHERE inline uint32_t column_of(int64_t column) {
  return column < (int64_t{1} << 31) ? static_cast<uint32_t>(column) : uint32_t{1} << 31;
}

/// cell(0) … cell(3), or cell(0), as a unit.
template <class Unit>
struct UnitOf;
template <>
struct UnitOf<int32_t> {
  static constexpr int64_t kCells = 1;
  template <class Cell>
  INPUTMETA_ANYWHERE static int32_t make(Cell cell) {
    return cell(0);
  }
};
template <>
struct UnitOf<Cells4> {
  static constexpr int64_t kCells = 4;
  template <class Cell>
  INPUTMETA_ANYWHERE static Cells4 make(Cell cell) {
    return {{cell(0), cell(1), cell(2), cell(3)}};
  }
};

/// Whether a unit that begins at a column keeps what it holds: never.
INPUTMETA_ANYWHERE inline bool keeps_cells([[maybe_unused]] uint32_t len, [[maybe_unused]] int64_t column) {
#if INPUTMETA_PLANTED(stale_tail)
  return column_of(column) >= len;
#else
  return false;
#endif
}

struct Nothing {};

/// F-PIVOT: P0 … P0+P1, P2 … P2+P3, then -1.
template <class Unit>
struct PivotSource {
  const int32_t* pivots;  ///< [rows, 4]

  struct Row {
    uint32_t history;      ///< P0
    uint32_t history_end;  ///< P1
    uint32_t fresh;        ///< P2 - P1: cell k of the second run is this + k
    uint32_t end;          ///< P1 + P3
  };
  INPUTMETA_ANYWHERE Row row(int64_t row) const {
    const Cells4 pivot = load4(pivots + 4 * row);
    const auto at = [&](int k) { return static_cast<uint32_t>(pivot.cell[k]); };
    return {at(0), at(1), at(2) - at(1), at(1) + at(3)};
  }
  INPUTMETA_ANYWHERE Nothing fetch(const Row&, int64_t) const { return {}; }
  INPUTMETA_ANYWHERE bool keeps(const Row& row, int64_t unit) const {
    return keeps_cells(row.end, unit * UnitOf<Unit>::kCells);
  }
  INPUTMETA_ANYWHERE Unit value(const Row& row, Nothing, int64_t unit) const {
    const uint32_t column = column_of(unit * UnitOf<Unit>::kCells);
    return UnitOf<Unit>::make([&](uint32_t k) {
      const uint32_t at = column + k;
      if (at >= row.end) return -1;
      return static_cast<int32_t>((at < row.history_end ? row.history : row.fresh) + at);
    });
  }
  INPUTMETA_ANYWHERE void finish(int64_t, const Row&, int64_t) const {}
};

/// F-SWADEC: the ring slots of a window, wrapping inside the state block, then -1.
template <class Unit>
struct RingSource {
  const int32_t* offset_len;  ///< [rows, 2]
  ExactDivisor ring;          ///< B

  struct Row {
    uint32_t block;  ///< first slot of the state block
    uint32_t slot;   ///< in it
    uint32_t len;
  };
  INPUTMETA_ANYWHERE Row row(int64_t row) const {
    const auto offset = static_cast<uint32_t>(offset_len[2 * row]);
    const uint32_t slot = ring.remainder(offset);
    return {offset - slot, slot, static_cast<uint32_t>(offset_len[2 * row + 1])};
  }
  INPUTMETA_ANYWHERE Nothing fetch(const Row&, int64_t) const { return {}; }
  INPUTMETA_ANYWHERE bool keeps(const Row& row, int64_t unit) const {
    return keeps_cells(row.len, unit * UnitOf<Unit>::kCells);
  }
  INPUTMETA_ANYWHERE Unit value(const Row& row, Nothing, int64_t unit) const {
    const uint32_t column = column_of(unit * UnitOf<Unit>::kCells);
    return UnitOf<Unit>::make([&](uint32_t k) {
      const uint32_t slot = row.slot + column + k;  // below twice the ring: a window is no longer than it
      if (column + k >= row.len) return -1;
      return static_cast<int32_t>(row.block + (slot < ring.value ? slot : slot - ring.value));
    });
  }
  INPUTMETA_ANYWHERE void finish(int64_t, const Row&, int64_t) const {}
};

/// What both dense expansions have: ranges [rows, 2] in, and the lengths [rows] out if they are wanted.
struct DenseRanges {
  const int32_t* offset_len;
  int32_t* lens;  ///< or null

  struct Row {
    uint32_t offset;
    uint32_t len;
  };
  INPUTMETA_ANYWHERE Row row(int64_t row) const {
    return {static_cast<uint32_t>(offset_len[2 * row]), static_cast<uint32_t>(offset_len[2 * row + 1])};
  }
  INPUTMETA_ANYWHERE void finish(int64_t number, const Row& row, int64_t unit) const {
    if (unit == 0 && lens != nullptr) lens[number] = static_cast<int32_t>(row.len);
  }
};

/// F-CAOFF of a prompt: offset + k, then -1.
template <class Unit>
struct OffsetSource : DenseRanges {
  INPUTMETA_ANYWHERE Nothing fetch(const Row&, int64_t) const { return {}; }
  INPUTMETA_ANYWHERE bool keeps(const Row& row, int64_t unit) const {
    return keeps_cells(row.len, unit * UnitOf<Unit>::kCells);
  }
  INPUTMETA_ANYWHERE Unit value(const Row& row, Nothing, int64_t unit) const {
    const uint32_t column = column_of(unit * UnitOf<Unit>::kCells);
    return UnitOf<Unit>::make(
        [&](uint32_t k) { return column + k < row.len ? static_cast<int32_t>(row.offset + column + k) : -1; });
  }
};

/// F-CAOFF of decode: through the flattened block tables, then -1.
template <class Unit>
struct BlockSource : DenseRanges {
  const int32_t* block_tables;
  int64_t table_cells;
  ExactDivisor tokens_per_block;

  struct Fetched {
    uint32_t index;  ///< of the block of the unit's first cell
    uint32_t block;
  };
  INPUTMETA_ANYWHERE uint32_t block_at(uint32_t index, bool is_read) const {
    return is_read && index < table_cells ? static_cast<uint32_t>(block_tables[index]) : 0;
  }
  INPUTMETA_ANYWHERE Fetched fetch(const Row& row, int64_t unit) const {
    const uint32_t column = column_of(unit * UnitOf<Unit>::kCells);
    const uint32_t index = tokens_per_block.quotient(row.offset + column);
    return {index, block_at(index, column < row.len)};
  }
  INPUTMETA_ANYWHERE bool keeps(const Row& row, int64_t unit) const {
    return keeps_cells(row.len, unit * UnitOf<Unit>::kCells);
  }
  INPUTMETA_ANYWHERE Unit value(const Row& row, const Fetched& fetched, int64_t unit) const {
    const uint32_t column = column_of(unit * UnitOf<Unit>::kCells);
    const uint32_t first = row.offset + column - fetched.index * tokens_per_block.value;  // place in its block
    const uint32_t slot = fetched.block * tokens_per_block.value + first;
    if (first + UnitOf<Unit>::kCells <= tokens_per_block.value) {
      return UnitOf<Unit>::make([&](uint32_t k) { return column + k < row.len ? static_cast<int32_t>(slot + k) : -1; });
    }
    return UnitOf<Unit>::make([&](uint32_t k) { return cell_past_block(row, column + k); });
  }

 private:
  /// Where a unit reaches into other blocks, each of its cells finds its own.
  INPUTMETA_ANYWHERE int32_t cell_past_block(const Row& row, uint32_t column) const {
    if (column >= row.len) return -1;
    const uint32_t token = row.offset + column;
    const uint32_t index = tokens_per_block.quotient(token);
    const uint32_t place = token - index * tokens_per_block.value;
    return static_cast<int32_t>(block_at(index, true) * tokens_per_block.value + place);
  }
};

}  // namespace inputmeta::cuda
