// Section 10: ZOS decode against eager decode, cell by cell; the gather of token ids; what is refused.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>

#include "check.h"
#include "core/zos_decode.h"
#include "core/zos_gather.h"
#include "core/zos_inputs.h"
#include "core/zos_varlen.h"
#include "step.h"

namespace inputmeta::test {
namespace {

using Row = std::vector<int32_t>;

/// A pack of one step, aligned as an allocator gives it.
struct Extracted {
  ZosPlan zos;
  ZosLayout layout;
  std::vector<std::max_align_t> memory;

  Extracted(const Config& config, const std::vector<Sequence>& sequences)
      : zos(plan_zos(config, sequences)), layout(zos, config), memory(layout.bytes / sizeof(std::max_align_t) + 1) {
    fill_zos_inputs(config, sequences, zos, layout, pack());
  }

  std::span<std::byte> pack() {
    return std::as_writable_bytes(std::span(memory)).first(static_cast<size_t>(layout.bytes));
  }

  template <class Cell>
  Cell* cells(std::string_view name) {
    return reinterpret_cast<Cell*>(pack().data() + layout[name].offset);
  }

  template <class Cell>
  std::vector<Cell> array(std::string_view name) {
    const ZosArray& spec = layout[name];
    return {cells<Cell>(name), cells<Cell>(name) + spec.rows * std::max<int64_t>(1, spec.columns)};
  }

  ZosInputs inputs() {
    return {.num_reqs = zos.plan.num_reqs,
            .seqlens_q = cells<int32_t>("seqlens_q"),
            .seqlens_k = cells<int32_t>("seqlens_k"),
            .cu_seqlens_q = cells<int32_t>("cu_seqlens_q"),
            .state_ids = cells<int32_t>("state_ids"),
            .is_placeholder = cells<bool>("is_placeholder"),
            .block_tables_offsets = cells<int64_t>("block_tables_offsets"),
            .block_tables = cells<int32_t>("block_tables")};
  }

  void check(int64_t columns) {
    check_zos_arrays(inputs(), zos.plan.ratios, zos.plan.total_q, columns, layout["block_tables"].rows);
  }
};

/// What the kernels wrote, by flat key; stacks have `stride` rows a bucket, of which the step's are cut out here.
class Built {
 public:
  Built(const Config& config, Extracted& step, int64_t columns, int64_t stride)
      : rows_(step.zos.plan.total_q), stride_(stride), ratios_(step.zos.plan.ratios) {
    step.check(columns);
    const ZosInputs inputs = step.inputs();
    ZosOutputs outputs;
    for (size_t k = 0; k < kZosFieldCount; ++k) outputs.places[k] = place(declaration_of(kZosFields.at[k]));
    zos_decode_kernel(inputs, rows_, ZosConstants(config, ratios_, columns), outputs);
    zos_block_tables_kernel(inputs, columns, plain("block_tables", columns));
  }

  /// Fails a check for every field of eager decode that these kernels write and that differs.
  void check_equal_to(const FilledStep& eager) const {
    for (const auto& [name, cells] : cells_) check_field(eager, name, cells);
    for (const auto& [name, cells] : flags_) CHECK_EQ(Row(cells.get(), cells.get() + rows_), eager[name]);
  }

  /// Whether no cell behind the step's rows of a bucket was written.
  bool is_untouched_behind_the_rows() const {
    for (const auto& [name, ratios] : stacks_) {
      const Row& cells = cells_.at(name);
      const auto bucket = static_cast<int64_t>(cells.size()) / static_cast<int64_t>(ratios->size());
      for (auto begin = cells.begin(); begin != cells.end(); begin += bucket) {
        const auto untouched = [](int32_t cell) { return cell == FilledStep::kUnwritten; };
        if (!std::all_of(begin + bucket / stride_ * rows_, begin + bucket, untouched)) return false;
      }
    }
    return true;
  }

 private:
  int32_t* plain(const std::string& name, int64_t columns) {
    return cells_.emplace(name, Row(static_cast<size_t>(rows_ * columns), FilledStep::kUnwritten)).first->second.data();
  }

