// Random batches, lengths drawn at the boundaries, into buffers of just the planned size: what a plan accepts is filled
// without an access outside, under the sanitizers. What the cells hold is judged by the conformance suite.
#include <algorithm>
#include <random>

#include "check.h"
#include "core/ratios.h"
#include "step.h"

namespace inputmeta::test {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}

  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  bool chance(int64_t one_in) { return between(1, one_in) == 1; }
  int64_t pick(const std::vector<int64_t>& choices) {
    return choices[static_cast<size_t>(between(0, static_cast<int64_t>(choices.size()) - 1))];
  }
  /// One of the choices, or a neighbour of it, cut to [0, limit].
  int64_t near(const std::vector<int64_t>& choices, int64_t limit) {
    return std::clamp<int64_t>(pick(choices) + between(-1, 1), 0, limit);
  }

 private:
  std::mt19937_64 engine_;
};

struct Batch {
  Config config;
  std::vector<int32_t> lookup_table;
  std::vector<OwnedSequence> sequences;
  int64_t table_columns = 0;
};

Config draw_config(Draw& draw, bool huge) {
  Config config;
  config.block_size = draw.pick({4, 8, 12, 24});
  const std::vector<int64_t> ratios = {1, 2, 4};
  if (draw.chance(2)) config.dense_ratios.push_back(draw.pick(ratios));
  if (draw.chance(2)) config.sparse_ratios.push_back(draw.pick(ratios));
  if (draw.chance(2)) config.sparse_ratios.push_back(config.block_size);
  if (draw.chance(4)) config.dense_ratios.push_back(config.block_size % 3 == 0 ? 3 : 2);
  if (config.dense_ratios.empty() && config.sparse_ratios.empty()) config.dense_ratios.push_back(4);
  config.window_size = draw.between(1, 6);
  config.swa_block_size = config.window_size + draw.between(0, 3);
  config.max_model_len = 60;
  config.max_ngram_size = draw.between(0, 4);
  config.pad_token = draw.between(-2, 5);
  if (draw.chance(2)) config.image_sentinel = draw.between(-2, 6);
  config.cp_size = draw.pick({1, 1, 2, 3, kHuge});
  config.cp_rank = draw.chance(8) ? config.cp_size - 1 : draw.between(0, std::min<int64_t>(3, config.cp_size) - 1);
  config.force_load_balance = draw.chance(2);
  config.yoco_mode = static_cast<YocoMode>(draw.between(0, 2));
  config.yoco_prefill_keep_tokens = draw.chance(9) ? draw.pick({-kHuge, kHuge}) : draw.between(-2, 30);
  if (huge && draw.chance(3)) config.swa_block_size = draw.pick({int64_t{1} << 16, kInt32Max - 1, kHuge});
  if (huge && draw.chance(4)) {
    config.window_size = kInt32Max / draw.between(1, 3) - draw.between(0, 80);
    config.swa_block_size = std::max(config.swa_block_size, config.window_size);
  }
  return config;
}

int32_t draw_block(Draw& draw, const Config& config, bool huge) {
  if (!huge || !draw.chance(6)) return static_cast<int32_t>(draw.between(0, 40));
  const int64_t per_block = config.block_size / draw.pick(union_of_ratios(config));
  return static_cast<int32_t>(std::min(kInt32Max, (kInt32Max + 1) / per_block + draw.between(-1, 1)));
}

int64_t draw_state(Draw& draw, const Config& config, bool huge) {
  if (!huge || draw.chance(2)) return draw.between(0, 9);
  return std::max<int64_t>(0, (kInt32Max + 1) / config.swa_block_size + draw.between(-1, 1));
}

