// Section 8, worked by hand. Block 8, ratios 1 (dense) and 4 (sparse), W = 4, B = 6.
#include <algorithm>

#include "check.h"
#include "core/truncation.h"
#include "step.h"

namespace inputmeta::test {
namespace {

using Row = std::vector<int32_t>;

Config yoco_config(YocoMode mode, int64_t keep_tokens) {
  Config config = small_config();
  config.yoco_mode = mode;
  config.yoco_prefill_keep_tokens = keep_tokens;
  return config;
}

Config cp_config(int64_t keep_tokens, int64_t size, int64_t rank) {
  Config config = yoco_config(YocoMode::compact, keep_tokens);
  config.cp_size = size;
  config.cp_rank = rank;
  return config;
}

/// Rows at 5 … 10 of a sequence of data_len tokens.
OwnedSequence chunk(int64_t data_len) {
  OwnedSequence sequence = prompt_chunk(6, 11, {1, 2});
  sequence.scalars.data_len = data_len;
  return sequence;
}

OwnedSequence whole(int64_t length) {
  OwnedSequence sequence = prompt_chunk(length, length, {1, 2});
  sequence.scalars.data_len = length;
  return sequence;
}

// --- F-CLIP ----------------------------------------------------------------------------------------------------------

int64_t clip_prefix(int64_t data_len, int64_t keep_tokens, YocoMode mode = YocoMode::compact) {
  const OwnedSequence sequence = chunk(data_len);
  return Truncation(sequence.view(), yoco_config(mode, keep_tokens)).clip_prefix;
}

TEST(rows_before_the_rectangle_are_cut_off) {
  CHECK_EQ(Wide(clip_prefix(11, 4)), Wide(2));
  CHECK_EQ(Wide(clip_prefix(11, 6)), Wide(0));
  CHECK_EQ(Wide(clip_prefix(11, 5)), Wide(1));
  CHECK_EQ(Wide(clip_prefix(8, 4)), Wide(0));     // the rectangle begins before the chunk
  CHECK_EQ(Wide(clip_prefix(0, 4)), Wide(0));
  CHECK_EQ(Wide(clip_prefix(11, 4, YocoMode::mask)), Wide(0));
  CHECK_EQ(Wide(clip_prefix(11, 4, YocoMode::off)), Wide(0));
}

TEST(one_row_of_a_chunk_always_stays) {
  CHECK_EQ(Wide(clip_prefix(11, 0)), Wide(5));
  CHECK_EQ(Wide(clip_prefix(20, 4)), Wide(5));    // the rectangle is in a chunk still to come
  const OwnedSequence none = prompt_chunk(0, 5, {1});
  CHECK_EQ(Wide(Truncation(none.view(), yoco_config(YocoMode::compact, 0)).clip_prefix), Wide(0));
}

TEST(any_data_len_and_any_keep_tokens) {
  const int64_t huge = int64_t{1} << 62;
  CHECK_EQ(Wide(clip_prefix(huge, -huge)), Wide(5));
  CHECK_EQ(Wide(clip_prefix(huge, huge)), Wide(0));
  CHECK_EQ(Wide(clip_prefix(0, huge)), Wide(0));
  CHECK_EQ(Wide(clip_prefix(0, -8)), Wide(3));
}

// --- F-VIS -----------------------------------------------------------------------------------------------------------

Row mask_pivots(int64_t data_len, int64_t keep_tokens) {
  const FilledStep step = fill_prompt(yoco_config(YocoMode::mask, keep_tokens), {chunk(data_len)});
  CHECK_EQ(step.fields.count("yoco_consumer_positions"), size_t{0});
  return step["yoco_mask_swa_index_pivots"];
}

TEST(mask_mode_narrows_what_a_row_sees) {
  // The rectangle [7, 11): rows at 5 and 6 see nothing.
  CHECK_EQ(mask_pivots(11, 4), Row{4, 0, 5, 0, 4, 0, 6, 0, 4, 0, 6, 1, 4, 0, 6, 2, 4, 0, 6, 3, 4, 0, 6, 4});
  const Row full = fill_prompt(small_config(), {chunk(11)})["kv_swa_full_index_pivots"];
  CHECK_EQ(mask_pivots(11, 11), full);
  CHECK_EQ(mask_pivots(0, 0), full);
  CHECK_EQ(mask_pivots(11, 4), mask_pivots(9, 2));  // the end of the rectangle hides no key
}

TEST(untrusted_positions_stay_hidden) {
  OwnedSequence sequence = chunk(11);
  sequence.scalars.swa_valid_start = 8;
  const Row pivots = fill_prompt(yoco_config(YocoMode::mask, 4), {sequence})["yoco_mask_swa_index_pivots"];
  CHECK_EQ(pivots, Row{4, 0, 5, 0, 4, 0, 6, 0, 4, 0, 7, 0, 4, 0, 7, 1, 4, 0, 7, 2, 4, 0, 7, 3});
}

TEST(without_truncation_there_is_no_field_of_it) {
  for (const auto& [key, cells] : fill_prompt(small_config(), {chunk(11)}).fields) CHECK(!key.starts_with("yoco"));
}

// --- F-COMPACT -------------------------------------------------------------------------------------------------------

TEST(compact_mode_keeps_the_rows_of_the_rectangle) {
  const FilledStep step = fill_prompt(yoco_config(YocoMode::compact, 4), {chunk(11)});
  CHECK_EQ(Wide(step.plan.consumer.total_q), Wide(4));
  CHECK_EQ(step["yoco_consumer_cu_seqlens_q"], Row{0, 4});
  CHECK_EQ(step["yoco_consumer_query_indices"], Row{2, 3, 4, 5});
  CHECK_EQ(step["yoco_consumer_positions"], Row{7, 8, 9, 10});
  CHECK_EQ(step["yoco_consumer_slot_mapping_store_swa"], Row{1, 2, 3, 4});
  CHECK_EQ(step["yoco_consumer_ks.4"], Row{0, 0, 0, 0});
  CHECK_EQ(step["yoco_consumer_ke.4"], Row{2, 2, 2, 2});
  CHECK_EQ(step["yoco_consumer_kv_ca_index_offset_len.1"], Row{0, 8, 0, 9, 0, 10, 0, 11});
  CHECK_EQ(step["yoco_consumer_swa_index_pivots"], Row{4, 0, 4, 1, 4, 0, 4, 2, 4, 0, 4, 3, 4, 0, 4, 4});
  for (const auto& [key, cells] : step.fields) CHECK(key.find("_cp_") == std::string::npos);
}

TEST(the_last_row_stays_even_outside_the_rectangle) {
  const FilledStep step = fill_prompt(yoco_config(YocoMode::compact, 4), {chunk(20)});
  CHECK_EQ(step["yoco_consumer_query_indices"], Row{5});
  CHECK_EQ(step["yoco_consumer_slot_mapping_store_swa"], Row{-1});
  CHECK_EQ(step["yoco_consumer_swa_index_pivots"], Row{4, 0, 5, 0});
}

TEST(only_rows_inside_the_rectangle_are_stored) {
  // [4, 8): the rows at 5, 6, 7 are, at ring slots 5, 0, 1.
  const FilledStep step = fill_prompt(yoco_config(YocoMode::compact, 4), {chunk(8)});
  CHECK_EQ(step["yoco_consumer_slot_mapping_store_swa"], Row{5, 0, 1, -1, -1, -1});
  CHECK_EQ(fill_prompt(yoco_config(YocoMode::compact, 4), {chunk(0)})["yoco_consumer_slot_mapping_store_swa"],
           Row{-1, -1, -1, -1, -1, -1});
  OwnedSequence placeholder = chunk(8);
  placeholder.scalars.is_placeholder = true;
  CHECK_EQ(fill_prompt(yoco_config(YocoMode::compact, 4), {placeholder})["yoco_consumer_slot_mapping_store_swa"],
           Row{-1, -1, -1, -1, -1, -1});
}

TEST(a_kept_row_that_a_later_one_overwrites_is_not_stored) {
  OwnedSequence sequence = prompt_chunk(8, 11, {1, 2}, 3);  // rows at 3 … 10, B = 6
  sequence.scalars.data_len = 10;
  const FilledStep step = fill_prompt(yoco_config(YocoMode::compact, 6), {sequence});  // [4, 10)
  CHECK_EQ(step["yoco_consumer_positions"], Row{4, 5, 6, 7, 8, 9, 10});
  CHECK_EQ(step["yoco_consumer_slot_mapping_store_swa"], Row{-1, 23, 18, 19, 20, 21, -1});
}

TEST(the_second_sequence_counts_kept_rows_and_all_keys) {
  const std::vector<OwnedSequence> batch = {chunk(11), prompt_chunk(0, 3, {3}), whole(6)};
  const FilledStep step = fill_prompt(yoco_config(YocoMode::compact, 4), batch);
  CHECK_EQ(step["yoco_consumer_cu_seqlens_q"], Row{0, 4, 4, 8});
  CHECK_EQ(step["yoco_consumer_query_indices"], Row{2, 3, 4, 5, 8, 9, 10, 11});
  CHECK_EQ(step["yoco_consumer_positions"], Row{7, 8, 9, 10, 2, 3, 4, 5});
  // Keys: 2 and 1 rows before the third sequence at ratio 4, 11 and 3 at ratio 1.
  CHECK_EQ(step["yoco_consumer_ks.4"], Row{0, 0, 0, 0, 3, 3, 3, 3});
  CHECK_EQ(step["yoco_consumer_ke.4"], Row{2, 2, 2, 2, 3, 4, 4, 4});
  CHECK_EQ(step["yoco_consumer_kv_ca_index_offset_len.1"], Row{0, 8, 0, 9, 0, 10, 0, 11, 14, 3, 14, 4, 14, 5, 14, 6});
  // Its history is 8 … 11, its kept rows are the buffer's rows from 12 + 4 on; [2, 6) takes part.
  const Row pivots = step["yoco_consumer_swa_index_pivots"];
  CHECK_EQ(Row(pivots.begin() + 16, pivots.end()), Row{12, 0, 16, 1, 12, 0, 16, 2, 12, 0, 16, 3, 12, 0, 16, 4});
}

TEST(a_step_without_rows) {
  OwnedSequence none = prompt_chunk(0, 5, {1});
  const FilledStep step = fill_prompt(cp_config(4, 2, 1), {none});
  CHECK_EQ(Wide(step.plan.consumer.total_q), Wide(0));
  CHECK_EQ(step["yoco_consumer_cu_seqlens_q"], Row{0, 0});
  CHECK_EQ(step["yoco_consumer_query_indices"], Row{998244353});
  CHECK_EQ(step["yoco_consumer_positions"], Row{0});
  CHECK_EQ(step["yoco_consumer_slot_mapping_store_swa"], Row{-1});
  CHECK_EQ(step["yoco_consumer_swa_index_pivots"], Row{0, 0, 0, 0});
  CHECK_EQ(step["yoco_consumer_mirror_cp_index"], Row{-1});
  CHECK_EQ(step["yoco_consumer_mirror_cp_reverse_index"], Row{-1});
  CHECK_EQ(step["yoco_consumer_mirror_ke.4"], Row{0});
  CHECK_EQ(step["yoco_cp_contrib_index"], Row{-1});
  CHECK_EQ(step["yoco_cp_boundary_index"], Row{-1});
  CHECK_EQ(fill_prompt(yoco_config(YocoMode::mask, 4), {none})["yoco_mask_swa_index_pivots"], Row{0, 0, 0, 0});
}

// --- F-CONTRIB -------------------------------------------------------------------------------------------------------

/// Seven rows on two ranks, the last four kept: the full mirrors are 0 1 6 p and 2 3 4 5, the compact ones 3 6 and 4 5.
TEST(kept_rows_travel_between_the_mirrors) {
  const FilledStep first = fill_prompt(cp_config(4, 2, 0), {whole(7)});
  CHECK_EQ(Wide(first.plan.consumer.cp_mirror_len), Wide(2));
  CHECK_EQ(Wide(first.plan.consumer.contrib_pad_len), Wide(3));
  CHECK_EQ(first["yoco_consumer_mirror_cp_index"], Row{0, 3});
  CHECK_EQ(first["yoco_consumer_mirror_cp_reverse_index"], Row{0, 2, 3, 1});
  CHECK_EQ(first["yoco_consumer_mirror_ks.4"], Row{0, 0});
  CHECK_EQ(first["yoco_consumer_mirror_ke.4"], Row{1, 1});
  CHECK_EQ(first["yoco_cp_contrib_index"], Row{2, -1, -1});  // row 6 is the third of the full mirror
  CHECK_EQ(first["yoco_cp_boundary_index"], Row{3, 0});      // row 3 is rank 1's first contribution, row 6 rank 0's
  const FilledStep second = fill_prompt(cp_config(4, 2, 1), {whole(7)});
  CHECK_EQ(second["yoco_consumer_mirror_cp_index"], Row{1, 2});
  CHECK_EQ(second["yoco_cp_contrib_index"], Row{1, 2, 3});
  CHECK_EQ(second["yoco_cp_boundary_index"], Row{4, 5});
}

TEST(padding_of_a_compact_mirror_comes_from_nowhere) {
  // Three rows kept of seven: the compact mirrors are 4 p and 5 6.
  CHECK_EQ(fill_prompt(cp_config(3, 2, 0), {whole(7)})["yoco_cp_boundary_index"], Row{2, -1});
  CHECK_EQ(fill_prompt(cp_config(3, 2, 1), {whole(7)})["yoco_cp_boundary_index"], Row{3, 0});
}

/// Gathers like the engine's ranks do: what arrives at a compact row is what the full layout has there.
TEST(every_compact_row_receives_its_own_row) {
  for (const int64_t size : {2, 3, 4, 5}) {
    for (int64_t keep = 0; keep <= 12; ++keep) {
      const std::vector<OwnedSequence> batch = {whole(11), prompt_chunk(0, 3, {1}), chunk(9), whole(1), whole(5)};
      Row gathered;
      std::vector<FilledStep> steps;
      for (int64_t rank = 0; rank < size; ++rank) {
        steps.push_back(fill_prompt(cp_config(keep, size, rank), batch));
        const FilledStep& step = steps.back();
        const Boundaries full = {step["cu_seqlens_q"], step["cu_seqlens_k"]};
        Row own(static_cast<size_t>(step.plan.cp_mirror_len));
        write_mirror_index(full, MirrorGroup(size, rank), own.data());
        for (const int32_t cell : step["yoco_cp_contrib_index"]) {
          gathered.push_back(cell < 0 ? -1 : own.at(static_cast<size_t>(cell)));
        }
      }
      for (const FilledStep& step : steps) {
        Row received, expected;
        for (const int32_t cell : step["yoco_cp_boundary_index"]) {
          received.push_back(cell < 0 ? -1 : gathered.at(static_cast<size_t>(cell)));
        }
        for (const int32_t row : step["yoco_consumer_mirror_cp_index"]) {
          expected.push_back(row < 0 ? -1 : step["yoco_consumer_query_indices"].at(static_cast<size_t>(row)));
        }
        CHECK_EQ(received, expected);
      }
    }
  }
}

// --- P-INT32 ---------------------------------------------------------------------------------------------------------

TEST(a_kept_row_that_sees_nothing_points_one_further) {
  Config config = yoco_config(YocoMode::off, 0);
  config.window_size = config.swa_block_size = kInt32Max;
  OwnedSequence sequence = prompt_chunk(1, 1, {1});
  sequence.scalars.data_len = 1;
  CHECK_EQ(fill_prompt(config, {sequence})["kv_swa_full_index_pivots"][2], static_cast<int32_t>(kInt32Max));
  config.yoco_mode = YocoMode::mask;
  PreconditionError error = refusal([&] { fill_prompt(config, {sequence}); });
  CHECK_EQ(error.field, std::string("yoco_mask_swa_index_pivots"));
  CHECK_EQ(error.value, to_text(kInt32Max + 1));
  config.yoco_mode = YocoMode::compact;
  error = refusal([&] { fill_prompt(config, {sequence}); });
  CHECK_EQ(error.field, std::string("yoco_consumer_swa_index_pivots"));
  CHECK_EQ(Wide(error.sequence.value_or(-1)), Wide(0));
}

/// 2^15 ranks, one chunk with a row for each of the 2^16 blocks, and short chunks that make every mirror long.
TEST(the_last_reverse_index) {
  const int64_t ranks = int64_t{1} << 15;
  Config config = cp_config(int64_t{1} << 17, ranks, 0);
  config.max_model_len = int64_t{1} << 17;
  config.dense_ratios = {8};
  config.sparse_ratios = {};
  const auto plan_with = [&](int64_t short_chunks, int64_t kept) {
    config.yoco_prefill_keep_tokens = kept;
    const OwnedSequence longest = prompt_chunk(2 * ranks, 2 * ranks, Row(8192, 0));
    const OwnedSequence shortest = prompt_chunk(1, 1, {});
    std::vector<Sequence> sequences(static_cast<size_t>(short_chunks), shortest.view());
    sequences.push_back(longest.view());
    sequences.back().data_len = 2 * ranks;
    return plan_prompt(config, sequences);
  };
  // Rank 2^15 - 1 has the last row of its mirror: 2^15 · (2 · short + 2) - 1.
  CHECK_EQ(Wide(plan_with(32767, 1 << 17).cp_mirror_len), Wide(65536));
  PreconditionError error = refusal([&] { plan_with(32768, 1 << 17); });
  CHECK_EQ(error.field, std::string("mirror_cp_reverse_index"));
  CHECK_EQ(error.value, to_text((Wide{ranks} * 65538) - 1));
  config.cp_size = 1;
  CHECK_EQ(Wide(plan_with(32768, 1 << 17).cp_mirror_len), Wide(2 * 32768 + 65536));
}

}  // namespace
}  // namespace inputmeta::test
