// The common base of both paths (section 2): positions, ids, flags, owners, n-grams, boundaries.
#pragma once

#include "core/plan.h"

namespace inputmeta {

/// positions, input_ids, gate_force_random, valid_token_mask, query_indices, ngram_token_ids, cu_seqlens_q,
/// cu_seqlens_k (F-POS, F-IDS, F-NGRAM, F-MASK, F-QIDX).
void fill_common(const Batch& batch, const Outputs& outputs);

}  // namespace inputmeta
