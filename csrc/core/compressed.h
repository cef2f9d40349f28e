// Compressed KV: which compressed tokens a step completes, and where they are stored (section 3).
#pragma once

#include <algorithm>

#include "core/batch.h"
#include "core/plan.h"
#include "core/ratios.h"

namespace inputmeta {

/// The compressed tokens [begin, end) whose last original token is one of the step's queries.
struct CompressedRange {
  int64_t begin;
  int64_t end;

  bool empty() const { return begin == end; }
  /// F-NCQ: an empty range still takes one row of a prompt.
  int64_t rows() const { return std::max<int64_t>(1, end - begin); }
};

inline CompressedRange compressed_range(const Sequence& sequence, const Ratio& ratio) {
  return {ratio.complete_tokens(sequence.q_start()), ratio.complete_tokens(sequence.seqlen_k)};
}

/// Prompt: cu_compressed_seqlens_q, positions_c and slot_mapping_store_ca of every ca ratio (F-NCQ, F-CPOS, F-CSLOT).
void fill_compressed_prompt(const Batch& batch, const Outputs& outputs);

/// Decode: positions_c and slot_mapping_store_ca of every ca ratio, a row a query row (F-CDEC, F-CSLOT).
void fill_compressed_decode(const Batch& batch, const Outputs& outputs);

}  // namespace inputmeta
