// Kernels of whole buffers on the host: expansions and gathers against the core, tile plans past the grid's limits, the
// division that all of them use, and the scan.
#include <algorithm>
#include <limits>
#include <numeric>

#include "core/expand.h"
#include "core/mirror.h"
#include "cuda/cumsum.h"
#include "cuda/expand.h"
#include "cuda/gather_rows.h"
#include "cuda/row_tiles.h"
#include "emulate.h"

namespace inputmeta::test {
namespace {

using namespace inputmeta::cuda;
using Row = std::vector<int32_t>;

// --- Division --------------------------------------------------------------------------------------------------------

void check_divisor(uint32_t divisor, uint32_t number) {
  const ExactDivisor by(divisor);
  if (by.quotient(number) == number / divisor && by.remainder(number) == number % divisor) return;
  report_failure(std::to_string(number) + " / " + std::to_string(divisor), std::source_location::current());
}

TEST(any_divisor_is_exact_below_2_to_the_31) {
  Draws draw(1);
  constexpr uint32_t kLargest = std::numeric_limits<int32_t>::max();
  std::vector<uint32_t> divisors = {1, 2, 3, 5, 7, 11, 128, kLargest - 1, kLargest, kLargest + 1, kLargest + 2};
  for (uint32_t bit = 2; bit < 32; ++bit) {
    for (const uint32_t near : {(1U << bit) - 1, 1U << bit, (1U << bit) + 1}) divisors.push_back(near);
  }
  divisors.push_back(std::numeric_limits<uint32_t>::max());
  for (int k = 0; k < 2000; ++k) divisors.push_back(static_cast<uint32_t>(draw(1, 1LL << draw(1, 31))));
  for (const uint32_t divisor : divisors) {
    for (const uint32_t number : {0U, 1U, divisor - 1, divisor, divisor + 1, kLargest - 1, kLargest}) {
      if (number <= kLargest) check_divisor(divisor, number);
    }
    for (int k = 0; k < 200; ++k) {
      const auto multiple = static_cast<uint64_t>(draw(0, kLargest)) / divisor * divisor;
      check_divisor(divisor, static_cast<uint32_t>(multiple));
      if (multiple > 0) check_divisor(divisor, static_cast<uint32_t>(multiple - 1));
      check_divisor(divisor, static_cast<uint32_t>(draw(0, kLargest)));
    }
  }
}

// --- Tiles -----------------------------------------------------------------------------------------------------------

/// The kernel's choice.
template <class Unit, class Source>
void write_tile(const Source& source, const RowTiles& tiles, Unit* out, uint32_t block, uint32_t thread) {
  if (tiles.is_long) {
    write_long_tile(source, tiles, out, block, thread);
  } else {
    write_short_tile(source, tiles, out, block, thread);
  }
}

/// Writes 1 to each cell it is asked for.
struct Ones {
  int row(int64_t) const { return 0; }
  int fetch(int, int64_t) const { return 0; }
  bool keeps(int, int64_t) const { return false; }
  int32_t value(int, int, int64_t) const { return 1; }
  void finish(int64_t, int, int64_t) const {}
};

TEST(every_cell_has_a_thread_however_small_the_grid_may_be) {
  for (const int64_t rows : {1, 2, 5, 31, 700}) {
    for (const int64_t units : {1, 2, 3, 32, 33, 255, 257, 600}) {
      for (const int64_t limit : {int64_t{3}, int64_t{10}, kGridLimit}) {
        const RowTiles tiles = plan_row_tiles(rows, units, limit);
        CHECK(tiles.blocks <= limit);
        Buffer out(rows * units);
        for_each_thread(tiles.blocks, kTileThreads, [&](uint32_t block, uint32_t thread) {
          write_tile(Ones{}, tiles, out.data(), block, thread);
        });
        check_same(out.values(), Row(static_cast<size_t>(rows * units), 1), "tiles");
      }
    }
  }
}

TEST(rows_past_the_grids_limit_grow_the_tiles) {
  const int64_t rows = int64_t{1} << 40;
  const RowTiles tiles = plan_row_tiles(rows, 1000);
  CHECK(tiles.blocks <= kGridLimit);
  CHECK(Wide{tiles.blocks / tiles.unit_tiles.value} * tiles.tile_rows >= rows);
  const RowTiles narrow = plan_row_tiles(kGridLimit, 1);
  CHECK(narrow.blocks <= kGridLimit);
  bool is_refused = false;
  try {
    plan_row_tiles(1, int64_t{1} << 50);
  } catch (const std::length_error&) {
    is_refused = true;
  }
  CHECK(is_refused);
}

TEST(a_cell_past_2_to_the_31_has_its_own_place) {
  CHECK_EQ(Wide(flat_cell(1 << 20, 1 << 20)), Wide{1} << 40);
  CHECK_EQ(Wide(flat_cell(65535, 32769)), Wide{65535} * 32769);
}

// --- Expansions ------------------------------------------------------------------------------------------------------

template <class Unit, class Source>
void run_tiles(const Source& source, int64_t rows, int64_t width, int32_t* out) {
  const RowTiles tiles = plan_row_tiles(rows, width / UnitOf<Unit>::kCells);
  for_each_thread(tiles.blocks, kTileThreads, [&](uint32_t block, uint32_t thread) {
    write_tile(source, tiles, reinterpret_cast<Unit*>(out), block, thread);
  });
}

/// Fails a check unless source(Unit{}) expands to `expected`, in cells and, where the width allows it, in fours.
template <class MakeSource>
void check_expansion(MakeSource source, int64_t rows, int64_t width, const Row& expected, const char* what) {
  Buffer cells(rows * width, 1);
  run_tiles<int32_t>(source(int32_t{}), rows, width, cells.data());
  check_same(cells.values(), expected, what);
  if (width % 4 != 0) return;
  Buffer fours(rows * width);
  run_tiles<Cells4>(source(Cells4{}), rows, width, fours.data());
  check_same(fours.values(), expected, std::string(what) + " by fours");
}

int64_t draw_width(Draws& draw) { return draw(0, 2) == 0 ? draw(1, 40) : 4 * draw(1, 300); }

TEST(pivots_expand_as_on_the_host) {
  Draws draw(2);
  for (int batch = 0; batch < 150; ++batch) {
    const int64_t rows = draw(1, 70);
    const int64_t width = draw_width(draw);
    Buffer pivots(4 * rows, draw(0, 1));
    for (int64_t row = 0; row < rows; ++row) {
      int32_t* const pivot = pivots.data() + 4 * row;
      pivot[1] = static_cast<int32_t>(draw(0, width));
      pivot[3] = static_cast<int32_t>(draw(0, width - pivot[1]));
      pivot[0] = static_cast<int32_t>(draw(0, kInt32Max - width));
      pivot[2] = static_cast<int32_t>(draw(0, kInt32Max - width));
    }
    Row expected(static_cast<size_t>(rows * width));
    expand_pivots(pivots.values(), width, expected);
    const auto source = [&]<class Unit>(Unit) { return PivotSource<Unit>{pivots.data()}; };
    check_expansion(source, rows, width, expected, "kv_swa_full_index");
  }
}

TEST(windows_expand_as_on_the_host) {
  Draws draw(3);
  for (int batch = 0; batch < 150; ++batch) {
    const int64_t rows = draw(1, 70);
    const int64_t width = draw_width(draw);
    const int64_t ring = draw(0, 3) == 0 ? int64_t{1} << draw(11, 20) : width + draw(0, 500);
    Row windows;
    for (int64_t row = 0; row < rows; ++row) {
      windows.push_back(static_cast<int32_t>(draw(0, (kInt32Max - ring) / ring) * ring + draw(0, ring - 1)));
      windows.push_back(static_cast<int32_t>(draw(0, width)));
    }
    Row expected(static_cast<size_t>(rows * width));
    expand_ring(windows, ring, width, expected);
    const ExactDivisor by_ring(static_cast<uint32_t>(ring));
    const auto source = [&]<class Unit>(Unit) { return RingSource<Unit>{windows.data(), by_ring}; };
    check_expansion(source, rows, width, expected, "kv_swa_index");
  }
}

TEST(dense_ranges_expand_as_on_the_host) {
  Draws draw(4);
  for (int batch = 0; batch < 300; ++batch) {
    const int64_t rows = draw(1, 20);
    const int64_t width = draw_width(draw);
    const int64_t tokens = draw(0, 2) == 0 ? draw(1, 9) : int64_t{1} << draw(0, 8);
    const int64_t columns = width / tokens + draw(1, 3);
    Row tables;
    for (int64_t k = 0; k < rows * columns; ++k) tables.push_back(static_cast<int32_t>(draw(0, kInt32Max / tokens - 1)));
    Row ranges;
    for (int64_t row = 0; row < rows; ++row) {
      ranges.push_back(static_cast<int32_t>(row * columns * tokens));
      ranges.push_back(static_cast<int32_t>(draw(0, 2) == 0 ? width : draw(0, width)));
    }
    Row expected(static_cast<size_t>(rows * width));
    Row lens;
    for (size_t row = 0; row < ranges.size() / 2; ++row) lens.push_back(ranges[2 * row + 1]);
    Buffer out_lens(rows);
    const DenseRanges dense = {ranges.data(), out_lens.data()};
    expand_blocks(ranges, tables, tokens, width, expected);
    const ExactDivisor by_tokens(static_cast<uint32_t>(tokens));
    const auto blocks = [&]<class Unit>(Unit) {
      return BlockSource<Unit>{dense, tables.data(), static_cast<int64_t>(tables.size()), by_tokens};
    };
    check_expansion(blocks, rows, width, expected, "kv_ca_index of decode");
    check_same(out_lens.values(), lens, "kv_ca_index_len");
    expand_offsets(ranges, width, expected);
    const auto offsets = [&]<class Unit>(Unit) { return OffsetSource<Unit>{{ranges.data(), nullptr}}; };
    check_expansion(offsets, rows, width, expected, "kv_ca_index of a prompt");
  }
}

/// What a device cannot refuse stays inside: nothing but the buffer is written, nothing but the tables is read.
TEST(ranges_that_are_none_stay_inside) {
  Draws draw(5);
  constexpr int32_t kLow = std::numeric_limits<int32_t>::min();
  constexpr int32_t kHigh = std::numeric_limits<int32_t>::max();
  for (int batch = 0; batch < 200; ++batch) {
    const int64_t rows = draw(1, 9);
    const int64_t width = 4 * draw(1, 40);
    Row cells;
    for (int64_t k = 0; k < 4 * rows; ++k) {
      const int64_t choice = draw(0, 3);
      cells.push_back(static_cast<int32_t>(choice == 0 ? kLow : choice == 1 ? kHigh : draw(kLow, kHigh)));
    }
    const Row tables = {5, kHigh, -3};
    const ExactDivisor by(static_cast<uint32_t>(draw(1, 200)));
    Buffer out(rows * width);
    run_tiles<Cells4>(PivotSource<Cells4>{cells.data()}, rows, width, out.data());
    run_tiles<Cells4>(RingSource<Cells4>{cells.data(), by}, rows, width, out.data());
    run_tiles<Cells4>(BlockSource<Cells4>{{cells.data(), nullptr}, tables.data(), 3, by}, rows, width, out.data());
    run_tiles<int32_t>(BlockSource<int32_t>{{cells.data(), nullptr}, tables.data(), 3, by}, rows, width, out.data());
  }
}

TEST(columns_past_int32_are_right_of_every_length) {
  const Row ranges = {0, std::numeric_limits<int32_t>::max()};
  const OffsetSource<int32_t> source = {{ranges.data(), nullptr}};
  const auto row = source.row(0);
  CHECK_EQ(source.value(row, {}, kInt32Max - 1), static_cast<int32_t>(kInt32Max - 1));
  for (const int64_t column : {kInt32Max, kInt32Max + 1, int64_t{1} << 32, (int64_t{1} << 32) + 1, int64_t{1} << 40}) {
    CHECK_EQ(source.value(row, {}, column), -1);
  }
}

// --- Gather by mirror index ------------------------------------------------------------------------------------------

template <class Unit>
void run_gather(const GatherSource<Unit>& source, int64_t rows, Unit* out) {
  const RowTiles tiles = plan_row_tiles(rows, source.units);
  for_each_thread(tiles.blocks, kTileThreads,
                  [&](uint32_t block, uint32_t thread) { write_tile(source, tiles, out, block, thread); });
}

TEST(rows_are_gathered_as_on_the_host) {
  Draws draw(6);
  for (int batch = 0; batch < 150; ++batch) {
    const int64_t source_rows = draw(1, 90);
    const int64_t columns = draw(0, 1) == 0 ? 1 : draw(1, 24);
    const int64_t count = draw(1, 150);
    Buffer source(source_rows * columns);
    for (int64_t k = 0; k < source_rows * columns; ++k) source.data()[k] = static_cast<int32_t>(draw(-9, 1 << 30));
    Row rows;
    for (int64_t k = 0; k < count; ++k) rows.push_back(static_cast<int32_t>(draw(-2, source_rows - 1)));
    Row expected(static_cast<size_t>(count * columns));
    gather_rows(source.data(), columns, rows, 998244353, expected.data());
    Buffer out(count * columns);
    run_gather<int32_t>({source.data(), source_rows, columns, rows.data(), 998244353}, count, out.data());
    check_same(out.values(), expected, "gather");
    if (columns % 4 != 0) continue;
    Buffer fours(count * columns);
    const Cells4 padding = {{998244353, 998244353, 998244353, 998244353}};
    const auto* const from = reinterpret_cast<const Cells4*>(source.data());
    run_gather<Cells4>({from, source_rows, columns / 4, rows.data(), padding}, count,
                       reinterpret_cast<Cells4*>(fours.data()));
    check_same(fours.values(), expected, "gather by fours");
  }
}

TEST(flags_are_gathered_and_a_row_past_the_source_is_padding) {
  const bool flags[] = {true, false, true};
  const Row rows = {2, -1, 1, 0, 3, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()};
  const auto out = std::make_unique<bool[]>(rows.size());
  run_gather<bool>({flags, 3, 1, rows.data(), false}, static_cast<int64_t>(rows.size()), out.get());
  CHECK_EQ(Row(out.get(), out.get() + rows.size()), Row{1, 0, 0, 1, 0, 0, 0});
}

// --- Inclusive sums --------------------------------------------------------------------------------------------------

/// A warp's scan, its lanes in lock-step.
void scan_warp(uint32_t* values) {
  for (uint32_t distance = 1; distance < kWarp; distance *= 2) {
    std::vector<uint32_t> before(values, values + kWarp);
    for (uint32_t lane = 0; lane < kWarp; ++lane) {
      const uint32_t received = lane >= distance ? before[lane - distance] : before[lane];
      values[lane] = scan_step(before[lane], received, lane, distance);
    }
  }
}

/// The kernel, round by round.
void run_cumsum(const int32_t* cells, int64_t count, int32_t* out) {
  const bool is_vector = is_aligned(cells) && is_aligned(out);
  uint32_t carry = 0;
  for (int64_t round = 0; round < count; round += kScanRound) {
    std::vector<ScanCells> own;
    std::vector<uint32_t> inclusive;
    for (uint32_t thread = 0; thread < kScanThreads; ++thread) {
      own.push_back(scan_load(cells, count, round + 4 * thread, is_vector));
      inclusive.push_back(own.back().total());
    }
    std::vector<uint32_t> warps;
    for (uint32_t warp = 0; warp < kWarp; ++warp) {
      scan_warp(inclusive.data() + warp * kWarp);
      warps.push_back(inclusive[warp * kWarp + kWarp - 1]);
    }
    scan_warp(warps.data());
    for (uint32_t thread = 0; thread < kScanThreads; ++thread) {
      const uint32_t warp = thread / kWarp;
      const uint32_t before = carry + (warp == 0 ? 0 : warps[warp - 1]) + inclusive[thread] - own[thread].total();
      scan_store(out, count, round + 4 * thread, is_vector, own[thread], before);
    }
    carry = scan_carry(carry, warps.back());
  }
}

TEST(sums_of_any_number_of_cells) {
  Draws draw(7);
  for (const int64_t count : {1, 3, 4, 31, 127, 128, 129, 4095, 4096, 4097, 12289, 65536, 70001}) {
    for (const int64_t shift : {0, 1}) {
      Buffer cells(count, shift);
      for (int64_t k = 0; k < count; ++k) cells.data()[k] = static_cast<int32_t>(draw(0, 9));
      Row expected(static_cast<size_t>(count));
      std::partial_sum(cells.data(), cells.data() + count, expected.begin());
      Buffer out(count);
      run_cumsum(cells.data(), count, out.data());
      check_same(out.values(), expected, "sums of " + std::to_string(count));
    }
  }
}

}  // namespace
}  // namespace inputmeta::test