  ZosPlace place(const FieldDeclaration& field) {
    const int64_t columns = zos_columns(field);
    if (field.dtype == DType::boolean) return {(flags_[field.name] = std::make_unique<bool[]>(rows_)).get(), 0};
    if (field.bucket == Bucket::plain) return {plain(field.name, columns), 0};
    const std::vector<Ratio>& ratios = ratios_.of(field.bucket);
    if (ratios.empty()) return {};
    stacks_[field.name] = &ratios;
    const auto size = static_cast<int64_t>(ratios.size()) * stride_ * columns;
    Row& cells = cells_.emplace(field.name, Row(static_cast<size_t>(size), FilledStep::kUnwritten)).first->second;
    return {cells.data(), stride_ * columns};
  }

  void check_field(const FilledStep& eager, const std::string& name, const Row& cells) const {
    const auto found = stacks_.find(name);
    if (found == stacks_.end()) {
      if (cells != eager[name]) report_failure(name + " differs", std::source_location::current());
      return;
    }
    const auto bucket = static_cast<int64_t>(cells.size() / found->second->size());
    auto begin = cells.begin();
    for (const Ratio& ratio : *found->second) {
      const std::string key = name + "." + std::to_string(ratio.value());
      if (Row(begin, begin + bucket / stride_ * rows_) != eager[key]) {
        report_failure(key + " differs", std::source_location::current());
      }
      begin += bucket;
    }
  }

  int64_t rows_;
  int64_t stride_;
  const Ratios& ratios_;
  std::map<std::string, Row> cells_;
  std::map<std::string, std::unique_ptr<bool[]>> flags_;
  std::map<std::string, const std::vector<Ratio>*> stacks_;
};

void check_agreement(const Config& config, const std::vector<OwnedSequence>& owned, int64_t more_columns = 0) {
  const std::vector<Sequence> sequences = views(owned);
  Extracted step(config, sequences);
  const int64_t columns = step.zos.plan.max_num_blocks + more_columns;
  const FilledStep eager = fill_decode(config, owned, columns);
  const Built built(config, step, columns, step.zos.plan.total_q + 3);
  built.check_equal_to(eager);
  CHECK(built.is_untouched_behind_the_rows());
  CHECK_EQ(step.array<int32_t>("input_ids"), eager["input_ids"]);
  if (config.max_ngram_size > 0) CHECK_EQ(step.array<int32_t>("ngram_token_ids"), eager["ngram_token_ids"]);
  const Row& boundaries = eager["cu_seqlens_q"];
  CHECK_EQ(step.array<int32_t>("cu_seqlens_q"), Row(boundaries.begin() + 1, boundaries.end()));
}

/// Numbers of a test, the same in every run.
class Draw {
 public:
  explicit Draw(unsigned seed) : engine_(seed) {}
  int64_t operator()(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }

