#include "zos_step.h"

#include <algorithm>
#include <limits>

namespace inputmeta::test {

Step::Step(const Config& with, const std::vector<Shape>& shapes)
    : config(with), ratios(with), ngram_columns(std::max<int64_t>(0, with.max_ngram_size)), offsets{0} {
  placeholders = std::make_unique<bool[]>(shapes.size());
  for (const Shape& shape : shapes) {
    placeholders[seqlens_q.size()] = shape.is_placeholder;
    total_q += shape.seqlen_q;
    longest = std::max(longest, shape.seqlen_q);
    seqlens_q.push_back(narrow(shape.seqlen_q));
    seqlens_k.push_back(narrow(shape.seqlen_k));
    ends.push_back(narrow(total_q));
    states.push_back(narrow(shape.state_id));
    const int64_t blocks = ratios.smallest().blocks_for(ratios.smallest().complete_tokens(shape.seqlen_k));
    for (int64_t k = 0; k < blocks; ++k) tables.push_back(narrow((tables.size() * 7 + 3) % 10007));
    offsets.push_back(static_cast<int64_t>(tables.size()));
    max_num_blocks = std::max(max_num_blocks, blocks);
  }
  if (tables.empty()) tables.push_back(0);
  for (int64_t k = 0; k < total_q; ++k) input_ids.push_back(narrow(k + 500));
  for (int64_t k = 0; k < total_q * ngram_columns; ++k) ngrams.push_back(narrow(k + 900));
  inputs = {.num_reqs = static_cast<int64_t>(shapes.size()),
            .seqlens_q = seqlens_q.data(),
            .seqlens_k = seqlens_k.data(),
            .cu_seqlens_q = ends.data(),
            .state_ids = states.data(),
            .is_placeholder = placeholders.get(),
            .block_tables_offsets = offsets.data(),
            .block_tables = tables.data()};
}

void Step::spoil(Draws& draw) {
  const auto index = static_cast<size_t>(draw(0, inputs.num_reqs - 1));
  switch (draw(0, 4)) {
    case 0: seqlens_q[index] = any_int32(draw); break;
    case 1: seqlens_k[index] = any_int32(draw); break;
    case 2: ends[index] = any_int32(draw); break;
    case 3: states[index] = any_int32(draw); break;
    default: offsets[index] = draw(0, 2) == 0 ? draw(-(1LL << 60), 1LL << 60) : any_int32(draw);
  }
}

int32_t any_int32(Draws& draw) {
  constexpr int32_t kExtremes[] = {0, 1, -1, 7, std::numeric_limits<int32_t>::max(),
                                   std::numeric_limits<int32_t>::min()};
  if (draw(0, 1) == 0) return kExtremes[draw(0, 5)];
  return static_cast<int32_t>(draw(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

Config simple_config() {
  Config config;
  config.block_size = 8;
  config.dense_ratios = {1};
  config.sparse_ratios = {4};
  config.window_size = 4;
  config.swa_block_size = 6;
  config.max_model_len = 1 << 20;
  return config;
}

Config random_config(Draws& draw) {
  const std::vector<int64_t> divisors = {1, 2, 3, 4, 5, 6, 10, 12, 15, 30, 60};
  Config config = simple_config();
  config.block_size = 60 * draw(1, 3);
  config.dense_ratios.clear();
  config.sparse_ratios = {divisors[static_cast<size_t>(draw(0, 10))]};
  for (int64_t k = draw(0, 2); k > 0; --k) config.dense_ratios.push_back(divisors[static_cast<size_t>(draw(0, 10))]);
  for (int64_t k = draw(0, 2); k > 0; --k) config.sparse_ratios.push_back(divisors[static_cast<size_t>(draw(0, 10))]);
  config.window_size = draw(1, 150);
  config.swa_block_size = config.window_size + draw(0, 9);
  if (draw(0, 9) == 0) config.window_size = config.swa_block_size = (int64_t{1} << 33) + 5;
  config.max_ngram_size = draw(0, 4);
  config.force_load_balance = draw(0, 1) == 1;
  return config;
}

std::vector<Shape> random_shapes(Draws& draw, int64_t count, int64_t longest, int64_t longest_context) {
  std::vector<Shape> shapes;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t seqlen_q = draw(1, longest);
    shapes.push_back({.seqlen_q = seqlen_q,
                      .seqlen_k = seqlen_q + draw(0, longest_context),
                      .state_id = draw(0, 2) == 0 ? 0 : draw(0, 50),
                      .is_placeholder = draw(0, 4) == 0});
  }
  return shapes;
}

}  // namespace inputmeta::test
