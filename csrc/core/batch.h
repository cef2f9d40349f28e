// What comes in (specification, section 1): the engine's configuration and the sequences of one step, as views.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/runs.h"

namespace inputmeta {

enum class Path { prompt, decode };

enum class YocoMode { off, mask, compact };

/// int32 values that the caller brought, not owned: their number is fixed, each of them may be changed by another thread
/// at any time, so that an index among them is bounded where it is used. `outside` is the decimal text of the first value that int32 cannot
/// hold (its cell in `values` is then meaningless) and empty when there is none: P-INT32 reports it.
struct IntArray {
  std::span<const int32_t> values;
  std::string_view outside;
  /// largest_unsigned(values), if the owner keeps it: a plan then need not read arrays that no step changed.
  std::optional<uint32_t> known_largest;

  int64_t size() const { return static_cast<int64_t>(values.size()); }
  int32_t operator[](int64_t index) const { return values[static_cast<size_t>(index)]; }
  uint32_t largest() const { return known_largest ? *known_largest : largest_unsigned(values); }
};

/// Fixed for an engine. Integers may be anything up to 2^62 in size: P-RATIO is checked by the plan, not by the type.
struct Config {
  int64_t block_size = 0;  ///< original tokens in one physical KV block
  std::vector<int64_t> dense_ratios;
  std::vector<int64_t> sparse_ratios;
  int64_t window_size = 0;     ///< W, tokens
  int64_t swa_block_size = 0;  ///< B, ring slots of one state block
  int64_t max_model_len = 0;   ///< tokens
  int64_t max_ngram_size = 0;  ///< columns of the look-back; 0 or less: off
  int64_t pad_token = 0;
  std::optional<int64_t> image_sentinel;  ///< none: no token cuts the look-back (I-12)
  IntArray lookup_table;                  ///< raw token -> compressed token
  int64_t cp_size = 1;
  int64_t cp_rank = 0;
  int64_t yoco_prefill_keep_tokens = 0;
  YocoMode yoco_mode = YocoMode::off;
  bool force_load_balance = false;
};

/// The numbers of one sequence of a step. Lengths are in original tokens.
struct SequenceScalars {
  int64_t seqlen_q = 0;
  int64_t seqlen_k = 0;
  int64_t state_id = 0;
  int64_t swa_valid_start = 0;
  int64_t data_len = 0;
  bool is_placeholder = false;
};

/// One sequence of a step.
struct Sequence : SequenceScalars {
  IntArray block_table;  ///< logical block -> physical block
  IntArray token_ids;
  IntArray draft_tokens;
  IntArray compressed_tokens;
  IntArray recent_tokens;

  /// Absolute position of the first query row.
  int64_t q_start() const { return seqlen_k - seqlen_q; }
};

/// Calls visit(index, sequence, first_row) for every sequence in batch order; first_row is its first query row.
template <class Visit>
void for_each_chunk(std::span<const Sequence> sequences, Visit visit) {
  int64_t first_row = 0;
  for (size_t index = 0; index < sequences.size(); ++index) {
    visit(static_cast<int64_t>(index), sequences[index], first_row);
    first_row += sequences[index].seqlen_q;
  }
}

}  // namespace inputmeta