 private:
  std::mt19937 engine_;
};

Config random_config(Draw& draw) {
  Config config;
  const std::vector<int64_t> divisors = {1, 2, 3, 4, 6, 12};
  config.block_size = 12 * draw(1, 3);
  for (int k = 0; k < 2; ++k) {
    if (draw(0, 3) > 0) config.dense_ratios.push_back(divisors[static_cast<size_t>(draw(0, 5))]);
    if (draw(0, 3) > 0) config.sparse_ratios.push_back(divisors[static_cast<size_t>(draw(0, 5))]);
  }
  if (config.dense_ratios.empty() && config.sparse_ratios.empty()) config.sparse_ratios = {4};
  config.window_size = draw(1, 9);
  config.swa_block_size = config.window_size + draw(0, 4);
  config.max_model_len = 1000;
  config.force_load_balance = draw(0, 1) == 1;
  return config;
}

OwnedSequence random_sequence(Draw& draw, int64_t longest) {
  const int64_t drafts = draw(0, 1) == 1 ? draw(0, 12) : 0;
  const int64_t seqlen_k = 1 + drafts + draw(0, longest);
  Row blocks;
  for (int64_t k = 0; k <= seqlen_k / 12; ++k) blocks.push_back(static_cast<int32_t>(draw(0, 5000)));
  OwnedSequence sequence = decode_rows(drafts, seqlen_k, blocks, draw(0, 40));
  sequence.scalars.is_placeholder = draw(0, 4) == 0;
  sequence.compressed_tokens.assign(static_cast<size_t>(seqlen_k), 3);
  return sequence;
}

// --- Agreement -------------------------------------------------------------------------------------------------------

TEST(zos_is_eager_decode_on_random_batches) {
  Draw draw(1);
  for (int batch = 0; batch < 200; ++batch) {
    Config config = random_config(draw);
    config.max_ngram_size = draw(0, 3);
    std::vector<OwnedSequence> sequences;
    for (int64_t k = draw(1, 6); k > 0; --k) sequences.push_back(random_sequence(draw, draw(0, 1) == 1 ? 200 : 14));
    check_agreement(config, sequences, draw(0, 2));
  }
}

TEST(a_divisor_beyond_32_bits_divides_like_an_infinite_one) {
  Config config = small_config();
  config.block_size = int64_t{1} << 40;
  config.dense_ratios = {int64_t{1} << 12};
  config.sparse_ratios = {int64_t{1} << 40, int64_t{1} << 32, int64_t{1} << 33};
  config.window_size = (int64_t{1} << 32) + 1;
  config.swa_block_size = (int64_t{1} << 33) + 1;
  config.max_model_len = int64_t{1} << 50;
  check_agreement(config, {decode_rows(2, 8193, {0}), decode_rows(0, 4096, {0})});
}

// --- Extraction ------------------------------------------------------------------------------------------------------

TEST(the_arrays_of_a_step) {
  std::vector<OwnedSequence> sequences = {decode_rows(2, 10, {5, 6, 7}, 2), decode_rows(0, 8, {9}, 4)};
  sequences[1].scalars.is_placeholder = true;
  const std::vector<Sequence> lent = views(sequences);
  Extracted step(small_config(), lent);
  CHECK_EQ(step.array<int32_t>("seqlens_q"), Row{3, 1});
  CHECK_EQ(step.array<int32_t>("seqlens_k"), Row{10, 8});
  CHECK_EQ(step.array<int32_t>("cu_seqlens_q"), Row{3, 4});
  CHECK_EQ(step.array<int32_t>("state_ids"), Row{2, 4});
  CHECK_EQ(step.array<int32_t>("block_tables"), Row{5, 6, 9});  // block 7 is not needed yet
  CHECK_EQ(step.array<int64_t>("block_tables_offsets"), std::vector<int64_t>{0, 2, 3});
  CHECK_EQ(step.array<int32_t>("input_ids"), Row{1007, 2000, 2001, 1007});
  CHECK(!step.cells<bool>("is_placeholder")[0] && step.cells<bool>("is_placeholder")[1]);
  CHECK_EQ(step.zos.max_seqlen_q, 3);
  CHECK_EQ(step.zos.plan.max_num_blocks, 2);
}

TEST(a_step_without_a_block_has_one_cell_of_tables) {
  Config config = small_config();
  config.dense_ratios = {};
  const std::vector<OwnedSequence> sequences = {decode_rows(0, 3, {})};
  const std::vector<Sequence> lent = views(sequences);
  Extracted step(config, lent);
  CHECK_EQ(step.array<int32_t>("block_tables"), Row{0});
  CHECK_EQ(step.array<int64_t>("block_tables_offsets"), std::vector<int64_t>{0, 0});
  check_agreement(config, sequences);
}

// --- Refusals --------------------------------------------------------------------------------------------------------

/// 2049 sequences of 2^20 keys, all with the same tokens and blocks.
TEST(the_sum_of_key_lengths_is_not_bounded) {
  Config config = small_config();
  config.dense_ratios = {};
  config.sparse_ratios = {8};
  config.max_model_len = int64_t{1} << 40;
  const int64_t keys = int64_t{1} << 20;
  const Row tokens(static_cast<size_t>(keys), 1);
  const Row blocks(static_cast<size_t>(keys / 8), 2);
  Sequence sequence;
  sequence.seqlen_q = 1;
  sequence.seqlen_k = keys;
  sequence.token_ids.values = tokens;
  sequence.block_table.values = blocks;
  const std::vector<Sequence> many(2049, sequence);
  CHECK_EQ(refusal([&] { plan_decode(config, many); }).field, "cu_seqlens_k");
  CHECK_EQ(plan_zos(config, many).table_cells, 2049 * keys / 8);
}

TEST(what_eager_decode_refuses) {
  const auto refused = [](const Config& config, const OwnedSequence& sequence) {
    const std::vector<Sequence> lent = {sequence.view()};
    return refusal([&] { plan_zos(config, lent); });
  };
  Config bad_ring = small_config();
  bad_ring.swa_block_size = 3;
  CHECK(refused(bad_ring, decode_rows(0, 3, {1})).condition == Condition::ratio);
  CHECK(refused(small_config(), decode_rows(0, 9, {1})).condition == Condition::table);
  CHECK(refused(small_config(), decode_rows(0, 3, {1}, -1)).condition == Condition::state);
  CHECK_EQ(refused(small_config(), decode_rows(0, 3, {1}, 400000000)).field, "slot_mapping_store_swa");
  OwnedSequence sequence = decode_rows(2, 9, {1, 2});
  sequence.draft_tokens.pop_back();
  CHECK(refused(small_config(), sequence).condition == Condition::length);
}

TEST(the_columns_in_use_count_for_the_product_bound) {
  const int64_t most = kInt32Max / 8 / 3;
  CHECK_EQ(plan_zos_outputs(small_config(), 1, 3, most).max_num_blocks, most);
  const PreconditionError error = refusal([&] { plan_zos_outputs(small_config(), 1, 3, most + 1); });
  CHECK(error.condition == Condition::int32);
  CHECK_EQ(error.field, "kv_ca_index_offset_len.1");
}

template <class Action>
std::string invalid(Action action) {
  try {
    action();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(arrays_that_do_not_agree_are_refused) {
  const std::vector<OwnedSequence> sequences = {decode_rows(2, 10, {5, 6}), decode_rows(0, 8, {9})};
  const std::vector<Sequence> lent = views(sequences);
  const auto broken = [&](auto change) {
    Extracted step(small_config(), lent);
    change(step);
    return invalid([&] { step.check(2); });
  };
  CHECK_EQ(broken([](Extracted&) {}), "");
  CHECK_EQ(broken([](Extracted& step) { step.cells<int32_t>("seqlens_q")[1] = 9; }),
           "sequence 1: 0 <= seqlens_q <= seqlens_k");
  CHECK_EQ(broken([](Extracted& step) { step.cells<int32_t>("cu_seqlens_q")[0] = 4; }),
           "sequence 0: cu_seqlens_q is the inclusive sum of seqlens_q");
  CHECK_EQ(broken([](Extracted& step) { step.cells<int32_t>("seqlens_k")[1] = 9; }),
           "sequence 1: block_tables has the sequence's blocks and no more than there are columns");
  CHECK_EQ(broken([](Extracted& step) { step.cells<int64_t>("block_tables_offsets")[2] = 4; }),
           "sequence 1: block_tables_offsets end inside block_tables");
  CHECK_EQ(broken([](Extracted& step) { step.cells<int64_t>("block_tables_offsets")[0] = 1; }),
           "sequence 0: block_tables_offsets join");
  CHECK_EQ(broken([](Extracted& step) { step.zos.plan.total_q = 5; }), "cu_seqlens_q ends with total_q");
}

// --- F-GATHER --------------------------------------------------------------------------------------------------------

/// Sequences of 2, 1, 0 and 3 rows: the first and the last go on, in other places.
struct Gather {
  Row fresh = {10, 11, 12, 13, 14, 15, 16};
  Row sampled = {50, 60};
  Row predict = {51, 52, 61, 62};
  Row remap = {1, -1, 0, 0};
  Row seqlens = {2, 1, 0, 3};
  Row ends = {2, 3, 3, 6};

  int64_t max_seqlen_q = 7;

  ZosTokens tokens() const {
    return {{.fresh_input_ids = fresh.data(),
             .fresh_rows = static_cast<int64_t>(fresh.size()),
             .remap = remap.data(),
             .prev_sampled_token_ids = sampled.data(),
             .previous = 2,
             .prev_predict_token_ids = predict.data(),
             .predict_columns = 2},
            seqlens,
            ends,
            max_seqlen_q};
  }
};

TEST(rows_come_from_the_last_step_or_are_fresh) {
  const Gather gather;
  check_gather(gather.tokens());
  Row out(7, FilledStep::kUnwritten);
  gather_input_ids(gather.tokens(), out.data(), 7, false);
  CHECK_EQ(out, Row{60, 61, 12, 50, 51, 52, FilledStep::kUnwritten});
  gather_input_ids(gather.tokens(), out.data(), 7, true);
  CHECK_EQ(out, Row{60, 61, 12, 50, 51, 52, 0});
  Gather in_place;
  gather_input_ids(in_place.tokens(), in_place.fresh.data(), 7, false);
  CHECK_EQ(in_place.fresh, Row{60, 61, 12, 50, 51, 52, 16});
}

TEST(a_gather_outside_its_arrays_is_refused) {
  const auto broken = [](auto change) {
    Gather gather;
    change(gather);
    return invalid([&] { check_gather(gather.tokens()); });
  };
  CHECK_EQ(broken([](Gather&) {}), "");
  CHECK_EQ(broken([](Gather& gather) { gather.remap[3] = 2; }),
           "remap[3] is 2; rule: a place below the 2 of the last step");
  CHECK_EQ(broken([](Gather& gather) { gather.seqlens[2] = -1; }),
           "seqlens_q[2] is -1; rule: 0 or more rows a sequence, 7 fresh_input_ids in all");
  CHECK_EQ(broken([](Gather& gather) { gather.ends = {0, 2, 3, 3}; }),
           "cu_seqlens_q[0] is 0; rule: the inclusive sum of seqlens_q");
  CHECK_EQ(broken([](Gather& gather) { gather.fresh.resize(5); }),
           "seqlens_q[3] is 3; rule: 0 or more rows a sequence, 5 fresh_input_ids in all");
  CHECK_EQ(broken([](Gather& gather) { gather.seqlens[3] = 4, gather.ends[3] = 7; }),
           "seqlens_q[3] is 4; rule: at most 1 + the 2 columns of prev_predict_token_ids");
  CHECK_EQ(broken([](Gather& gather) { gather.max_seqlen_q = 2; }), "seqlens_q[3] is 3; rule: 0 or more, at most 2 rows");
}

// --- F-REMAP and F-VARLEN ----------------------------------------------------------------------------------------------

/// Three sequences, extracted with 3, 2 and 4 rows; the last step had two, of 3 and 4 rows, and rejected 1 and 2 drafts.
struct Varlen {
  Row seqlens_q = {2, 2, 1};
  Row seqlens_k = {10, 7, 20};
  Row ends = {3, 5, 9};
  Row remap = {1, -4, 0};
  Row prev_seqlens_q = {3, 4};
  Row prev_accepted = {1, 1};
  Row states = {3, (1 << 30), 5};
  Row tables = {7, 8, (1 << 30), 9};
  std::vector<int64_t> offsets = {0, 2, 3, 4};
  ZosVarlenBounds bounds = {.total_q = 9, .max_predicted = 1, .tokens_per_block = 8, .swa_block_size = 6};

  void check() {
    bounds.state_ids = states.data();
    bounds.block_tables_offsets = offsets.data();
    bounds.block_tables = tables;
    check_varlen(arrays(), bounds);
  }

  ZosVarlen arrays() const {
    return {.num_reqs = 3,
            .seqlens_q = seqlens_q.data(),
            .seqlens_k = seqlens_k.data(),
            .fresh_cu_seqlens_q = ends.data(),
            .remap = remap.data(),
            .previous = static_cast<int64_t>(prev_seqlens_q.size()),
            .prev_seqlens_q = prev_seqlens_q.data(),
            .prev_num_accepted_tokens = prev_accepted.data()};
  }
};

TEST(rejected_drafts_and_rows_are_taken_back) {
  Varlen varlen;
  varlen.check();
  Row keys(3), sums(3);
  shorten_step(varlen.arrays(), keys.data(), sums.data());
  CHECK_EQ(keys, Row{10 - 1 - 2, 7, 20 - 3 - 1});
  CHECK_EQ(sums, Row{2, 4, 5});
  ZosVarlen first = varlen.arrays();
  first.remap = nullptr;
  shorten_step(first, keys.data(), sums.data());
  CHECK_EQ(keys, Row{9, 7, 17});
}

TEST(what_the_last_step_left_must_fit_the_step) {
  const auto broken = [](auto change) {
    Varlen varlen;
    change(varlen);
    return invalid([&] { varlen.check(); });
  };
  CHECK_EQ(broken([](Varlen&) {}), "");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.seqlens_q[1] = 0; }), "seqlens_q[1] is 0; rule: 1 to the 2 rows extracted");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.seqlens_q[1] = 3; }), "seqlens_q[1] is 3; rule: 1 to the 2 rows extracted");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.remap[2] = 2; }),
           "remap[2] is 2; rule: a place below the 2 of the last step");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.prev_accepted[0] = 3; }),
           "prev_num_accepted_tokens[0] is 3; rule: 0 to prev_seqlens_q - 1 = 2");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.prev_accepted[1] = -1; }),
           "prev_num_accepted_tokens[1] is -1; rule: 0 to prev_seqlens_q - 1 = 3");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.prev_accepted[1] = 3, varlen.prev_seqlens_q[1] = 12; }),
           "prev_num_accepted_tokens[1] is 3; rule: rejects at most the 7 keys before sequence 0");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.prev_accepted[0] = 9, varlen.remap[2] = -1; }),  // no sequence's place
           "prev_num_accepted_tokens[0] is 9; rule: 0 to prev_seqlens_q - 1 = 2");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.prev_seqlens_q[0] = 0, varlen.prev_accepted[0] = 0; }),
           "prev_num_accepted_tokens[0] is 0; rule: 0 to prev_seqlens_q - 1 = -1");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.bounds.max_predicted = 0; }),
           "seqlens_q[0] is 2; rule: at most 1 + the 0 columns of prev_predict_token_ids");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.ends[1] = 2; }),
           "fresh_cu_seqlens_q[1] is 2; rule: inclusive sums that end with total_q = 9");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.bounds.total_q = 10; }),
           "fresh_cu_seqlens_q[2] is 9; rule: inclusive sums that end with total_q = 10");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.seqlens_k[1] = 1; }),
           "seqlens_k[1] is 1; rule: as extracted: it counts its own rows");
}

