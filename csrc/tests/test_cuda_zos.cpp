// The kernels of ZOS decode on the host, over the grids that their launches would have, against the core: metadata,
// block tables, gather of token ids.
#include <algorithm>
#include <array>

#include "core/expand.h"
#include "core/zos_decode.h"
#include "core/zos_gather.h"
#include "cuda/gather_ids.h"
#include "cuda/shorten.h"
#include "cuda/zos_step.h"
#include "emulate.h"
#include "zos_step.h"

namespace inputmeta::test {
namespace {

using namespace inputmeta::cuda;
using Row = std::vector<int32_t>;

/// A step's outputs on a buffer each, with `spare` rows behind a bucket; all poisoned.
class Outputs {
 public:
  Outputs(const Step& step, int64_t columns, int64_t spare, int64_t shift)
      : rows_(std::max<int64_t>(1, step.total_q)), stride_(rows_ + spare), shift_(shift) {
    for (size_t k = 0; k < kZosFieldCount; ++k) {
      const FieldDeclaration& field = declaration_of(kZosFields.at[k]);
      const int64_t cells = zos_columns(field);
      if (field.dtype == DType::boolean) {
        outputs.places[k] = {add_flags(), 0};
      } else if (field.bucket == Bucket::plain) {
        outputs.places[k] = {add(cells * rows_), 0};
      } else {
        const auto buckets = static_cast<int64_t>(step.ratios.of(field.bucket).size());
        outputs.places[k] = {add(buckets * cells * stride_), cells * stride_};
      }
    }
    tables = add(rows_ * columns);
    cu_seqlens_q = add(step.inputs.num_reqs);
    input_ids = add(rows_);
    ngram_token_ids = add(rows_ * std::max<int64_t>(1, step.ngram_columns));
  }

  /// Buffers for the expansions: the window, and index and lengths of each dense ratio.
  void add_expansions(const Step& step) {
    window = add(rows_ * step.config.window_size);
    for (const Ratio& ratio : step.ratios.dense) {
      dense.push_back({dense_index_width(step.config.max_model_len, ratio.value()), nullptr, add(rows_)});
      dense.back().index = add(rows_ * dense.back().width);
    }
  }

  /// All cells, flags as 0 and 1.
  std::vector<Row> cells() const {
    std::vector<Row> all;
    for (const auto& buffer : buffers_) all.push_back(buffer->values());
    for (const auto& flags : flags_) all.emplace_back(flags.get(), flags.get() + rows_);
    return all;
  }

  ZosOutputs outputs;
  int32_t* tables;
  int32_t* cu_seqlens_q;
  int32_t* input_ids;
  int32_t* ngram_token_ids;
  struct Dense {
    int64_t width;
    int32_t* index;
    int32_t* lens;
  };
  int32_t* window = nullptr;  ///< null: without expansions
  std::vector<Dense> dense;

 private:
  int32_t* add(int64_t cells) { return buffers_.emplace_back(std::make_unique<Buffer>(cells, shift_))->data(); }
  bool* add_flags() { return flags_.emplace_back(std::make_unique<bool[]>(static_cast<size_t>(rows_))).get(); }

