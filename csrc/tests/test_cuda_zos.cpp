// The kernels of ZOS decode on the host, over the grids that their launches would have, against the core: metadata,
// block tables, gather of token ids.
#include <algorithm>
#include <array>

#include "core/zos_decode.h"
#include "core/zos_gather.h"
#include "cuda/gather_ids.h"
#include "cuda/zos_metadata.h"
#include "cuda/zos_tables.h"
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

 private:
  int32_t* add(int64_t cells) { return buffers_.emplace_back(std::make_unique<Buffer>(cells, shift_))->data(); }
  bool* add_flags() { return flags_.emplace_back(std::make_unique<bool[]>(static_cast<size_t>(rows_))).get(); }

  int64_t rows_;
  int64_t stride_;
  int64_t shift_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<bool[]>> flags_;
};

void run_core(const Step& step, int64_t columns, Outputs& out) {
  zos_decode_kernel(step.inputs, step.total_q, ZosConstants(step.config, step.ratios, columns), out.outputs);
  if (step.total_q > 0) zos_block_tables_kernel(step.inputs, columns, out.tables);
  std::copy_n(step.inputs.cu_seqlens_q, step.inputs.num_reqs, out.cu_seqlens_q);
  std::copy_n(step.input_ids.data(), step.total_q, out.input_ids);
  std::copy_n(step.ngrams.data(), step.total_q * step.ngram_columns, out.ngram_token_ids);
  if (step.total_q > 0) return;
  out.input_ids[0] = 0;
  std::fill_n(out.ngram_token_ids, step.ngram_columns, static_cast<int32_t>(step.config.pad_token));
}

/// All launches of the metadata, as ZosTarget cuts them.
void emulate_metadata(const Step& step, int64_t columns, int64_t longest, Outputs& out) {
  const ZosConstants constants(step.config, step.ratios, columns);
  ZosMetadataArgs args;
  args.inputs = step.inputs;
  args.table_cells = static_cast<int64_t>(step.tables.size());
  args.outputs = out.outputs;
  args.copies = {.input_ids = step.input_ids.data(),
                 .ngram_token_ids = step.ngram_columns > 0 ? step.ngrams.data() : nullptr,
                 .out_cu_seqlens_q = out.cu_seqlens_q,
                 .out_input_ids = out.input_ids,
                 .out_ngram_token_ids = step.ngram_columns > 0 ? out.ngram_token_ids : nullptr,
                 .ngram_columns = step.ngram_columns,
                 .pad_token = static_cast<int32_t>(step.config.pad_token)};
  args.params = constants.params;
  args.total_q = static_cast<uint32_t>(step.total_q);
  args.tiles = plan_sequence_tiles(step.inputs.num_reqs, step.total_q, longest);
  for (size_t first = 0; first < constants.buckets.size(); first += kRatiosAtOnce) {
    args.has_rows_item = first == 0;
    args.buckets_count = static_cast<uint32_t>(std::min<size_t>(kRatiosAtOnce, constants.buckets.size() - first));
    std::copy_n(constants.buckets.begin() + static_cast<ptrdiff_t>(first), args.buckets_count, args.buckets);
    for_each_thread(args.blocks(), args.threads(), [&](uint32_t block, uint32_t thread) {
      zos_metadata_thread(args, block, thread, args.blocks());
    });
  }
}

void emulate_tables(const Step& step, int64_t columns, int64_t longest, int64_t limit, Outputs& out) {
  if (step.total_q == 0) return;
  ZosTablesArgs args;
  args.inputs = step.inputs;
  args.table_cells = static_cast<int64_t>(step.tables.size());
  args.out = out.tables;
  args.columns = columns;
  args.total_q = static_cast<uint32_t>(step.total_q);
  plan_zos_tables(args, longest, limit);
  CHECK(args.blocks <= std::max<int64_t>(limit, args.row_tiles.value));
  for_each_thread(args.blocks, kTablesThreads, [&](uint32_t block, uint32_t thread) {
    args.is_vector ? zos_tables_thread<Cells4>(args, block, thread) : zos_tables_thread<int32_t>(args, block, thread);
  });
}

/// Fails a check unless the kernels write what the core writes, and nothing else.
void check_step(const Step& step, int64_t more_columns = 0, int64_t shift = 0, int64_t limit = kGridLimit) {
  const int64_t columns = step.max_num_blocks + more_columns;
  Outputs expected(step, columns, 3, shift);
  run_core(step, columns, expected);
  Outputs actual(step, columns, 3, shift);
  emulate_metadata(step, columns, step.longest, actual);
  emulate_tables(step, columns, step.longest, limit, actual);
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
    check_step(step, draw(0, 5), draw(0, 1));
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
  check_step(Step(simple_config(), shapes), 1);
}

TEST(a_table_of_one_column_and_one_of_thousands) {
  Config config = simple_config();
  config.block_size = int64_t{1} << 20;
  config.max_model_len = int64_t{1} << 24;
  check_step(Step(config, std::vector<Shape>(77, {.seqlen_q = 3, .seqlen_k = 100})));
  config.block_size = 4;
  check_step(Step(config, std::vector<Shape>(5, {.seqlen_q = 2, .seqlen_k = 10001})));
  check_step(Step(config, std::vector<Shape>(5, {.seqlen_q = 2, .seqlen_k = 10001})), 3);
}

