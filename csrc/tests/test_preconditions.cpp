// P-RATIO, P-LEN, P-TABLE, P-STATE, P-NGRAM: each broken alone, and what the refusal says.
#include <functional>

#include "check.h"
#include "step.h"

namespace inputmeta::test {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

/// "P-LEN 1 seqlen_q=3": condition, sequence, field and value of the refusal; - for no sequence.
std::string summary(const PreconditionError& error) {
  return std::string(name_of(error.condition)) + " " + (error.sequence ? std::to_string(*error.sequence) : "-") + " " +
         error.field + "=" + error.value;
}

std::string refused_config(const std::function<void(Config&)>& change) {
  Config config = small_config();
  change(config);
  return summary(refusal([&] { fill_prompt(config, {prompt_chunk(1, 1, {1})}); }));
}

/// A prompt of two sequences, the second of them changed.
std::string refused_prompt(const std::function<void(OwnedSequence&)>& change) {
  OwnedSequence changed = prompt_chunk(3, 9, {1, 2});
  change(changed);
  return summary(refusal([&] { fill_prompt(small_config(), {prompt_chunk(1, 1, {1}), changed}); }));
}

std::string refused_decode(const std::function<void(OwnedSequence&)>& change) {
  OwnedSequence changed = decode_rows(2, 9, {1, 2});
  change(changed);
  return summary(refusal([&] { fill_decode(small_config(), {decode_rows(0, 1, {1}), changed}); }));
}

TEST(ratios) {
  CHECK_EQ(refused_config([](Config& c) { c.dense_ratios = {1, 3}; }), "P-RATIO - dense_ratios=3");
  CHECK_EQ(refused_config([](Config& c) { c.dense_ratios = {0}; }), "P-RATIO - dense_ratios=0");
  CHECK_EQ(refused_config([](Config& c) { c.sparse_ratios = {-4}; }), "P-RATIO - sparse_ratios=-4");
  CHECK_EQ(refused_config([](Config& c) { c.sparse_ratios = {16}; }), "P-RATIO - sparse_ratios=16");
  CHECK_EQ(refused_config([](Config& c) { c.dense_ratios = c.sparse_ratios = {}; }), "P-RATIO - ca_ratios=0");
  CHECK_EQ(refused_config([](Config& c) { c.block_size = 0; }), "P-RATIO - block_size=0");
  CHECK_EQ(refused_config([](Config& c) { c.block_size = -kHuge; }), "P-RATIO - block_size=-4611686018427387904");
}

TEST(window_ring_and_group) {
  CHECK_EQ(refused_config([](Config& c) { c.window_size = 0; }), "P-RATIO - window_size=0");
  CHECK_EQ(refused_config([](Config& c) { c.swa_block_size = 3; }), "P-RATIO - swa_block_size=3");
  CHECK_EQ(refused_config([](Config& c) { c.cp_size = 0; }), "P-RATIO - cp_size=0");
  CHECK_EQ(refused_config([](Config& c) { c.cp_rank = 1; }), "P-RATIO - cp_rank=1");
  CHECK_EQ(refused_config([](Config& c) { c.cp_rank = -1; }), "P-RATIO - cp_rank=-1");
}

TEST(lengths_of_a_prompt) {
  CHECK_EQ(summary(refusal([] { fill_prompt(small_config(), {}); })), "P-LEN - sequences=0");
  CHECK_EQ(refused_prompt([](OwnedSequence& s) { s.scalars.seqlen_q = -1; }), "P-LEN 1 seqlen_q=-1");
  CHECK_EQ(refused_prompt([](OwnedSequence& s) { s.scalars.seqlen_q = 10; }), "P-LEN 1 seqlen_q=10");
  CHECK_EQ(refused_prompt([](OwnedSequence& s) { s.scalars.seqlen_k = 1001; }), "P-LEN 1 seqlen_k=1001");
  CHECK_EQ(refused_prompt([](OwnedSequence& s) { s.scalars.seqlen_q = s.scalars.seqlen_k = kHuge; }),
           "P-LEN 1 seqlen_k=4611686018427387904");
  CHECK_EQ(refused_prompt([](OwnedSequence& s) { s.token_ids.pop_back(); }), "P-LEN 1 token_ids=8");
  CHECK_EQ(refused_config([](Config& c) { c.max_model_len = 0; }), "P-LEN 0 seqlen_k=1");
}

TEST(lengths_of_a_decode_step) {
  CHECK_EQ(refused_decode([](OwnedSequence& s) { s.draft_tokens.pop_back(); }), "P-LEN 1 seqlen_q=3");
  CHECK_EQ(refused_decode([](OwnedSequence& s) { s.token_ids.pop_back(); }), "P-LEN 1 seqlen_k=9");
  CHECK_EQ(refused_decode([](OwnedSequence& s) { s.token_ids.push_back(1); }), "P-LEN 1 seqlen_k=9");
  CHECK_EQ(refused_decode([](OwnedSequence& s) {
             s.scalars.seqlen_q = 0;
             s.draft_tokens = {};
           }),
           "P-LEN 1 seqlen_q=0");
  CHECK_EQ(refused_decode([](OwnedSequence& s) { s.scalars.seqlen_q = -kHuge; }),
           "P-LEN 1 seqlen_q=-4611686018427387904");
}

TEST(the_longest_length_is_allowed) {
  Config config = small_config();
  config.max_model_len = 9;
  CHECK_EQ(Wide(fill_prompt(config, {prompt_chunk(3, 9, {1, 2})}).plan.total_q), Wide(3));
  CHECK_EQ(Wide(fill_decode(config, {decode_rows(2, 9, {1, 2})}).plan.total_q), Wide(3));
}

TEST(block_tables) {
  CHECK_EQ(refused_prompt([](OwnedSequence& s) { s.block_table = {1}; }), "P-TABLE 1 block_table=1");
  CHECK_EQ(refused_decode([](OwnedSequence& s) { s.block_table = {}; }), "P-TABLE 1 block_table=0");
  CHECK_EQ(refused_prompt([](OwnedSequence& s) { s.block_table = {1, -1}; }), "P-TABLE 1 block_table=-1");
  // An entry behind the blocks in use counts too.
  CHECK_EQ(refused_decode([](OwnedSequence& s) { s.block_table = {1, 2, -5}; }), "P-TABLE 1 block_table=-5");
  OwnedSequence placeholder = decode_rows(0, 9, {1});
  placeholder.scalars.is_placeholder = true;
  CHECK_EQ(summary(refusal([&] { fill_decode(small_config(), {placeholder}); })), "P-TABLE 0 block_table=1");
}

TEST(states) {
  CHECK_EQ(refused_prompt([](OwnedSequence& s) { s.scalars.state_id = -1; }), "P-STATE 1 state_id=-1");
  CHECK_EQ(refused_prompt([](OwnedSequence& s) { s.scalars.swa_valid_start = -1; }), "P-STATE 1 swa_valid_start=-1");
  CHECK_EQ(refused_decode([](OwnedSequence& s) { s.scalars.data_len = -kHuge; }),
           "P-STATE 1 data_len=-4611686018427387904");
}

TEST(ngrams) {
  static constexpr int32_t kTable[] = {20, 21, 22};
  Config config = small_config();
  config.lookup_table.values = kTable;
  config.max_ngram_size = 2;
  const auto refused = [&](std::vector<int32_t> compressed, std::vector<int32_t> recent) {
    OwnedSequence sequence = prompt_chunk(1, 4, {1});
    sequence.compressed_tokens = std::move(compressed);
    sequence.recent_tokens = std::move(recent);
    return summary(refusal([&] { fill_prompt(config, {sequence}); }));
  };
  CHECK_EQ(refused({1, 2}, {0}), "P-NGRAM 0 recent_tokens=3");
  CHECK_EQ(refused({1, 2}, {0, 3}), "P-NGRAM 0 recent_tokens=3");
  CHECK_EQ(refused({1, 2, 3, 4}, {-1}), "P-NGRAM 0 recent_tokens=-1");
  config.lookup_table.values = {};
  CHECK_EQ(refused({1, 2, 3, 4}, {0}), "P-NGRAM 0 recent_tokens=0");
  config.max_ngram_size = 0;  // I-13
  CHECK_EQ(Wide(fill_prompt(config, {prompt_chunk(1, 4, {1})}).plan.total_q), Wide(1));
}

TEST(conditions_are_checked_in_their_order) {
  Config config = small_config();
  OwnedSequence sequence = prompt_chunk(3, 9, {-1}, -1);
  sequence.token_ids.pop_back();
  const auto refused = [&] { return summary(refusal([&] { fill_prompt(config, {sequence}); })); };
  config.cp_size = 0;
  CHECK_EQ(refused(), "P-RATIO - cp_size=0");
  config.cp_size = 1;
  CHECK_EQ(refused(), "P-LEN 0 token_ids=8");
  sequence.token_ids.push_back(0);
  CHECK_EQ(refused(), "P-TABLE 0 block_table=1");
  sequence.block_table = {1, 2};
  CHECK_EQ(refused(), "P-STATE 0 state_id=-1");
}

/// A condition is checked in all sequences before the next one is: an earlier sequence that breaks a later one waits.
TEST(a_condition_comes_before_the_sequences) {
  Config config = small_config();
  OwnedSequence state = prompt_chunk(1, 1, {1}, -1);
  OwnedSequence table = prompt_chunk(3, 9, {1});
  OwnedSequence length = prompt_chunk(3, 9, {1, 2});
  length.token_ids.pop_back();
  CHECK_EQ(summary(refusal([&] { fill_prompt(config, {state, table, length}); })), "P-LEN 2 token_ids=8");
  CHECK_EQ(summary(refusal([&] { fill_prompt(config, {state, table}); })), "P-TABLE 1 block_table=1");
  config.pad_token = kHuge;  // of the whole batch, and of the last condition
  CHECK_EQ(summary(refusal([&] { fill_prompt(config, {prompt_chunk(1, 1, {1}), state}); })), "P-STATE 1 state_id=-1");
}

TEST(the_text_has_all_parts) {
  const PreconditionError counted(Condition::table, 2, "block_table", "3", "blocks", "covers 4 blocks");
  CHECK_EQ(std::string(counted.what()), "P-TABLE: sequence 2: block_table has 3 blocks; rule: covers 4 blocks");
  const PreconditionError whole(Condition::ratio, kNoSequence, "cp_size", "0", "", "cp_size >= 1");
  CHECK_EQ(std::string(whole.what()), "P-RATIO: cp_size is 0; rule: cp_size >= 1");
}

}  // namespace
}  // namespace inputmeta::test