  int64_t rows_;
  int64_t stride_;
  int64_t shift_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<bool[]>> flags_;
};

ZosCopies copies_of(const Step& step, Outputs& out) {
  ZosCopies copies = {.tokens = step.sources,
                      .ngram_token_ids = step.ngram_columns > 0 ? step.ngrams.data() : nullptr,
                      .out_cu_seqlens_q = out.cu_seqlens_q,
                      .out_input_ids = out.input_ids,
                      .out_ngram_token_ids = step.ngram_columns > 0 ? out.ngram_token_ids : nullptr,
                      .ngram_columns = step.ngram_columns,
                      .pad_token = static_cast<int32_t>(step.config.pad_token)};
  copies.tokens.fresh_input_ids = step.input_ids.data();
  copies.tokens.fresh_rows = step.total_q;
  return copies;
}

void run_core(const Step& step, int64_t columns, Outputs& out) {
  zos_decode_kernel(step.inputs, step.total_q, ZosConstants(step.config, step.ratios, columns), out.outputs);
  if (step.total_q > 0) zos_block_tables_kernel(step.inputs, columns, out.tables);
  zos_copies_kernel(step.inputs, step.total_q, copies_of(step, out));
}

/// The expansions of the core, of the fields that it has written.
void expand_core(const Step& step, int64_t columns, Outputs& out) {
  const int64_t rows = std::max<int64_t>(1, step.total_q);
  const auto ranges = [&]<Field field>(ZosField<field>, int32_t bucket) {
    const auto* const begin = out.outputs.cells<field>(bucket);
    return std::span(begin, begin + 2 * rows);
  };
  const auto cells = [&](int32_t* begin, int64_t width) { return std::span(begin, begin + rows * width); };
  const int64_t window = step.config.window_size;
  expand_ring(ranges(ZosField<Field::kv_swa_index_offset_len>(), 0), step.config.swa_block_size, window,
              cells(out.window, window));
  for (size_t k = 0; k < out.dense.size(); ++k) {
    const auto dense = ranges(ZosField<Field::kv_ca_index_offset_len>(), static_cast<int32_t>(k));
    expand_blocks(dense, cells(out.tables, columns), step.ratios.dense[k].tokens_per_block(), out.dense[k].width,
                  cells(out.dense[k].index, out.dense[k].width));
    for (int64_t row = 0; row < rows; ++row) out.dense[k].lens[row] = dense[static_cast<size_t>(2 * row + 1)];
  }
}

/// A launch without its ratios and wide fields.
ZosStepArgs step_args(const Step& step, const ZosConstants& constants, Outputs& out) {
  ZosStepArgs args;
  args.sequences = {step.inputs, static_cast<int64_t>(step.tables.size()), static_cast<uint32_t>(step.total_q)};
  args.metadata.outputs = out.outputs;
  args.metadata.copies = copies_of(step, out);
  args.metadata.params = constants.params;
  return args;
}

void emulate_launch(ZosStepArgs& args, int64_t longest, int64_t limit) {
  args.plan(longest, limit);
  const bool has_expansions = args.has_expansions();
  for_each_thread(args.blocks(), kStepThreads, [&](uint32_t block, uint32_t thread) {
    has_expansions ? zos_step_thread<true>(args, block, thread) : zos_step_thread<false>(args, block, thread);
  });
}

/// All launches of a step, as ZosTarget cuts them.
void emulate_step(const Step& step, int64_t columns, int64_t longest, int64_t limit, Outputs& out) {
  const ZosConstants constants(step.config, step.ratios, columns);
  ZosStepArgs args = step_args(step, constants, out);
  if (step.total_q > 0) args.add({.columns = columns, .out = out.tables});
  if (out.window != nullptr) {
    args.add({.kind = WideField::window, .columns = step.config.window_size, .out = out.window});
  }
  for (size_t first = 0; first < constants.buckets.size(); first += kRatiosAtOnce) {
    for (size_t k = first; k < std::min(first + kRatiosAtOnce, constants.buckets.size()); ++k) {
      const ZosBucket& bucket = constants.buckets[k];
      args.metadata.buckets[args.metadata.buckets_count++] = bucket;
      if (out.window == nullptr || bucket.dense < 0) continue;
      const Outputs::Dense& dense = out.dense[static_cast<size_t>(bucket.dense)];
      args.add({.kind = WideField::dense, .columns = dense.width, .out = dense.index, .lens = dense.lens, .ratio = bucket.ratio});
    }
    emulate_launch(args, longest, limit);
    args.metadata.has_rows_item = false;
    args.metadata.buckets_count = args.wides_count = 0;
  }
}

struct Options {
  int64_t more_columns = 0;
  int64_t shift = 0;  ///< cells that buffers lie past an address that vectors may be stored to
  int64_t limit = kGridLimit;
  bool has_expansions = false;
};

/// Fails a check unless the kernels write what the core writes, and nothing else.
void check_step(const Step& step, const Options& options = {}) {
  const int64_t columns = step.max_num_blocks + options.more_columns;
  Outputs expected(step, columns, 3, options.shift);
  Outputs actual(step, columns, 3, options.shift);
  if (options.has_expansions) {
    expected.add_expansions(step);
    actual.add_expansions(step);
  }
  run_core(step, columns, expected);
  if (options.has_expansions) expand_core(step, columns, expected);
  emulate_step(step, columns, step.longest, options.limit, actual);
  const auto ours = actual.cells();
  const auto theirs = expected.cells();
  for (size_t k = 0; k < theirs.size(); ++k) check_same(ours[k], theirs[k], "output " + std::to_string(k));
}

// --- Agreement -------------------------------------------------------------------------------------------------------

TEST(random_steps) {
  Draws draw(1);
  for (int batch = 0; batch < 400; ++batch) {
    const Config config = random_config(draw);
    const int64_t longest_context = draw(0, 1) == 1 ? 3000 : 20;
    const Step step(config, random_shapes(draw, draw(1, 40), draw(0, 3) == 0 ? 90 : 6, longest_context));
    check_step(step, {.more_columns = draw(0, 5), .shift = draw(0, 1)});
  }
}

/// An engine whose windows and contexts have rows that memory holds.
Config expanded_config(Draws& draw, int64_t longest_context) {
  Config config = random_config(draw);
  if (config.window_size > 1000) config.window_size = config.swa_block_size = 4 * draw(1, 60);
  if (draw(0, 1) == 1) config.window_size = std::max<int64_t>(4, config.window_size / 4 * 4);
  config.swa_block_size = std::max(config.swa_block_size, config.window_size);
  config.max_model_len = longest_context + draw(0, 300);
  return config;
}

TEST(random_steps_with_expansions) {
  Draws draw(11);
  for (int batch = 0; batch < 200; ++batch) {
    const int64_t longest_context = draw(0, 1) == 1 ? 3000 : 20;
    const int64_t longest = draw(0, 3) == 0 ? 50 : 6;
    const Config config = expanded_config(draw, longest_context + longest);
    const Step step(config, random_shapes(draw, draw(1, 30), longest, longest_context));
    check_step(step, {.more_columns = draw(0, 5), .shift = draw(0, 1), .has_expansions = true});
  }
}

TEST(one_sequence_of_one_row) { check_step(Step(simple_config(), {{.seqlen_q = 1, .seqlen_k = 1}})); }

TEST(one_sequence_of_thousands_of_rows) {
  Step step(simple_config(), {{.seqlen_q = 5000, .seqlen_k = 6000, .state_id = 3}});
  check_step(step);
  step.longest = 1;  // a hint, no bound
  check_step(step);
}

TEST(many_sequences) {
  check_step(Step(simple_config(), std::vector<Shape>(65536, {.seqlen_q = 1, .seqlen_k = 9})));
  std::vector<Shape> shapes(3000, {.seqlen_q = 2, .seqlen_k = 5});
  shapes[7] = {.seqlen_q = 900, .seqlen_k = 901, .is_placeholder = true};
  check_step(Step(simple_config(), shapes), {.more_columns = 1});
}

TEST(a_table_of_one_column_and_one_of_thousands) {
  Config config = simple_config();
  config.block_size = int64_t{1} << 20;
  config.max_model_len = int64_t{1} << 24;
  check_step(Step(config, std::vector<Shape>(77, {.seqlen_q = 3, .seqlen_k = 100})));
  config.block_size = 4;
  check_step(Step(config, std::vector<Shape>(5, {.seqlen_q = 2, .seqlen_k = 10001})));
  check_step(Step(config, std::vector<Shape>(5, {.seqlen_q = 2, .seqlen_k = 10001})), {.more_columns = 3});
}

TEST(a_step_without_rows_has_its_neutral_row) {
  Config config = simple_config();
  config.pad_token = 11;
  config.max_ngram_size = 2;
  config.max_model_len = 100;
  check_step(Step(config, std::vector<Shape>(3, {.seqlen_q = 0, .seqlen_k = 5})));
  check_step(Step(config, {}));
  check_step(Step(config, std::vector<Shape>(3, {.seqlen_q = 0, .seqlen_k = 5})), {.has_expansions = true});
  check_step(Step(config, {}), {.has_expansions = true});
}

TEST(more_ratios_than_one_launch_takes) {
  Config config = simple_config();
  config.block_size = 5040;
  config.dense_ratios.clear();
  config.sparse_ratios.clear();
  for (const int64_t ratio : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 21, 24, 28, 30}) {
    (ratio % 3 == 0 ? config.dense_ratios : config.sparse_ratios).push_back(ratio);
  }
  const Step step(config, std::vector<Shape>(40, {.seqlen_q = 9, .seqlen_k = 5041}));
  check_step(step);
  config.max_model_len = 5100;
  check_step(Step(config, std::vector<Shape>(4, {.seqlen_q = 3, .seqlen_k = 5041})), {.has_expansions = true});
}

TEST(a_grid_that_is_too_small_grows_the_tiles) {
  Config config = simple_config();
  config.block_size = 4;
  config.max_model_len = 9001;
  const Step step(config, std::vector<Shape>(5, {.seqlen_q = 2, .seqlen_k = 9001}));
  check_step(step, {.limit = 12});
  check_step(step, {.more_columns = 1, .limit = 14});
  check_step(step, {.limit = 40, .has_expansions = true});
  ZosWide wide = {.columns = int64_t{1} << 30};
  wide.plan(kGridLimit, 1, kGridLimit);
  CHECK(wide.blocks <= kGridLimit);
  CHECK_EQ(Wide(plan_sequence_tiles(kGridLimit, kGridLimit, 1).groups), Wide((kGridLimit + 31) / 32));
}

// --- Arrays that do not agree ----------------------------------------------------------------------------------------

/// What a device cannot refuse stays inside: any value in any array, under the sanitizer.
TEST(arrays_of_any_values_stay_inside) {
  Draws draw(9);
  for (int batch = 0; batch < 400; ++batch) {
    Step step(expanded_config(draw, 306), random_shapes(draw, draw(1, 9), 6, 300));
    for (int changes = 0; changes < 4; ++changes) step.spoil(draw);
    const int64_t columns = step.max_num_blocks + draw(0, 4);
    Outputs out(step, columns, 3, draw(0, 1));
    if (draw(0, 1) == 1) out.add_expansions(step);
    emulate_step(step, columns, step.longest, kGridLimit, out);
  }
}

// --- Drafts of variable length ---------------------------------------------------------------------------------------

/// A step that the device has made shorter, of any sequences, some of them new.
struct Shorter {
  Step step;
  Row extracted_ends, extracted_k, remap, prev_lengths, prev_accepted, sampled, predict;
  int64_t width;

