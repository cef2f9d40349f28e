// How threads are dealt out over a buffer of rows: blocks of threads take tiles, and a thread writes several units (a
// cell, or four), whose loads are all on their way before the first is waited for. They lie in one row where rows are
// long, so that what they depend on is loaded once, else one in each of several rows.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>

#include "core/exact_divisor.h"
#include "cuda/cells.h"
#include "cuda/sequence_tiles.h"

namespace inputmeta::cuda {

inline constexpr uint32_t kTileThreads = 256;
inline constexpr uint32_t kRowsAtOnce = 4;
inline constexpr uint32_t kUnitsAtOnce = 2;  ///< of a thread in a long row
inline constexpr int64_t kLongRow = int64_t{kUnitsAtOnce} * kTileThreads;

struct RowTiles {
  int64_t rows = 0;
  int64_t units = 0;        ///< of a row
  uint32_t lanes_log2 = 0;  ///< threads of a block that lie side by side in a row
  int64_t tile_rows = 0;
  bool is_long = false;     ///< rows of kLongRow units and more: a tile is that long
  ExactDivisor unit_tiles;  ///< tiles side by side in a row
  uint32_t blocks = 0;
};

/// Tiles for rows >= 1 of units >= 1: they grow in rows until a grid of `limit` blocks holds them.
inline RowTiles plan_row_tiles(int64_t rows, int64_t units, int64_t limit = kGridLimit) {
  RowTiles tiles;
  tiles.rows = rows;
  tiles.units = units;
  const auto lanes = std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(units, kTileThreads)));
  tiles.lanes_log2 = static_cast<uint32_t>(std::countr_zero(lanes));
  tiles.is_long = units >= kLongRow;
  const int64_t unit_tiles = (units - 1) / (tiles.is_long ? kLongRow : static_cast<int64_t>(lanes)) + 1;
  if (unit_tiles > limit) throw std::length_error("a row is too long for one launch");
  tiles.unit_tiles = ExactDivisor(static_cast<uint32_t>(unit_tiles));
  tiles.tile_rows = tiles.is_long ? 1 : int64_t{kRowsAtOnce} * (kTileThreads >> tiles.lanes_log2);
  const auto row_tiles = [&] { return (rows - 1) / tiles.tile_rows + 1; };
  while (row_tiles() > limit / unit_tiles) tiles.tile_rows *= 2;
  tiles.blocks = static_cast<uint32_t>(row_tiles() * unit_tiles);
  return tiles;
}

/// The rows of a block's tile, and which tile of their units it is.
struct TilePart {
  int64_t begin;
  int64_t end;
  uint32_t unit_tile;
};

INPUTMETA_ANYWHERE inline TilePart tile_part(const RowTiles& tiles, uint32_t block) {
  const uint32_t row_tile = tiles.unit_tiles.quotient(block);
  const int64_t begin = row_tile * tiles.tile_rows;
  const int64_t end = tiles.rows - begin < tiles.tile_rows ? tiles.rows : begin + tiles.tile_rows;
  return {begin, end, block - row_tile * tiles.unit_tiles.value};
}

// One thread's part. `source` gives row(row), what a row's units depend on; fetch(row, unit), what has to be loaded for
// a unit; value(row, fetched, unit); and finish(row number, row, unit) for what goes elsewhere.

/// Where tiles.is_long: several units of each row of the tile.
template <class Unit, class Source>
INPUTMETA_ANYWHERE void write_long_tile(const Source& source, const RowTiles& tiles, Unit* out, uint32_t block,
                                        uint32_t thread) {
  const TilePart part = tile_part(tiles, block);
  const int64_t first = part.unit_tile * kLongRow + thread;
INPUTMETA_ROLLED
  for (int64_t row = part.begin; row < part.end; ++row) {
    const auto state = source.row(row);
    decltype(source.fetch(state, first)) fetched[kUnitsAtOnce];
INPUTMETA_UNROLL
    for (uint32_t k = 0; k < kUnitsAtOnce; ++k) {
      const int64_t unit = first + k * kTileThreads;
      fetched[k] = source.fetch(state, unit < tiles.units ? unit : tiles.units - 1);
    }
INPUTMETA_UNROLL
    for (uint32_t k = 0; k < kUnitsAtOnce; ++k) {
      const int64_t unit = first + k * kTileThreads;
      if (unit >= tiles.units || source.keeps(state, unit)) continue;
      out[flat_cell(row, tiles.units) + unit] = source.value(state, fetched[k], unit);
      source.finish(row, state, unit);
    }
  }
}

/// Elsewhere: one unit in each of several rows of the tile.
template <class Unit, class Source>
INPUTMETA_ANYWHERE void write_short_tile(const Source& source, const RowTiles& tiles, Unit* out, uint32_t block,
                                         uint32_t thread) {
  const TilePart part = tile_part(tiles, block);
  const uint32_t lane = thread & ((uint32_t{1} << tiles.lanes_log2) - 1);
  const int64_t unit = (int64_t{part.unit_tile} << tiles.lanes_log2) + lane;
  if (unit >= tiles.units) return;
  const int64_t end = part.end;
  const int64_t step = kTileThreads >> tiles.lanes_log2;
INPUTMETA_ROLLED
  for (int64_t row = part.begin + (thread >> tiles.lanes_log2); row < end; row += kRowsAtOnce * step) {
    decltype(source.row(row)) states[kRowsAtOnce];
    decltype(source.fetch(states[0], unit)) fetched[kRowsAtOnce];
    // Past the end the last row is loaded again: a branch would part the loads.
INPUTMETA_UNROLL
    for (uint32_t k = 0; k < kRowsAtOnce; ++k) states[k] = source.row(row + k * step < end ? row + k * step : end - 1);
INPUTMETA_UNROLL
    for (uint32_t k = 0; k < kRowsAtOnce; ++k) fetched[k] = source.fetch(states[k], unit);
INPUTMETA_UNROLL
    for (uint32_t k = 0; k < kRowsAtOnce; ++k) {
      if (row + k * step >= end || source.keeps(states[k], unit)) continue;
      out[flat_cell(row + k * step, tiles.units) + unit] = source.value(states[k], fetched[k], unit);
      source.finish(row + k * step, states[k], unit);
    }
  }
}

}  // namespace inputmeta::cuda
