// Sections 3 and 4, worked by hand. Blocks of 8: ratio 1 has 8 compressed tokens a block, ratio 4 has 2.
#include "check.h"
#include "step.h"

namespace inputmeta::test {
namespace {

using Row = std::vector<int32_t>;

TEST(a_chunk_stores_the_tokens_it_completes) {
  // Positions 5 … 12: ratio 4 completes tokens 1 (at 7) and 2 (at 11), the first of them in the middle of a block.
  const FilledStep step = fill_prompt(small_config(), {prompt_chunk(8, 13, {5, 3})});
  CHECK_EQ(step["positions_c.4"], Row{4, 8});
  CHECK_EQ(step["slot_mapping_store_ca.4"], Row{5 * 2 + 1, 3 * 2});
  CHECK_EQ(step["cu_compressed_seqlens_q.4"], Row{0, 2});
  CHECK_EQ(step["positions_c.1"], Row{5, 6, 7, 8, 9, 10, 11, 12});
  CHECK_EQ(step["slot_mapping_store_ca.1"], Row{45, 46, 47, 24, 25, 26, 27, 28});
}

TEST(chunks_on_and_beside_a_ratio_boundary) {
  const auto positions = [](int64_t seqlen_q, int64_t seqlen_k) {
    return fill_prompt(small_config(), {prompt_chunk(seqlen_q, seqlen_k, {5, 3})})["positions_c.4"];
  };
  CHECK_EQ(positions(4, 7), Row{0});   // 3 … 6 completes token 0
  CHECK_EQ(positions(3, 7), Row{0});   // 4 … 6 completes none: the one row that is left
  CHECK_EQ(positions(4, 8), Row{4});   // 4 … 7
  CHECK_EQ(positions(5, 8), Row{0, 4});  // 3 … 7
  CHECK_EQ(positions(1, 8), Row{4});
  CHECK_EQ(positions(1, 9), Row{0});
  CHECK_EQ(positions(16, 16), Row{0, 4, 8, 12});
}

TEST(an_empty_range_has_one_row_that_stores_nothing) {
  const FilledStep step =
      fill_prompt(small_config(), {prompt_chunk(3, 7, {5}), prompt_chunk(3, 3, {6}), prompt_chunk(0, 8, {7})});
  CHECK_EQ(step["cu_compressed_seqlens_q.4"], Row{0, 1, 2, 3});
  CHECK_EQ(step["positions_c.4"], Row{0, 0, 0});
  CHECK_EQ(step["slot_mapping_store_ca.4"], Row{-1, -1, -1});
}

TEST(a_placeholder_has_its_rows_but_stores_nothing) {
  OwnedSequence placeholder = prompt_chunk(9, 9, {5, 6});
  placeholder.scalars.is_placeholder = true;
  const FilledStep step = fill_prompt(small_config(), {placeholder, prompt_chunk(4, 4, {1})});
  CHECK_EQ(step["cu_compressed_seqlens_q.4"], Row{0, 2, 3});
  CHECK_EQ(step["positions_c.4"], Row{0, 0, 0});
  CHECK_EQ(step["slot_mapping_store_ca.4"], Row{-1, -1, 2});
  CHECK_EQ(step["slot_mapping_store_swa"], Row{-1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 1, 2, 3});
}

TEST(a_decode_row_stores_where_it_completes_a_token) {
  // Rows at 5 … 10: only 7 completes a token of ratio 4.
  const FilledStep step = fill_decode(small_config(), {decode_rows(5, 11, {5, 3})});
  CHECK_EQ(step["positions_c.4"], Row{0, 0, 4, 0, 0, 0});
  CHECK_EQ(step["slot_mapping_store_ca.4"], Row{-1, -1, 5 * 2 + 1, -1, -1, -1});
  CHECK_EQ(step["positions_c.1"], Row{5, 6, 7, 8, 9, 10});
  CHECK_EQ(step["slot_mapping_store_ca.1"], Row{45, 46, 47, 24, 25, 26});
}

TEST(ratio_128_completes_at_127) {
  Config config = small_config();
  config.block_size = 128;
  config.dense_ratios = {128};
  config.sparse_ratios = {128, 128};
  const FilledStep step = fill_decode(config, {decode_rows(2, 129, {9})});
  CHECK_EQ(step["positions_c.128"], Row{0, 0, 0});
  CHECK_EQ(step["slot_mapping_store_ca.128"], Row{-1, 9, -1});
}

TEST(a_ratio_that_is_no_power_of_two) {
  Config config = small_config();
  config.block_size = 12;
  config.dense_ratios = {3};
  config.sparse_ratios = {6};
  const FilledStep step = fill_prompt(config, {prompt_chunk(9, 14, {5, 7})});
  CHECK_EQ(step["positions_c.3"], Row{3, 6, 9});
  CHECK_EQ(step["slot_mapping_store_ca.3"], Row{21, 22, 23});
  CHECK_EQ(step["positions_c.6"], Row{0, 6});
  CHECK_EQ(step["ke.6"], Row{1, 1, 1, 1, 1, 1, 2, 2, 2});
  CHECK_EQ(step["kv_ca_index_offset_len.3"], Row{0, 2, 0, 2, 0, 2, 0, 3, 0, 3, 0, 3, 0, 4, 0, 4, 0, 4});
}

// --- F-BLOCKS --------------------------------------------------------------------------------------------------------

TEST(a_row_has_its_sequences_blocks_and_leaves_the_rest_alone) {
  Config config = small_config();
  config.block_size = 16;
  config.dense_ratios = {};
  config.sparse_ratios = {1};
  const Row table = {10, 11, 12, 13, 14, 15, 16, 17};
  const std::vector<int64_t> lengths = {1, 16, 17, 96, 100};
  const std::vector<int64_t> blocks = {1, 1, 2, 6, 7};
  std::vector<OwnedSequence> sequences;
  for (const int64_t length : lengths) sequences.push_back(decode_rows(0, length, table));
  const FilledStep step = fill_decode(config, sequences);
  CHECK_EQ(Wide(step.plan.max_num_blocks), Wide(7));
  Row expected;
  for (const int64_t count : blocks) {
    for (int64_t b = 0; b < 7; ++b) {
      expected.push_back(b < count ? table[static_cast<size_t>(b)] : FilledStep::kUnwritten);
    }
  }
  CHECK_EQ(step["block_tables"], expected);
}

TEST(the_table_is_counted_with_the_smallest_ratio) {
  // Ratio 4: 3 // 4 = 0 compressed tokens, so no block is needed at all; I-4 keeps one column.
  Config config = small_config();
  config.dense_ratios = {4};
  config.sparse_ratios = {8};
  const FilledStep step = fill_decode(config, {decode_rows(0, 3, {})});
  CHECK_EQ(Wide(step.plan.max_num_blocks), Wide(1));
  CHECK_EQ(step["block_tables"], Row{FilledStep::kUnwritten});
}

TEST(a_wider_table_is_used_as_it_is) {
  const FilledStep step = fill_decode(small_config(), {decode_rows(1, 9, {5, 6})}, 3);
  const int32_t free = FilledStep::kUnwritten;
  CHECK_EQ(step["block_tables"], Row{5, 6, free, 5, 6, free});
  CHECK_EQ(step["kv_ca_index_offset_len.1"], Row{0, 8, 24, 9});
  CHECK_EQ(Wide(fill_decode(small_config(), {decode_rows(1, 9, {5, 6})}, 1).plan.max_num_blocks), Wide(2));
}

}  // namespace
}  // namespace inputmeta::test
