// Key ranges: the compressed keys a row sees, in the loaded history (prompt) or through block tables (decode), section
// 6 of the specification.
#pragma once

#include <algorithm>

#include "core/batch.h"
#include "core/plan.h"
#include "core/ratios.h"

namespace inputmeta {

/// Rows that a sequence's compressed keys take in the loaded history: one even when no token is complete. The load plan
/// (F-CAPLAN), ks/ke (F-KS) and the dense offsets (F-CAOFF) all step by this one formula.
inline int64_t compressed_key_rows(const Sequence& sequence, const Ratio& ratio) {
  return std::max<int64_t>(1, ratio.complete_tokens(sequence.seqlen_k));
}

/// F-CAPLAN: segments that load a sequence's compressed keys, one a physical block.
inline int64_t compressed_load_segments(const Sequence& sequence, const Ratio& ratio) {
  return ratio.blocks_for(compressed_key_rows(sequence, ratio));
}

/// Prompt: load_segments_ca of every ca ratio (F-CAPLAN).
void fill_compressed_load_plan(const Batch& batch, const Outputs& outputs);

/// Prompt: ks and ke of every sparse ratio (F-KS).
void fill_key_ranges(const Batch& batch, const Outputs& outputs);

/// kv_ca_index_offset_len of every dense ratio (F-CAOFF). Prompt: into the loaded history, all rows of a sequence from
/// its base; decode: into the flattened block tables, a table a row.
void fill_dense_offsets(const Batch& batch, const Outputs& outputs);

/// Decode: klen of every sparse ratio, and context_lens (section 6).
void fill_key_lengths(const Batch& batch, const Outputs& outputs);

}  // namespace inputmeta