  Shorter(Draws& draw, const Config& config, int64_t count)
      : step(config, random_shapes(draw, count, draw(0, 3) == 0 ? 60 : 6, 300)),
        extracted_ends(step.ends),
        extracted_k(step.seqlens_k),
        width(step.longest - 1 + draw(0, 2)) {
    const int64_t previous = draw(1, 20);
    for (int64_t k = 0; k < previous; ++k) {
      prev_lengths.push_back(static_cast<int32_t>(draw(1, 6)));
      prev_accepted.push_back(static_cast<int32_t>(draw(0, prev_lengths.back() - 1)));
      sampled.push_back(static_cast<int32_t>(1000 + k));
    }
    for (int64_t k = 0; k < previous * width; ++k) predict.push_back(static_cast<int32_t>(100000 + k));
    for (size_t k = 0; k < step.seqlens_q.size(); ++k) {
      const auto place = static_cast<size_t>(draw(0, previous - 1));
      const int32_t q_start = step.seqlens_k[k] - step.seqlens_q[k];
      const bool is_new = draw(0, 2) == 0 || prev_lengths[place] - 1 - prev_accepted[place] > q_start;
      remap.push_back(is_new ? -static_cast<int32_t>(draw(1, 9)) : static_cast<int32_t>(place));
      step.seqlens_q[k] = static_cast<int32_t>(draw(1, step.seqlens_q[k]));
    }
    step.sources = {.fresh_cu_seqlens_q = extracted_ends.data(),
                    .remap = remap.data(),
                    .prev_sampled_token_ids = sampled.data(),
                    .previous = previous,
                    .prev_predict_token_ids = predict.data(),
                    .predict_columns = width};
  }

