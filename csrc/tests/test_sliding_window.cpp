// Section 5, worked by hand. W = 4 and B = 6 unless a test says otherwise.
#include "check.h"
#include "core/sliding_window.h"
#include "step.h"

namespace inputmeta::test {
namespace {

using Row = std::vector<int32_t>;

// --- F-RING ----------------------------------------------------------------------------------------------------------

TEST(a_row_that_a_later_one_overwrites_is_not_stored) {
  const FilledStep step = fill_prompt(small_config(), {prompt_chunk(8, 11, {1, 2}, 3)});
  CHECK_EQ(step["slot_mapping_store_swa"], Row{-1, -1, 23, 18, 19, 20, 21, 22});
  CHECK_EQ(step["state_block_idx"], Row{3});
  CHECK_EQ(fill_prompt(small_config(), {prompt_chunk(6, 6, {1})})["slot_mapping_store_swa"], Row{0, 1, 2, 3, 4, 5});
  CHECK_EQ(fill_prompt(small_config(), {prompt_chunk(7, 7, {1})})["slot_mapping_store_swa"], Row{-1, 1, 2, 3, 4, 5, 0});
}

TEST(the_ring_wraps_with_room_for_drafts) {
  Config config = small_config();
  config.window_size = 8;
  config.swa_block_size = 10;
  const FilledStep step = fill_decode(config, {decode_rows(4, 12, {1, 2})});
  CHECK_EQ(step["slot_mapping_store_swa"], Row{7, 8, 9, 0, 1});
  CHECK_EQ(step["state_block_idx"], Row{0, 0, 0, 0, 0});
}

// --- F-SWADEC --------------------------------------------------------------------------------------------------------

TEST(the_window_of_a_decode_row) {
  Config config = small_config();
  config.swa_block_size = 12;
  std::vector<OwnedSequence> sequences;
  for (const int64_t position : {0, 2, 3, 4, 9}) sequences.push_back(decode_rows(0, position + 1, {1, 2}));
  CHECK_EQ(fill_decode(config, sequences)["kv_swa_index_offset_len"], Row{0, 1, 0, 3, 0, 4, 1, 4, 6, 4});
  // One sequence, rows at 1 … 6 in state 2 with 6 slots: the window begins to move with row 4, and wraps with none.
  const FilledStep rows = fill_decode(small_config(), {decode_rows(5, 7, {1}, 2)});
  CHECK_EQ(rows["kv_swa_index_offset_len"], Row{12, 2, 12, 3, 12, 4, 13, 4, 14, 4, 15, 4});
  // Rows at 7 … 9: the window's begin passes from slot 5 to slot 0.
  const FilledStep wrapping = fill_decode(small_config(), {decode_rows(2, 10, {1, 2}, 1)});
  CHECK_EQ(wrapping["kv_swa_index_offset_len"], Row{10, 4, 11, 4, 6, 4});
}

// --- F-SWAPLAN -------------------------------------------------------------------------------------------------------

/// Segments of a chunk of one query at q_start, in state 3.
Row segments(int64_t q_start, int64_t valid_start = 0) {
  OwnedSequence sequence = prompt_chunk(1, q_start + 1, {1, 2, 3}, 3);
  sequence.scalars.swa_valid_start = valid_start;
  return fill_prompt(small_config(), {sequence})["load_segments_swa"];
}

TEST(history_is_loaded_from_the_ring) {
  CHECK_EQ(segments(5), Row{3, 1, 5, 0});
  CHECK_EQ(segments(6), Row{3, 2, 6, 0});                    // ends with the ring
  CHECK_EQ(segments(10), Row{3, 0, 4, 0});                   // begins with the ring
  CHECK_EQ(segments(8), Row{3, 4, 6, 0, 3, 0, 2, 2});        // wraps
}

TEST(missing_history_is_zero_filled) {
  CHECK_EQ(segments(0), Row{-1, 0, 4, 0});
  CHECK_EQ(segments(2), Row{-1, 0, 2, 0, 3, 0, 2, 2});
  CHECK_EQ(segments(4), Row{3, 0, 4, 0});
}

TEST(history_that_is_not_trusted_is_zero_filled) {
  CHECK_EQ(segments(8, 4), segments(8));
  CHECK_EQ(segments(8, 5), Row{-1, 0, 1, 0, 3, 5, 6, 1, 3, 0, 2, 2});
  CHECK_EQ(segments(8, 6), Row{-1, 0, 2, 0, 3, 0, 2, 2});
  CHECK_EQ(segments(8, 7), Row{-1, 0, 3, 0, 3, 1, 2, 3});
  CHECK_EQ(segments(8, 8), Row{-1, 0, 4, 0});
  CHECK_EQ(segments(8, int64_t{1} << 62), Row{-1, 0, 4, 0});
}

TEST(a_ring_as_large_as_the_window_has_all_its_slots_loaded) {
  Config config = small_config();
  config.swa_block_size = 4;
  CHECK_EQ(fill_prompt(config, {prompt_chunk(1, 9, {1, 2}, 5)})["load_segments_swa"], Row{5, 0, 4, 0});
  CHECK_EQ(fill_prompt(config, {prompt_chunk(1, 8, {1}, 5)})["load_segments_swa"], Row{5, 3, 4, 0, 5, 0, 3, 1});
}

TEST(each_sequence_has_a_window_of_rows) {
  const FilledStep step = fill_prompt(small_config(), {prompt_chunk(1, 1, {1}), prompt_chunk(0, 5, {2}, 7)});
  CHECK_EQ(Wide(step.plan.total_k_swa), Wide(8));
  CHECK_EQ(step["load_segments_swa"], Row{-1, 0, 4, 0, 7, 1, 5, 4});
  CHECK_EQ(step["state_block_idx"], Row{0, 7});
}

// --- F-PIVOT ---------------------------------------------------------------------------------------------------------

/// Pivots of the rows at 5 … 10, history rows 0 … 3, new rows from 4 on.
Row pivots(int64_t valid_start) {
  OwnedSequence sequence = prompt_chunk(6, 11, {1, 2});
  sequence.scalars.swa_valid_start = valid_start;
  return fill_prompt(small_config(), {sequence})["kv_swa_full_index_pivots"];
}

TEST(the_window_moves_from_the_history_into_the_chunk) {
  CHECK_EQ(pivots(0), Row{1, 3, 4, 1, 2, 2, 4, 2, 3, 1, 4, 3, 4, 0, 4, 4, 4, 0, 5, 4, 4, 0, 6, 4});
}

TEST(a_start_inside_the_history_hides_what_is_zero_filled) {
  CHECK_EQ(pivots(2), pivots(0));
  CHECK_EQ(pivots(4), Row{3, 1, 4, 1, 3, 1, 4, 2, 3, 1, 4, 3, 4, 0, 4, 4, 4, 0, 5, 4, 4, 0, 6, 4});
  CHECK_EQ(pivots(5), Row{4, 0, 4, 1, 4, 0, 4, 2, 4, 0, 4, 3, 4, 0, 4, 4, 4, 0, 5, 4, 4, 0, 6, 4});
}

TEST(a_row_before_the_start_sees_nothing) {
  CHECK_EQ(pivots(7), Row{4, 0, 5, 0, 4, 0, 6, 0, 4, 0, 6, 1, 4, 0, 6, 2, 4, 0, 6, 3, 4, 0, 6, 4});
  CHECK_EQ(pivots(10), Row{4, 0, 5, 0, 4, 0, 6, 0, 4, 0, 7, 0, 4, 0, 8, 0, 4, 0, 9, 0, 4, 0, 9, 1});
  const Row past = {4, 0, 5, 0, 4, 0, 6, 0, 4, 0, 7, 0, 4, 0, 8, 0, 4, 0, 9, 0, 4, 0, 10, 0};
  CHECK_EQ(pivots(11), past);
  CHECK_EQ(pivots(int64_t{1} << 62), past);
}

TEST(the_second_sequence_has_its_own_runs) {
  const FilledStep step = fill_prompt(small_config(), {prompt_chunk(2, 2, {1}), prompt_chunk(2, 7, {2})});
  CHECK_EQ(step["kv_swa_full_index_pivots"], Row{4, 0, 8, 1, 4, 0, 8, 2, 5, 3, 10, 1, 6, 2, 10, 2});
}

/// Every stretch against the formula of a single row, for all floors, windows and cuts of a chunk.
TEST(stretches_hold_what_the_formula_says_row_by_row) {
  for (int64_t window = 1; window <= 5; ++window) {
    for (int64_t q_start = 0; q_start <= 7; ++q_start) {
      for (int64_t floor = 0; floor <= 20; ++floor) {
        const Visibility visibility{q_start, window, floor, 100, 200};
        for (int64_t begin = 0; begin <= 3; ++begin) {
          Row actual(4 * 9, 0), expected;
          write_pivots(actual.data(), visibility, begin, begin + 9);
          for (int64_t j = begin; j < begin + 9; ++j) {
            for (const int32_t cell : visibility.pivots(j)) expected.push_back(cell);
          }
          CHECK_EQ(actual, expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace inputmeta::test
