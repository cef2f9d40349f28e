// The kernel of all row tiles: a source, and the buffer that it is written to.
#pragma once

#include "cuda/launch.cuh"
#include "cuda/row_tiles.h"

namespace inputmeta::cuda {

template <class Unit, class Source>
struct TileArgs {
  Source source;
  RowTiles tiles;
  Unit* out;
};

/// A kernel of its own for long rows: code that a launch does not need costs it time to fetch.
template <bool kIsLong, class Unit, class Source>
__global__ void __launch_bounds__(kTileThreads) write_tiles(const __grid_constant__ TileArgs<Unit, Source> args) {
  begin_after_previous();
  if constexpr (kIsLong) {
    write_long_tile(args.source, args.tiles, args.out, blockIdx.x, threadIdx.x);
  } else {
    write_short_tile(args.source, args.tiles, args.out, blockIdx.x, threadIdx.x);
  }
}

/// Writes `rows` rows of `cells` of `Cell` in units of `Unit`, from `source`.
template <class Unit, class Source, class Cell>
void launch_tiles(const char* name, const Queue& queue, const Source& source, int64_t rows, int64_t cells, Cell* out) {
  if (rows == 0 || cells == 0) return;
  constexpr auto kCells = static_cast<int64_t>(sizeof(Unit) / sizeof(Cell));
  const TileArgs<Unit, Source> args = {source, plan_row_tiles(rows, cells / kCells), reinterpret_cast<Unit*>(out)};
  const auto kernel = args.tiles.is_long ? &write_tiles<true, Unit, Source> : &write_tiles<false, Unit, Source>;
  launch(name, kernel, args.tiles.blocks, kTileThreads, queue, args);
}

}  // namespace inputmeta::cuda