  ZosVarlen varlen() const {
    return {.num_reqs = step.inputs.num_reqs,
            .seqlens_q = step.seqlens_q.data(),
            .seqlens_k = extracted_k.data(),
            .fresh_cu_seqlens_q = extracted_ends.data(),
            .remap = remap.data(),
            .previous = static_cast<int64_t>(prev_lengths.size()),
            .prev_seqlens_q = prev_lengths.data(),
            .prev_num_accepted_tokens = prev_accepted.data()};
  }

  ZosVarlenBounds bounds() const {
    return {.total_q = step.total_q,
            .max_predicted = width,
            .tokens_per_block = step.ratios.smallest().tokens_per_block(),
            .swa_block_size = 1,  // random_config has rings that no state fits
            .state_ids = step.states.data(),
            .block_tables_offsets = step.offsets.data(),
            .block_tables = step.tables};
  }

  void emulate_shorten() {
    const ShortenArgs args = {.varlen = varlen(), .seqlens_k = step.seqlens_k.data()};
    for_each_thread(shorten_blocks(args), kShortenThreads,
                    [&](uint32_t block, uint32_t thread) { shorten_thread(args, block, thread); });
  }
};

TEST(a_shorter_step_is_that_of_the_host) {
  Draws draw(21);
  for (int batch = 0; batch < 300; ++batch) {
    const bool has_expansions = batch % 3 == 1;
    const Config config = has_expansions ? expanded_config(draw, 400) : random_config(draw);
    Shorter shorter(draw, config, batch == 0 ? 700 : draw(1, 40));
    Step& step = shorter.step;
    check_varlen(shorter.varlen(), shorter.bounds());
    Row expected(step.seqlens_k.size());
    shorten_step(shorter.varlen(), expected.data(), step.ends.data());
    shorter.emulate_shorten();
    check_same(step.seqlens_k, expected, "seqlens_k");
    check_zos_arrays(step.inputs, step.ratios, step.total_q, step.max_num_blocks,
                     static_cast<int64_t>(step.tables.size()), true);
    check_step(step, {.more_columns = draw(0, 4), .shift = draw(0, 1), .has_expansions = has_expansions});
  }
}

TEST(rows_past_the_shorter_sum_are_neutral) {
  Config config = simple_config();
  config.max_ngram_size = 2;
  config.max_model_len = 100;
  config.pad_token = 11;
  config.force_load_balance = true;
  Step step(config, std::vector<Shape>(3, {.seqlen_q = 3, .seqlen_k = 9, .state_id = 4}));
  const Row extracted = step.ends;
  step.seqlens_q = {2, 1, 1};
  step.seqlens_k = {8, 7, 7};
  step.ends = {2, 3, 4};
  step.sources.fresh_cu_seqlens_q = extracted.data();
  const int64_t columns = step.max_num_blocks;
  Outputs out(step, columns, 0, 0);
  out.add_expansions(step);
  emulate_step(step, columns, 3, kGridLimit, out);
  const auto cells = [&]<Field field>(ZosField<field>) {
    const auto* const begin = out.outputs.cells<field>();
    return Row(begin, begin + 9 * ZosField<field>::kColumns);
  };
  CHECK_EQ(cells(ZosField<Field::positions>()), Row{6, 7, 6, 6, 0, 0, 0, 0, 0});
  CHECK_EQ(cells(ZosField<Field::context_lens>()), Row{7, 8, 7, 7, 0, 0, 0, 0, 0});
  CHECK_EQ(cells(ZosField<Field::state_block_idx>()), Row{4, 4, 4, 4, 0, 0, 0, 0, 0});
  CHECK_EQ(cells(ZosField<Field::gate_force_random>()), Row{1, 1, 1, 1, 0, 0, 0, 0, 0});
  CHECK_EQ(cells(ZosField<Field::valid_token_mask>()), Row{1, 1, 1, 1, 0, 0, 0, 0, 0});
  const int32_t none = 998244353;
  CHECK_EQ(cells(ZosField<Field::query_indices>()), Row{0, 0, 1, 2, none, none, none, none, none});
  CHECK_EQ(cells(ZosField<Field::slot_mapping_store_swa>()), Row{24, 25, 24, 24, -1, -1, -1, -1, -1});
  CHECK_EQ(cells(ZosField<Field::slot_mapping_store_ca>()).back(), -1);
  CHECK_EQ(cells(ZosField<Field::klen>()), Row{1, 2, 1, 1, 0, 0, 0, 0, 0});
  const Row dense = cells(ZosField<Field::kv_ca_index_offset_len>());
  CHECK_EQ(Row(dense.begin() + 6, dense.end()), Row{3 * 8 * static_cast<int32_t>(columns), 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK_EQ(Row(out.input_ids, out.input_ids + 9), Row{500, 501, 503, 506, 0, 0, 0, 0, 0});
  CHECK_EQ(Row(out.ngram_token_ids, out.ngram_token_ids + 18),
           Row{900, 901, 902, 903, 906, 907, 912, 913, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11});
  for (int64_t row = 4; row < 9; ++row) CHECK_EQ(out.tables[row * columns], kPoison);
  const Outputs::Dense& index = out.dense.front();
  CHECK_EQ(Row(index.lens, index.lens + 9), Row{7, 8, 7, 7, 0, 0, 0, 0, 0});
  CHECK(index.index[3 * index.width] >= 0);
  CHECK_EQ(Row(index.index + 4 * index.width, index.index + 9 * index.width), Row(5 * index.width, -1));
  CHECK_EQ(Row(out.window + 4 * config.window_size, out.window + 9 * config.window_size), Row(5 * config.window_size, -1));
}

/// I-37: whatever the device brings, under the sanitizer.
TEST(a_shorter_step_of_any_values_stays_inside) {
  Draws draw(22);
  for (int batch = 0; batch < 500; ++batch) {
    Shorter shorter(draw, expanded_config(draw, 360), draw(1, 9));
    Step& step = shorter.step;
    for (Row* array : {&shorter.remap, &shorter.prev_lengths, &shorter.prev_accepted, &step.seqlens_q,
                       &shorter.extracted_ends}) {
      if (draw(0, 1) == 1) {
        (*array)[static_cast<size_t>(draw(0, static_cast<int64_t>(array->size()) - 1))] = any_int32(draw);
      }
    }
    shorter.emulate_shorten();
    uint32_t end = 0;  // as the scan does: sums wrap
    for (size_t k = 0; k < step.ends.size(); ++k) {
      step.ends[k] = static_cast<int32_t>(end += static_cast<uint32_t>(step.seqlens_q[k]));
    }
    if (draw(0, 2) == 0) step.spoil(draw);
    const int64_t columns = step.max_num_blocks + draw(0, 4);
    Outputs out(step, columns, 3, draw(0, 1));
    if (draw(0, 1) == 1) out.add_expansions(step);
    emulate_step(step, columns, step.longest, kGridLimit, out);
  }
}

// --- F-GATHER --------------------------------------------------------------------------------------------------------

void emulate_gather(const ZosTokens& tokens, bool has_tail, int32_t* out) {
  const auto count = static_cast<int64_t>(tokens.seqlens_q.size());
  GatherIdsArgs args = {.sources = tokens.sources,
                        .seqlens_q = tokens.seqlens_q.data(),
                        .cu_seqlens_q = tokens.cu_seqlens_q.data(),
                        .out = out,
                        .rows = static_cast<uint32_t>(tokens.sources.fresh_rows),
                        .max_seqlen_q = static_cast<uint32_t>(tokens.max_seqlen_q),
                        .has_tail = has_tail,
                        .tiles = plan_sequence_tiles(count, tokens.sources.fresh_rows, tokens.max_seqlen_q)};
  if (args.sources.fresh_cu_seqlens_q == nullptr) args.sources.fresh_cu_seqlens_q = args.cu_seqlens_q;
  for_each_thread(gather_ids_blocks(args), kGatherWarps * kWarp,
                  [&](uint32_t block, uint32_t thread) { gather_ids_thread(args, block, thread); });
}

struct GatherArrays {
  Row fresh, sampled, predict, remap, seqlens, ends;
  int64_t columns;

  GatherArrays(Draws& draw, int64_t sequences) : columns(draw(0, 5)) {
    const int64_t previous = draw(1, 50);
    for (int64_t k = 0; k < previous; ++k) sampled.push_back(static_cast<int32_t>(1000 + k));
    for (int64_t k = 0; k < previous * columns; ++k) predict.push_back(static_cast<int32_t>(100000 + k));
    int32_t row = 0;
    for (int64_t k = 0; k < sequences; ++k) {
      remap.push_back(static_cast<int32_t>(draw(0, 2) == 0 ? -draw(1, 5) : draw(0, previous - 1)));
      seqlens.push_back(static_cast<int32_t>(draw(0, remap.back() < 0 && draw(0, 9) == 0 ? 200 : columns + 1)));
      ends.push_back(row += seqlens.back());
    }
    for (int64_t k = 0; k < row + draw(0, 3); ++k) fresh.push_back(static_cast<int32_t>(-k - 10));
  }
  ZosTokens tokens() const {
    return {{.fresh_input_ids = fresh.data(),
             .fresh_rows = static_cast<int64_t>(fresh.size()),
             .remap = remap.data(),
             .prev_sampled_token_ids = sampled.data(),
             .previous = static_cast<int64_t>(sampled.size()),
             .prev_predict_token_ids = predict.data(),
             .predict_columns = columns},
            seqlens,
            ends,
            std::max<int64_t>(1, static_cast<int64_t>(fresh.size()))};
  }
};

TEST(token_ids_are_gathered_as_on_the_host) {
  Draws draw(3);
  for (int batch = 0; batch < 200; ++batch) {
    GatherArrays arrays(draw, batch == 0 ? 65536 : draw(1, 80));
    check_gather(arrays.tokens());
    Row expected(arrays.fresh.size(), kPoison);
    const bool has_tail = draw(0, 1) == 1;
    gather_input_ids(arrays.tokens(), expected.data(), static_cast<int64_t>(expected.size()), has_tail);
    Row out(arrays.fresh.size(), kPoison);
    emulate_gather(arrays.tokens(), has_tail, out.data());
    check_same(out, expected, "input_ids");
    emulate_gather(arrays.tokens(), false, arrays.fresh.data());
    expected.resize(static_cast<size_t>(arrays.ends.back()));
    arrays.fresh.resize(expected.size());
    check_same(arrays.fresh, expected, "input_ids in place");
  }
}

TEST(a_gather_of_any_values_stays_inside) {
  Draws draw(4);
  for (int batch = 0; batch < 300; ++batch) {
    GatherArrays arrays(draw, draw(1, 12));
    for (Row* array : {&arrays.remap, &arrays.seqlens, &arrays.ends}) {
      (*array)[static_cast<size_t>(draw(0, static_cast<int64_t>(array->size()) - 1))] = any_int32(draw);
    }
    Row out(arrays.fresh.size(), kPoison);
    emulate_gather(arrays.tokens(), draw(0, 1) == 1, out.data());
  }
}

TEST(fresh_ids_of_a_shorter_step_come_from_the_extracted_rows) {
  Draws draw(5);
  for (int batch = 0; batch < 200; ++batch) {
    Shorter shorter(draw, simple_config(), draw(1, 40));
    Step& step = shorter.step;
    shorten_step(shorter.varlen(), step.seqlens_k.data(), step.ends.data());
    ZosTokens tokens = {step.sources, step.seqlens_q, step.ends, step.longest};
    tokens.sources.fresh_input_ids = step.input_ids.data();
    tokens.sources.fresh_rows = step.total_q;
    check_gather(tokens);
    Row expected(static_cast<size_t>(step.total_q), 0);
    for (size_t k = 0, row = 0; k < step.seqlens_q.size(); ++k) {
      const int32_t begin = k == 0 ? 0 : shorter.extracted_ends[k - 1];
      for (int32_t j = 0; j < step.seqlens_q[k]; ++j) {
        const auto place = static_cast<size_t>(shorter.remap[k]);
        const auto column = static_cast<size_t>(j - 1);
        expected[row++] = shorter.remap[k] < 0 ? 500 + begin + j
                          : j == 0             ? shorter.sampled[place]
                                               : shorter.predict[place * static_cast<size_t>(shorter.width) + column];
      }
    }
    Row out(expected.size(), kPoison);
    gather_input_ids(tokens, out.data(), step.total_q, true);
    check_same(out, expected, "input_ids on the host");
    Row ours(expected.size(), kPoison);
    emulate_gather(tokens, true, ours.data());
    check_same(ours, expected, "input_ids");
  }
}

}  // namespace
}  // namespace inputmeta::test