/// Rejected drafts move stores to earlier positions: their slots must fit, those of other sequences need not.
TEST(slots_of_earlier_positions_fit_where_drafts_were_rejected) {
  constexpr int32_t most_blocks = (1 << 28) - 1;  // of 8 tokens in 2^31 slots
  constexpr int32_t most_states = ((int64_t{1} << 31) / 6) - 1;
  const auto broken = [](auto change) {
    Varlen varlen;
    change(varlen);
    return invalid([&] { varlen.check(); });
  };
  CHECK_EQ(broken([](Varlen& varlen) { varlen.tables[1] = most_blocks, varlen.states[2] = most_states; }), "");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.tables[1] = most_blocks + 1; }),
           "block_tables[1] is 268435456; rule: (block + 1) * (block_size // m) <= 2^31 where drafts were rejected");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.states[2] = most_states + 1; }),
           "state_ids[2] is 357913941; rule: (state_id + 1) * B <= 2^31 where drafts were rejected");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.states[2] = most_states + 1, varlen.prev_accepted[0] = 2; }), "");
  CHECK_EQ(broken([](Varlen& varlen) { varlen.offsets[1] = 9; }),
           "block_tables_offsets[1] is 9; rule: ascends inside block_tables");
}

}  // namespace
}  // namespace inputmeta::test
