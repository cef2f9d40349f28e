// Section 6, worked by hand. Blocks of 8: ratio 1 has 8 compressed tokens a block, ratio 4 has 2.
#include "check.h"
#include "step.h"

namespace inputmeta::test {
namespace {

using Row = std::vector<int32_t>;

TEST(a_row_sees_the_tokens_that_are_complete_at_its_position) {
  Config config = small_config();
  config.sparse_ratios = {1};
  const FilledStep step = fill_prompt(config, {prompt_chunk(3, 8, {5}), prompt_chunk(2, 2, {6})});
  CHECK_EQ(step["ks.1"], Row{0, 0, 0, 8, 8});
  CHECK_EQ(step["ke.1"], Row{6, 7, 8, 9, 10});
  CHECK_EQ(step["kv_ca_index_offset_len.1"], Row{0, 6, 0, 7, 0, 8, 8, 1, 8, 2});
}

TEST(a_sequence_without_a_complete_token_takes_one_row_everywhere) {
  Config config = small_config();
  config.dense_ratios = {4};
  const FilledStep step =
      fill_prompt(config, {prompt_chunk(3, 3, {5}), prompt_chunk(0, 0, {}), prompt_chunk(2, 9, {6, 7})});
  CHECK_EQ(step["load_segments_ca.4"], Row{-1, 0, 1, 0, -1, 0, 1, 1, 6, 0, 2, 2});
  CHECK_EQ(Wide(step.plan.compressed.at(0).total_k), Wide(4));
  CHECK_EQ(step["ks.4"], Row{0, 0, 0, 2, 2});
  CHECK_EQ(step["ke.4"], Row{0, 0, 0, 4, 4});
  CHECK_EQ(step["kv_ca_index_offset_len.4"], Row{0, 0, 0, 0, 0, 0, 2, 2, 2, 2});
}

TEST(the_load_plan_has_a_segment_a_block) {
  const FilledStep step = fill_prompt(small_config(), {prompt_chunk(1, 17, {5, 9, 2}), prompt_chunk(1, 16, {4, 3})});
  CHECK_EQ(step["load_segments_ca.1"], Row{5, 0, 8, 0, 9, 0, 8, 8, 2, 0, 1, 16, 4, 0, 8, 17, 3, 0, 8, 25});
  CHECK_EQ(step["load_segments_ca.4"], Row{5, 0, 2, 0, 9, 0, 2, 2, 4, 0, 2, 4, 3, 0, 2, 6});
  CHECK_EQ(Wide(step.plan.compressed.at(0).total_k), Wide(33));
  CHECK_EQ(Wide(step.plan.compressed.at(1).total_k), Wide(8));
}

TEST(decode_offsets_count_through_the_flattened_tables) {
  Config config = small_config();
  config.dense_ratios = {1, 4};
  const FilledStep step = fill_decode(config, {decode_rows(1, 9, {5, 6}), decode_rows(0, 1, {7})});
  CHECK_EQ(step["kv_ca_index_offset_len.1"], Row{0, 8, 16, 9, 32, 1});
  CHECK_EQ(step["kv_ca_index_offset_len.4"], Row{0, 2, 4, 2, 8, 0});
}

TEST(decode_lengths_round_down) {
  Config config = small_config();
  config.block_size = 128;
  config.sparse_ratios = {4, 128};
  CHECK_EQ(fill_decode(config, {decode_rows(5, 11, {5})})["klen.4"], Row{1, 1, 2, 2, 2, 2});
  const FilledStep step = fill_decode(config, {decode_rows(2, 129, {5, 6})});
  CHECK_EQ(step["klen.128"], Row{0, 1, 1});
  CHECK_EQ(step["context_lens"], Row{127, 128, 129});
}

TEST(a_bucket_a_ratio_and_none_without) {
  Config config = small_config();
  config.dense_ratios = {4, 4};
  config.sparse_ratios = {};
  const FilledStep step = fill_prompt(config, {prompt_chunk(1, 1, {5})});
  CHECK(step.fields.contains("positions_c.4"));
  CHECK(!step.fields.contains("positions_c.1"));
  CHECK(!step.fields.contains("ks.4"));
  CHECK_EQ(Wide(step.plan.compressed.size()), Wide(1));
  std::vector<std::string> empty;
  for (const char* const name : step.plan.empty_buckets(config)) empty.emplace_back(name);
  CHECK_EQ(empty, std::vector<std::string>{"ks", "ke"});
}

TEST(mirror_rows_are_two_blocks_a_sequence) {
  const auto mirror_len = [](int64_t cp_size) {
    Config config = small_config();
    config.cp_size = cp_size;
    return Wide(fill_prompt(config, {prompt_chunk(7, 7, {5}), prompt_chunk(1, 1, {6}), prompt_chunk(0, 3, {7})})
                    .plan.cp_mirror_len);
  };
  CHECK_EQ(mirror_len(1), Wide(8 + 2));
  CHECK_EQ(mirror_len(2), Wide(4 + 2));
  CHECK_EQ(mirror_len(4), Wide(2 + 2));
  CHECK_EQ(mirror_len(int64_t{1} << 62), Wide(2 + 2));
}

}  // namespace
}  // namespace inputmeta::test