OwnedSequence draw_sequence(Draw& draw, const Batch& batch, Path path, bool huge) {
  const Config& config = batch.config;
  const std::vector<int64_t> edges = {0, 1, config.block_size, 2 * config.block_size, 4, 8, 12, 60};
  OwnedSequence sequence;
  int64_t known = draw.near(edges, 60);
  int64_t queries = std::min(known, draw.near(edges, 60));
  if (path == Path::decode) {
    known = std::max<int64_t>(1, known);
    queries = 1 + std::min<int64_t>(draw.between(0, 3), 60 - known);
    sequence = decode_rows(queries - 1, known + queries - 1, {});
  } else {
    sequence = prompt_chunk(queries, known, {});
  }
  const int64_t keys = sequence.scalars.seqlen_k;
  for (int64_t b = 0; b * config.block_size < keys; ++b) sequence.block_table.push_back(draw_block(draw, config, huge));
  sequence.scalars.state_id = draw_state(draw, config, huge);
  sequence.scalars.is_placeholder = draw.chance(4);
  sequence.scalars.swa_valid_start = draw.chance(8) ? kHuge : draw.chance(2) ? 0 : draw.near(edges, 60);
  sequence.scalars.data_len = draw.chance(9) ? kHuge : draw.chance(2) ? keys : draw.near(edges, 60);
  const int64_t compressed = draw.between(0, keys);
  const auto token = [&draw](int64_t largest) { return static_cast<int32_t>(draw.between(0, largest)); };
  for (int64_t t = 0; t < compressed; ++t) sequence.compressed_tokens.push_back(token(6));
  for (int64_t t = compressed; t < keys; ++t) sequence.recent_tokens.push_back(token(4));
  return sequence;
}

Batch draw_batch(Draw& draw, Path path, bool huge) {
  Batch batch{.config = draw_config(draw, huge), .lookup_table = {5, 4, 3, 2, 1}, .sequences = {}};
  batch.config.lookup_table.values = batch.lookup_table;
  const int64_t count = draw.between(1, 4);
  for (int64_t i = 0; i < count; ++i) batch.sequences.push_back(draw_sequence(draw, batch, path, huge));
  batch.table_columns = draw.between(0, 20);
  if (huge && draw.chance(4)) batch.table_columns = kInt32Max / draw.pick({4, 8, 12, 24, 48}) + draw.between(-1, 1);
  return batch;
}

/// Block tables with more columns than this are planned only: no test has the memory for them.
constexpr int64_t kWidestTable = 100;

/// Fills the batch; every cell of what is defined has been written. Returns whether the batch was accepted.
bool fill_batch(Path path, const Batch& batch) {
  const std::vector<Sequence> lent = views(batch.sequences);
  try {
    if (path == Path::decode && batch.table_columns > kWidestTable) {
      CHECK_EQ(plan_decode(batch.config, lent, batch.table_columns).max_num_blocks, batch.table_columns);
      return true;
    }
    const FilledStep step = path == Path::prompt ? fill_prompt(batch.config, batch.sequences)
                                                 : fill_decode(batch.config, batch.sequences, batch.table_columns);
    for (const auto& [key, cells] : step.fields) {
      const bool is_written = std::ranges::find(cells, FilledStep::kUnwritten) == cells.end();
      // Right of a sequence's blocks a row of the tables is not defined.
      if (key != "block_tables" && !is_written) report_failure(key + " has unwritten cells", std::source_location::current());
    }
    return true;
  } catch (const PreconditionError& error) {
    CHECK(error.condition == Condition::int32);
    return false;
  }
}

void sweep(Path path, bool huge, int batches, int least_refused) {
  int refused = 0;
  for (int seed = 0; seed < batches; ++seed) {
    Draw draw(static_cast<uint64_t>(seed));
    if (!fill_batch(path, draw_batch(draw, path, huge))) ++refused;
  }
  CHECK(refused >= least_refused);
  CHECK(refused <= batches / 2 || huge);
}

TEST(prompt_batches_stay_inside_their_buffers) { sweep(Path::prompt, false, 2000, 0); }
TEST(decode_batches_stay_inside_their_buffers) { sweep(Path::decode, false, 2000, 0); }
TEST(prompt_batches_at_the_limits_of_int32) { sweep(Path::prompt, true, 2000, 200); }
TEST(decode_batches_at_the_limits_of_int32) { sweep(Path::decode, true, 2000, 200); }

}  // namespace
}  // namespace inputmeta::test
