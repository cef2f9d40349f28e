// Steps of ZOS decode as arrays, made without sequences: as many rows and sequences as a test wants, and, where it
// wants, arrays that do not agree.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/ratios.h"
#include "core/zos_arrays.h"
#include "core/zos_gather.h"
#include "emulate.h"

namespace inputmeta::test {

/// One sequence; its blocks are counted from its length.
struct Shape {
  int64_t seqlen_q = 1;
  int64_t seqlen_k = 1;
  int64_t state_id = 0;
  bool is_placeholder = false;
};

struct Step {
  Config config;
  Ratios ratios;
  int64_t total_q = 0;
  int64_t longest = 0;
  int64_t max_num_blocks = 1;
  int64_t ngram_columns = 0;
  std::vector<int32_t> seqlens_q, seqlens_k, ends, states, tables, input_ids, ngrams;
  std::vector<int64_t> offsets;
  std::unique_ptr<bool[]> placeholders;
  ZosInputs inputs;
  ZosTokenSources sources;  ///< but the fresh ids; without an extracted layout of its own unless a test says so

  Step(const Config& config, const std::vector<Shape>& shapes);
  /// Puts any value into one cell of one array.
  void spoil(Draws& draw);
};

/// Block 8, ratios 1 and 4, W = 4, B = 6.
Config simple_config();
/// Ratios, windows and blocks that are mostly no powers of two; some beyond 32 bits.
Config random_config(Draws& draw);
std::vector<Shape> random_shapes(Draws& draw, int64_t count, int64_t longest, int64_t longest_context);
/// An extreme value, or any.
int32_t any_int32(Draws& draw);

}  // namespace inputmeta::test
