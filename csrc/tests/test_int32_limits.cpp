// P-INT32 at the bound and one past it (I-10, I-11).
#include "check.h"
#include "step.h"

namespace inputmeta::test {
namespace {

constexpr int32_t kMax = static_cast<int32_t>(kInt32Max);

/// The refusal must be P-INT32, of this field and value.
template <class Action>
void check_refused(Action action, const char* field, Wide value,
                   std::source_location where = std::source_location::current()) {
  const PreconditionError error = refusal(action, where);
  check_equal(std::string(name_of(error.condition)), std::string("P-INT32"), "condition", where);
  check_equal(error.field, std::string(field), "field", where);
  check_equal(error.value, to_text(value), "value", where);
}

Config block_256() {
  Config config = small_config();
  config.block_size = 256;
  config.sparse_ratios = {};
  return config;
}

TEST(the_last_slot_of_the_last_block) {
  const std::vector<int32_t> fits = {8388607};
  const std::vector<int32_t> wraps = {8388608};
  const FilledStep step = fill_decode(block_256(), {decode_rows(0, 256, fits)});
  CHECK_EQ(step["slot_mapping_store_ca.1"], std::vector<int32_t>{kMax});
  CHECK_EQ(fill_prompt(block_256(), {prompt_chunk(256, 256, fits)})["slot_mapping_store_ca.1"].back(), kMax);
  const Wide first = Wide{8388608} * 256;
  check_refused([&] { fill_decode(block_256(), {decode_rows(0, 1, wraps)}); }, "slot_mapping_store_ca.1", first);
  check_refused([&] { fill_prompt(block_256(), {prompt_chunk(1, 1, wraps)}); }, "slot_mapping_store_ca.1", first);
}

TEST(only_slots_that_are_stored_count) {
  // The chunk stores tokens 256 … 299, in the second block: a prompt never reads the first one by slot.
  CHECK_EQ(fill_prompt(block_256(), {prompt_chunk(44, 300, {kMax, 1})})["slot_mapping_store_ca.1"].front(), 256);
  OwnedSequence placeholder = prompt_chunk(1, 1, {kMax});
  placeholder.scalars.is_placeholder = true;
  CHECK_EQ(fill_prompt(block_256(), {placeholder})["slot_mapping_store_ca.1"].front(), -1);
  // Ratio 256 has one slot a block, so every block fits.
  Config config = block_256();
  config.dense_ratios = {256};
  CHECK_EQ(fill_prompt(config, {prompt_chunk(256, 256, {kMax})})["slot_mapping_store_ca.256"].front(), kMax);
}

TEST(a_decode_step_reads_the_slots_of_the_whole_history) {
  const auto decode = [](bool is_placeholder, std::vector<int64_t> dense) {
    Config config = block_256();
    config.dense_ratios = std::move(dense);
    config.sparse_ratios = {1};
    OwnedSequence sequence = decode_rows(0, 300, {8388608, 1});
    sequence.scalars.is_placeholder = is_placeholder;
    fill_decode(config, {sequence});
  };
  decode(false, {});  // sparse ratios are not expanded
  decode(false, {256});
  const Wide last = Wide{8388608} * 256 + 255;
  check_refused([&] { decode(false, {1}); }, "kv_ca_index.1", last);
  check_refused([&] { decode(true, {1}); }, "kv_ca_index.1", last);
}

/// 2^31 - 1 = 357913941 · 6 + 1: the ring of state 357913941 has two slots that fit.
constexpr int64_t kLastState = 357913941;

TEST(the_last_ring_slot) {
  CHECK_EQ(fill_prompt(small_config(), {prompt_chunk(2, 2, {1}, kLastState)})["slot_mapping_store_swa"].back(), kMax);
  check_refused([] { fill_prompt(small_config(), {prompt_chunk(3, 3, {1}, kLastState)}); }, "slot_mapping_store_swa",
                kInt32Max + 1);
  // One row past the wrap: only slot 0 is stored, though the state's other slots do not fit.
  CHECK_EQ(fill_prompt(small_config(), {prompt_chunk(1, 7, {1}, kLastState)})["slot_mapping_store_swa"].front(),
           kMax - 1);
}

TEST(a_placeholder_stores_no_ring_slot_but_a_decode_step_reads_them) {
  OwnedSequence placeholder = prompt_chunk(3, 3, {1}, kLastState);
  placeholder.scalars.is_placeholder = true;
  CHECK_EQ(fill_prompt(small_config(), {placeholder})["slot_mapping_store_swa"].front(), -1);
  placeholder.scalars.state_id = kInt32Max;
  CHECK_EQ(fill_prompt(small_config(), {placeholder})["state_block_idx"].front(), kMax);
  placeholder.scalars.state_id = kInt32Max + 1;
  check_refused([&] { fill_prompt(small_config(), {placeholder}); }, "state_block_idx", kInt32Max + 1);

  OwnedSequence reader = decode_rows(0, 3, {1}, kLastState);
  reader.scalars.is_placeholder = true;
  check_refused([&] { fill_decode(small_config(), {reader}); }, "kv_swa_index", kInt32Max + 1);
  reader = decode_rows(0, 2, {1}, kLastState);
  CHECK_EQ(fill_decode(small_config(), {reader})["kv_swa_index_offset_len"].front(), kMax - 1);
}

TEST(scalars_of_62_bits_do_not_wrap_in_the_check) {
  const int64_t huge = int64_t{1} << 62;
  Config config = small_config();
  config.swa_block_size = huge;
  check_refused([&] { fill_prompt(config, {prompt_chunk(1, 1, {1}, 4)}); }, "slot_mapping_store_swa", Wide{huge} * 4);
  check_refused([&] { fill_prompt(config, {prompt_chunk(1, 1, {1}, huge)}); }, "state_block_idx", huge);
  config.window_size = huge;
  check_refused([&] { fill_prompt(config, {prompt_chunk(1, 1, {1}), prompt_chunk(1, 1, {1})}); }, "total_k_swa",
                Wide{huge} * 2);
  config = small_config();
  config.block_size = huge;
  config.dense_ratios = {1};
  config.sparse_ratios = {};
  check_refused([&] { fill_prompt(config, {prompt_chunk(1, 1, {kMax})}); }, "slot_mapping_store_ca.1",
                Wide{huge} * kMax);
  check_refused([&] { fill_decode(config, {decode_rows(0, 1, {0})}); }, "kv_ca_index_offset_len.1", huge);
}

TEST(the_window_buffer_and_what_lies_behind_it) {
  Config config = small_config();
  const auto prompt = [&config](int64_t window, int64_t seqlen_q, int64_t valid_start) {
    config.window_size = config.swa_block_size = window;
    OwnedSequence sequence = prompt_chunk(seqlen_q, seqlen_q, {1});
    sequence.scalars.swa_valid_start = valid_start;
    return fill_prompt(config, {sequence});
  };
  // The last key of the last row is buffer row W + 4.
  CHECK_EQ(prompt(kInt32Max - 4, 5, 0)["kv_swa_full_index_pivots"][2], kMax - 4);
  check_refused([&] { prompt(kInt32Max - 3, 5, 0); }, "kv_swa_full_index_pivots", kInt32Max + 1);
  // Rows that see nothing point one past their own key.
  check_refused([&] { prompt(kInt32Max - 4, 5, 5); }, "kv_swa_full_index_pivots", kInt32Max + 1);
  CHECK_EQ(prompt(kInt32Max - 5, 5, 5)["kv_swa_full_index_pivots"].at(4 * 4 + 2), kMax);
  // Without rows only the buffer itself counts.
  CHECK_EQ(Wide(prompt(kInt32Max, 0, 0).plan.total_k_swa), Wide(kInt32Max));
  check_refused([&] { prompt(kInt32Max + 1, 0, 0); }, "total_k_swa", kInt32Max + 1);
}

TEST(the_product_bound_of_decode) {
  const std::vector<OwnedSequence> owned = {decode_rows(1, 2, {1})};
  const std::vector<Sequence> rows = views(owned);
  Config config = small_config();
  const int64_t columns = (int64_t{1} << 31) / (2 * 8);
  CHECK_EQ(Wide(plan_decode(config, rows, columns - 1).max_num_blocks), Wide(columns - 1));
  check_refused([&] { plan_decode(config, rows, columns); }, "kv_ca_index_offset_len.1", kInt32Max + 1);
  config.dense_ratios = {};  // the bound is one of the dense offsets
  CHECK_EQ(Wide(plan_decode(config, rows, columns).max_num_blocks), Wide(columns));
}

TEST(inputs_hold_int32_values) {
  const OwnedSequence good = prompt_chunk(1, 1, {1});
  const std::vector<OwnedSequence> owned = {good, good};
  const auto with_outside = [&](IntArray Sequence::*array) {
    std::vector<Sequence> sequences = views(owned);
    (sequences[1].*array).outside = "-2147483649";
    const PreconditionError error = refusal([&] { plan_prompt(small_config(), sequences); });
    CHECK_EQ(Wide(error.sequence.value_or(-1)), Wide(1));
    CHECK_EQ(error.value, std::string("-2147483649"));
    return error.field;
  };
  CHECK_EQ(with_outside(&Sequence::block_table), std::string("block_table"));
  CHECK_EQ(with_outside(&Sequence::token_ids), std::string("token_ids"));
  CHECK_EQ(with_outside(&Sequence::draft_tokens), std::string("draft_tokens"));
  CHECK_EQ(with_outside(&Sequence::compressed_tokens), std::string("compressed_tokens"));
  CHECK_EQ(with_outside(&Sequence::recent_tokens), std::string("recent_tokens"));

  Config config = small_config();
  config.pad_token = kInt32Max + 1;
  check_refused([&] { fill_prompt(config, {good}); }, "pad_token", kInt32Max + 1);
  config.pad_token = kInt32Min;
  config.image_sentinel = kInt32Min - 1;
  check_refused([&] { fill_prompt(config, {good}); }, "image_sentinel", kInt32Min - 1);
  config.image_sentinel = kInt32Max;
  config.lookup_table.outside = "4294967296";
  check_refused([&] { fill_prompt(config, {good}); }, "lookup_table", Wide{1} << 32);
}

TEST(arithmetic_at_its_edges) {
  CHECK_EQ(to_text((Wide{1} << 126) + 1), std::string("85070591730234615865843651857942052865"));
  CHECK_EQ(to_text(std::numeric_limits<int64_t>::min()), std::string("-9223372036854775808"));
  CHECK_EQ(to_text(0), std::string("0"));
  CHECK_EQ(Wide(largest_ring_offset(0, 1, 6)), Wide(0));
  CHECK_EQ(Wide(largest_ring_offset(4, 6, 6)), Wide(5));
  CHECK_EQ(Wide(largest_ring_offset(5, 7, 6)), Wide(5));
  CHECK_EQ(Wide(largest_ring_offset(6, 8, 6)), Wide(1));
  CHECK_EQ(Wide(ceil_div((int64_t{1} << 62) + 1, int64_t{1} << 62)), Wide(2));
}

}  // namespace
}  // namespace inputmeta::test
