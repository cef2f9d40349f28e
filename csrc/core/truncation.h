// YoCo prefill truncation (section 8): only the last keep_tokens tokens of a sequence take part. Mask mode narrows what
// each row sees; compact mode also cuts rows off the begin of a chunk and gives the kept rows a layout of their own,
// the consumer's.
#pragma once

#include <algorithm>

#include "core/batch.h"
#include "core/mirror.h"
#include "core/plan.h"

namespace inputmeta {

/// The positions [rect_begin, rect_end) of one sequence that take part, cut to [0, seqlen_k], and what that leaves of
/// its chunk. Total: any data_len and keep_tokens are accepted (I-6).
struct Truncation {
  int64_t rect_begin;   ///< F-VIS: no position below is seen
  int64_t rect_end;     ///< rows from here on are computed, but their keys are not stored
  int64_t clip_prefix;  ///< F-CLIP: rows cut off the begin of the chunk; one row of a chunk always stays

  Truncation(const Sequence& sequence, const Config& config);

  int64_t kept_rows(const Sequence& sequence) const { return sequence.seqlen_q - clip_prefix; }
  /// No position below is seen: neither outside the rectangle nor untrusted.
  int64_t visible_from(const Sequence& sequence) const {
    return std::min(std::max(rect_begin, sequence.swa_valid_start), sequence.seqlen_k);
  }
};

/// Calls visit(index, sequence, truncation, first_row, kept_row) for every sequence in batch order: first_row is its
/// first row in the full layout, kept_row its first row in the consumer's.
template <class Visit>
void for_each_truncated(const Config& config, std::span<const Sequence> sequences, Visit visit) {
  int64_t kept_row = 0;
  for_each_chunk(sequences, [&](int64_t index, const Sequence& sequence, int64_t first_row) {
    const Truncation truncation(sequence, config);
    visit(index, sequence, truncation, first_row, kept_row);
    kept_row += truncation.kept_rows(sequence);
  });
}

/// Sizes of compact mode, those of its mirror with cp_size > 1. The batch's totals are known to fit.
ConsumerPlan plan_consumer(const Config& config, std::span<const Sequence> sequences);

/// P-INT32 on the pivots that truncation adds to a prompt step. All other values are in the full layout too, or lower:
/// the mirror of kept rows reaches no further than that of all rows, and a row's place among the contributions counts
/// kept rows only.
void check_truncation_int32(const Batch& batch);

/// Prompt: the yoco_* fields of the configured mode (F-CLIP, F-VIS, F-COMPACT, F-CONTRIB). Reads cu_seqlens_k, which is
/// filled before.
void fill_yoco_truncation_metadata(const Batch& batch, const Outputs& outputs);

}  // namespace inputmeta
