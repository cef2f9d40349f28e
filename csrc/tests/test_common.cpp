// Section 2 and the neutral row of I-3, worked by hand.
#include "check.h"
#include "core/ngram.h"
#include "step.h"

namespace inputmeta::test {
namespace {

using Row = std::vector<int32_t>;

TEST(rows_of_all_chunks_lie_end_to_end) {
  const FilledStep step = fill_prompt(small_config(), {prompt_chunk(3, 8, {5}), prompt_chunk(2, 2, {6})});
  CHECK_EQ(step["positions"], Row{5, 6, 7, 0, 1});
  CHECK_EQ(step["input_ids"], Row{1005, 1006, 1007, 1000, 1001});
  CHECK_EQ(step["query_indices"], Row{0, 0, 0, 1, 1});
  CHECK_EQ(step["valid_token_mask"], Row{1, 1, 1, 1, 1});
  CHECK_EQ(step["gate_force_random"], Row{0, 0, 0, 0, 0});
  CHECK_EQ(step["cu_seqlens_q"], Row{0, 3, 5});
  CHECK_EQ(step["cu_seqlens_k"], Row{0, 8, 10});
}

TEST(a_chunk_without_queries_takes_no_row) {
  const FilledStep step = fill_prompt(small_config(), {prompt_chunk(0, 4, {1}), prompt_chunk(3, 3, {2}),
                                                       prompt_chunk(0, 0, {}), prompt_chunk(1, 9, {3, 4}),
                                                       prompt_chunk(0, 1, {5})});
  CHECK_EQ(step["cu_seqlens_q"], Row{0, 0, 3, 3, 4, 4});
  CHECK_EQ(step["cu_seqlens_k"], Row{0, 4, 7, 7, 16, 17});
  CHECK_EQ(step["positions"], Row{0, 1, 2, 8});
  CHECK_EQ(step["query_indices"], Row{1, 1, 1, 3});
}

TEST(a_decode_chunk_is_one_known_token_and_the_drafts) {
  const FilledStep step = fill_decode(small_config(), {decode_rows(2, 12, {5, 6}), decode_rows(0, 1, {7})});
  CHECK_EQ(step["positions"], Row{9, 10, 11, 0});
  CHECK_EQ(step["input_ids"], Row{1009, 2000, 2001, 1000});
  CHECK_EQ(step["query_indices"], Row{0, 0, 0, 1});
  CHECK_EQ(step["cu_seqlens_q"], Row{0, 3, 4});
  CHECK_EQ(step["cu_seqlens_k"], Row{0, 12, 13});
}

TEST(a_placeholder_is_masked_and_owned_by_none) {
  OwnedSequence placeholder = decode_rows(0, 3, {1});
  placeholder.scalars.is_placeholder = true;
  Config config = small_config();
  config.force_load_balance = true;
  const FilledStep step = fill_decode(config, {decode_rows(0, 2, {2}), placeholder});
  CHECK_EQ(step["valid_token_mask"], Row{1, 0});
  CHECK_EQ(step["query_indices"], Row{0, 998244353});
  CHECK_EQ(step["positions"], Row{1, 2});
  CHECK_EQ(step["gate_force_random"], Row{1, 1});
}

TEST(a_step_without_queries_has_one_neutral_row) {
  Config config = small_config();
  config.force_load_balance = true;
  config.max_ngram_size = 2;
  config.pad_token = -9;
  OwnedSequence sequence = prompt_chunk(0, 5, {3});
  sequence.compressed_tokens = {1, 2, 3, 4, 5};
  const FilledStep step = fill_prompt(config, {sequence});
  CHECK_EQ(Wide(step.plan.total_q), Wide(0));
  CHECK_EQ(step["positions"], Row{0});
  CHECK_EQ(step["input_ids"], Row{0});
  CHECK_EQ(step["gate_force_random"], Row{0});
  CHECK_EQ(step["valid_token_mask"], Row{0});
  CHECK_EQ(step["query_indices"], Row{998244353});
  CHECK_EQ(step["ngram_token_ids"], Row{-9, -9});
  CHECK_EQ(step["slot_mapping_store_swa"], Row{-1});
  CHECK_EQ(step["kv_swa_full_index_pivots"], Row{0, 0, 0, 0});
  CHECK_EQ(step["ks.4"], Row{0});
  CHECK_EQ(step["ke.4"], Row{0});
  CHECK_EQ(step["kv_ca_index_offset_len.1"], Row{0, 0});
  // What stands for whole sequences is as ever.
  CHECK_EQ(step["cu_seqlens_k"], Row{0, 5});
  CHECK_EQ(step["positions_c.4"], Row{0});
  CHECK_EQ(step["load_segments_ca.1"], Row{3, 0, 5, 0});
}

// --- F-NGRAM ---------------------------------------------------------------------------------------------------------

/// Looks back 3 over compressed 10 11 12 and recent raw tokens 1 0, which the table turns into 21 20.
Config ngram_config() {
  static constexpr int32_t kTable[] = {20, 21, 22};
  Config config = small_config();
  config.max_ngram_size = 3;
  config.pad_token = -9;
  config.lookup_table.values = kTable;
  return config;
}

OwnedSequence ngram_chunk(int64_t seqlen_q) {
  OwnedSequence sequence = prompt_chunk(seqlen_q, 5, {1});
  sequence.compressed_tokens = {10, 11, 12};
  sequence.recent_tokens = {1, 0};
  return sequence;
}

TEST(a_row_looks_back_over_both_histories_and_not_before_its_sequence) {
  const FilledStep step = fill_prompt(ngram_config(), {ngram_chunk(5), ngram_chunk(2)});
  CHECK_EQ(step["ngram_token_ids"], Row{10, -9, -9, 11, 10, -9, 12, 11, 10, 21, 12, 11, 20, 21, 12,  //
                                        21, 12, 11, 20, 21, 12});
}

TEST(an_image_cuts_the_row_from_its_column_on) {
  Config config = ngram_config();
  config.image_sentinel = 21;  // compared after the look-up (I-9)
  const FilledStep step = fill_prompt(config, {ngram_chunk(5)});
  CHECK_EQ(step["ngram_token_ids"], Row{10, -9, -9, 11, 10, -9, 12, 11, 10, -9, -9, -9, 20, -9, -9});
  config.image_sentinel = 1;  // the raw token is not what is compared
  CHECK_EQ(fill_prompt(config, {ngram_chunk(1)})["ngram_token_ids"], Row{20, 21, 12});
  config.image_sentinel = 11;
  CHECK_EQ(fill_prompt(config, {ngram_chunk(2)})["ngram_token_ids"], Row{21, 12, -9, 20, 21, 12});
}

TEST(every_width_shows_the_same_columns) {
  Config wide = ngram_config();
  wide.max_ngram_size = 11;
  wide.image_sentinel = 12;
  const FilledStep widest = fill_prompt(wide, {ngram_chunk(5)});
  for (int64_t columns = 1; columns < 11; ++columns) {
    Config config = wide;
    config.max_ngram_size = columns;
    const FilledStep step = fill_prompt(config, {ngram_chunk(5)});
    for (size_t row = 0; row < 5; ++row) {
      for (size_t column = 0; column < static_cast<size_t>(columns); ++column) {
        CHECK_EQ(Wide(step["ngram_token_ids"][row * static_cast<size_t>(columns) + column]),
                 Wide(widest["ngram_token_ids"][row * 11 + column]));
      }
    }
  }
}

/// Rows that are looked up in stretches, with cuts at and beside the places where one ends.
TEST(long_chunks_show_the_same_columns_at_every_width) {
  constexpr int64_t kRows = 600;
  Config wide = ngram_config();
  wide.image_sentinel = 22;
  wide.max_ngram_size = 11;
  OwnedSequence sequence = prompt_chunk(kRows, kRows, std::vector<int32_t>(kRows / 8));
  for (int32_t k = 0; k < kRows; ++k) sequence.recent_tokens.push_back(k % 2);
  for (const size_t cut : {3, 4, 255, 256, 257, 258, 512, 513, 599}) sequence.recent_tokens[cut] = 2;
  const FilledStep widest = fill_prompt(wide, {sequence});
  for (int64_t columns = 1; columns <= 5; ++columns) {
    Config config = wide;
    config.max_ngram_size = columns;
    const FilledStep step = fill_prompt(config, {sequence});
    for (size_t cell = 0; cell < static_cast<size_t>(kRows * columns); ++cell) {
      const auto width = static_cast<size_t>(columns);
      CHECK_EQ(Wide(step["ngram_token_ids"][cell]), Wide(widest["ngram_token_ids"][cell / width * 11 + cell % width]));
    }
  }
}

/// Borrowed cells that change between the plan and the fill do not lead out of the look-up table.
TEST(tokens_that_change_after_their_check_stay_in_the_table) {
  for (const int64_t columns : {int64_t{3}, int64_t{9}}) {
    Config config = ngram_config();
    config.max_ngram_size = columns;
    OwnedSequence sequence = ngram_chunk(5);
    const std::vector<Sequence> lent = {sequence.view()};
    const Plan plan = plan_prompt(config, lent);
    for (const int32_t raced : {-1, 3, static_cast<int32_t>(kInt32Max), static_cast<int32_t>(kInt32Min)}) {
      std::ranges::fill(sequence.recent_tokens, raced);
      std::vector<int32_t> rows(static_cast<size_t>(5 * columns));
      write_ngrams(config, lent, rows.data());
      CHECK_EQ(Wide(rows[static_cast<size_t>(4 * columns)]), Wide{22});
    }
    CHECK_EQ(Wide(plan.total_q), Wide{5});
  }
}

}  // namespace
}  // namespace inputmeta::test
