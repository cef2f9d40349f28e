// Builds a step for a test: sequences that own their arrays, and a filled step to read cells from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"

namespace inputmeta::test {

/// A small engine: block 8, ratios 1 and 4, W = 4, B = 6, contexts of up to 1000 tokens, no look-back.
Config small_config();

/// A sequence that owns what its views show. Token t of `token_ids` is 1000 + t.
struct OwnedSequence {
  Sequence scalars;
  std::vector<int32_t> block_table;
  std::vector<int32_t> token_ids;
  std::vector<int32_t> draft_tokens;
  std::vector<int32_t> compressed_tokens;
  std::vector<int32_t> recent_tokens;

  Sequence view() const;
};

/// A prompt chunk [seqlen_k - seqlen_q, seqlen_k) with just the tokens it needs.
OwnedSequence prompt_chunk(int64_t seqlen_q, int64_t seqlen_k, std::vector<int32_t> block_table, int64_t state_id = 0);

/// A decode row at position seqlen_k - 1 - drafts, and its drafts 2000, 2001, ….
OwnedSequence decode_rows(int64_t drafts, int64_t seqlen_k, std::vector<int32_t> block_table, int64_t state_id = 0);

std::vector<Sequence> views(const std::vector<OwnedSequence>& sequences);
std::vector<Sequence> views(std::vector<OwnedSequence>&&) = delete;  // the views would outlive what they show

/// All fields of a step by flat key; bool fields as 0 and 1. Each tensor has its own heap block, so that the sanitizer
/// sees a write outside; all start as kUnwritten.
struct FilledStep {
  static constexpr int32_t kUnwritten = -77777777;

  Plan plan;
  std::map<std::string, std::vector<int32_t>> fields;

  const std::vector<int32_t>& operator[](const std::string& key) const { return fields.at(key); }
};

FilledStep fill_prompt(const Config& config, const std::vector<OwnedSequence>& sequences);
FilledStep fill_decode(const Config& config, const std::vector<OwnedSequence>& sequences,
                       std::optional<int64_t> table_columns = std::nullopt);

}  // namespace inputmeta::test
