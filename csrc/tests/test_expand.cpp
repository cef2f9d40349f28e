// The expansions, worked by hand.
#include "check.h"
#include "core/expand.h"
#include "step.h"

namespace inputmeta::test {
namespace {

using Row = std::vector<int32_t>;

constexpr int32_t kMax = static_cast<int32_t>(kInt32Max);

/// Runs an expansion into `rows` * `width` cells.
template <class Expand>
Row expanded(size_t rows, size_t width, Expand expand) {
  Row out(rows * width, FilledStep::kUnwritten);
  expand(std::span<int32_t>(out));
  return out;
}

template <class Action>
bool refuses(Action action) {
  try {
    action();
  } catch (const ExpansionError&) {
    return true;
  }
  return false;
}

TEST(pivots_expand_to_two_runs) {
  const Row pivots = {1, 3, 8, 1, 2, 2, 8, 2, 4, 0, 9, 4, 4, 0, 11, 0};
  const Row out = expanded(4, 4, [&](auto cells) { expand_pivots(pivots, 4, cells); });
  CHECK_EQ(out, Row{1, 2, 3, 8, 2, 3, 8, 9, 9, 10, 11, 12, -1, -1, -1, -1});
}

TEST(pivots_that_do_not_fit_are_refused_before_anything_is_written) {
  for (const Row& bad : {Row{0, 3, 8, 2}, Row{0, -1, 8, 2}, Row{0, 2, 8, -1}, Row{0, kMax, 8, kMax}, Row{kMax, 2, 8, 2},
                         Row{0, 2, kMax, 2}}) {
    Row pivots = {0, 0, 8, 1};
    pivots.insert(pivots.end(), bad.begin(), bad.end());
    Row out(8, 5);
    CHECK(refuses([&] { expand_pivots(pivots, 4, out); }));
    CHECK_EQ(out, Row(8, 5));
  }
}

TEST(a_window_wraps_inside_its_state_block) {
  // W = 8 in a ring of 10, rows at 7 and 10 of state 2: the second sees positions 3 … 9 and 10 in slot 0.
  const Row windows = {20, 8, 23, 8};
  const Row out = expanded(2, 8, [&](auto cells) { expand_ring(windows, 10, 8, cells); });
  CHECK_EQ(out, Row{20, 21, 22, 23, 24, 25, 26, 27, 23, 24, 25, 26, 27, 28, 29, 20});
  const Row twice = {19, 8};
  CHECK_EQ(expanded(1, 8, [&](auto cells) { expand_ring(twice, 10, 8, cells); }), Row{19, 10, 11, 12, 13, 14, 15, 16});
  const Row shorter = {12, 3};
  CHECK_EQ(expanded(1, 4, [&](auto cells) { expand_ring(shorter, 6, 4, cells); }), Row{12, 13, 14, -1});
}

TEST(the_last_ring_slot_may_be_the_last_int32) {
  const Row window = {kMax, 2};  // a ring of 2^30: the block ends with this slot
  CHECK_EQ(expanded(1, 2, [&](auto cells) { expand_ring(window, 1 << 30, 2, cells); }), Row{kMax, 1 << 30});
}

TEST(prompt_offsets_expand_to_one_run) {
  const Row ranges = {7, 3, 9, 0};
  CHECK_EQ(expanded(2, 4, [&](auto cells) { expand_offsets(ranges, 4, cells); }), Row{7, 8, 9, -1, -1, -1, -1, -1});
}

TEST(decode_offsets_expand_through_the_tables) {
  // Two rows of 2 blocks, 4 compressed tokens a block.
  const Row tables = {5, 3, 9, FilledStep::kUnwritten};
  const Row ranges = {0, 6, 8, 2, 2, 4};
  const Row out = expanded(3, 8, [&](auto cells) { expand_blocks(ranges, tables, 4, 8, cells); });
  CHECK_EQ(out, Row{20, 21, 22, 23, 12, 13, -1, -1, 36, 37, -1, -1, -1, -1, -1, -1, 22, 23, 12, 13, -1, -1, -1, -1});
}

TEST(a_range_outside_is_refused) {
  const Row tables = {5, 3};
  Row out(8, 0);
  for (const Row& bad : {Row{0, 9}, Row{1, 8}, Row{8, 1}, Row{-1, 2}, Row{0, -1}, Row{kMax, 1}}) {
    CHECK(refuses([&] { expand_blocks(bad, tables, 4, 8, out); }));
  }
  CHECK(!refuses([&] { expand_blocks(Row{8, 0}, tables, 4, 8, out); }));
  CHECK(refuses([&] { expand_ring(Row{0, 5}, 4, 8, out); }));
  CHECK(refuses([&] { expand_offsets(Row{0, 9}, 8, out); }));
  CHECK(refuses([&] { expand_offsets(Row{kMax, 2}, 8, out); }));
}

TEST(a_slot_that_does_not_fit_is_refused) {
  Row out(8, 0);
  CHECK(refuses([&] { expand_blocks(Row{0, 1}, Row{1 << 29}, 4, 8, out); }));
  CHECK(refuses([&] { expand_blocks(Row{0, 1}, Row{-3}, 4, 8, out); }));
  CHECK(!refuses([&] { expand_blocks(Row{3, 1}, Row{(1 << 29) - 1}, 4, 8, out); }));
  CHECK_EQ(out.front(), kMax);
  CHECK(refuses([&] { expand_ring(Row{kMax, 2}, kMax, 8, out); }));  // the block of slot 0: 2^31 - 1 is past it
}

TEST(the_dense_index_is_a_multiple_of_128_wide) {
  CHECK_EQ(Wide(dense_index_width(0, 1)), Wide(128));
  CHECK_EQ(Wide(dense_index_width(127, 1)), Wide(128));
  CHECK_EQ(Wide(dense_index_width(128, 1)), Wide(128));
  CHECK_EQ(Wide(dense_index_width(129, 1)), Wide(256));
  CHECK_EQ(Wide(dense_index_width(515, 4)), Wide(128));
  CHECK_EQ(Wide(dense_index_width(516, 4)), Wide(256));
  CHECK_EQ(Wide(dense_index_width(131072, 1)), Wide(131072));
}

}  // namespace
}  // namespace inputmeta::test
