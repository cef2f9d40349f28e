// The look-back of Engram (F-NGRAM).
#pragma once

#include "core/plan.h"

namespace inputmeta {

/// ngram_token_ids; max_ngram_size > 0.
void fill_ngrams(const Batch& batch, const Outputs& outputs);

}  // namespace inputmeta