TEST(a_step_without_rows_has_its_neutral_row) {
  Config config = simple_config();
  config.pad_token = 11;
  config.max_ngram_size = 2;
  check_step(Step(config, std::vector<Shape>(3, {.seqlen_q = 0, .seqlen_k = 5})));
  check_step(Step(config, {}));
}

TEST(more_ratios_than_one_launch_takes) {
  Config config = simple_config();
  config.block_size = 5040;
  config.dense_ratios.clear();
  config.sparse_ratios.clear();
  for (const int64_t ratio : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 21, 24, 28, 30}) {
    (ratio % 3 == 0 ? config.dense_ratios : config.sparse_ratios).push_back(ratio);
  }
  check_step(Step(config, std::vector<Shape>(40, {.seqlen_q = 9, .seqlen_k = 5041})));
}

TEST(a_grid_that_is_too_small_grows_the_tiles) {
  Config config = simple_config();
  config.block_size = 4;
  const Step step(config, std::vector<Shape>(5, {.seqlen_q = 2, .seqlen_k = 9001}));
  check_step(step, 0, 0, 5);
  check_step(step, 1, 0, 7);
  ZosTablesArgs args;
  args.inputs.num_reqs = kGridLimit;
  args.columns = int64_t{1} << 30;
  plan_zos_tables(args, 1);
  CHECK(args.blocks <= kGridLimit);
  CHECK_EQ(Wide(plan_sequence_tiles(kGridLimit, kGridLimit, 1).groups), Wide((kGridLimit + 31) / 32));
}

// --- Arrays that do not agree ----------------------------------------------------------------------------------------

/// What a device cannot refuse stays inside: any value in any array, under the sanitizer.
TEST(arrays_of_any_values_stay_inside) {
  Draws draw(9);
  for (int batch = 0; batch < 400; ++batch) {
    Step step(random_config(draw), random_shapes(draw, draw(1, 9), 6, 300));
    for (int changes = 0; changes < 4; ++changes) step.spoil(draw);
    const int64_t columns = step.max_num_blocks + draw(0, 4);
    Outputs out(step, columns, 3, draw(0, 1));
    emulate_metadata(step, columns, step.longest, out);
    emulate_tables(step, columns, step.longest, kGridLimit, out);
  }
}

/// Rows past the last sum: the host's count was an upper bound (variable-length drafts).
TEST(rows_past_the_last_sum_are_not_written) {
  Step step(simple_config(), std::vector<Shape>(4, {.seqlen_q = 2, .seqlen_k = 9}));
  step.total_q = 11;
  step.input_ids.resize(11);
  Outputs out(step, step.max_num_blocks, 0, 0);
  emulate_metadata(step, step.max_num_blocks, 2, out);
  emulate_tables(step, step.max_num_blocks, 2, kGridLimit, out);
  CHECK_EQ(out.outputs.cells<Field::positions>()[7], 8);
  for (int64_t row = 8; row < 11; ++row) {
    CHECK_EQ(out.outputs.cells<Field::positions>()[row], kPoison);
    CHECK_EQ(out.tables[row * step.max_num_blocks], kPoison);
  }
}

// --- F-GATHER --------------------------------------------------------------------------------------------------------

void emulate_gather(const ZosTokens& tokens, int32_t* out) {
  const GatherIdsArgs args = {
      .fresh_input_ids = tokens.fresh_input_ids.data(),
      .prev_sampled = tokens.prev_sampled.data(),
      .prev_predict = tokens.prev_predict.data(),
      .remap = tokens.remap.data(),
      .seqlens_q = tokens.seqlens_q.data(),
      .cu_seqlens_q = tokens.cu_seqlens_q.data(),
      .out = out,
      .predict_columns = tokens.predict_columns,
      .rows = static_cast<uint32_t>(tokens.fresh_input_ids.size()),
      .previous = static_cast<uint32_t>(tokens.prev_sampled.size()),
      .tiles = plan_sequence_tiles(static_cast<int64_t>(tokens.remap.size()),
                                   static_cast<int64_t>(tokens.fresh_input_ids.size()), tokens.predict_columns + 1)};
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
  ZosTokens tokens() const { return {fresh, sampled, predict, columns, remap, seqlens, ends}; }
};

TEST(token_ids_are_gathered_as_on_the_host) {
  Draws draw(3);
  for (int batch = 0; batch < 200; ++batch) {
    GatherArrays arrays(draw, batch == 0 ? 65536 : draw(1, 80));
    check_gather(arrays.tokens());
    Row expected(arrays.fresh.size(), kPoison);
    gather_input_ids(arrays.tokens(), expected);
    Row out(arrays.fresh.size(), kPoison);
    emulate_gather(arrays.tokens(), out.data());
    check_same(out, expected, "input_ids");
    emulate_gather(arrays.tokens(), arrays.fresh.data());
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
    emulate_gather(arrays.tokens(), out.data());
  }
}

}  // namespace
}  // namespace inputmeta::test
