// The look-back of Engram (F-NGRAM).
#pragma once

#include <cstdint>
#include <span>

#include "core/batch.h"

namespace inputmeta {

/// ngram_token_ids, [rows of all chunks, max_ngram_size]; max_ngram_size > 0.
void write_ngrams(const Config& config, std::span<const Sequence> sequences, int32_t* rows);

}  // namespace inputmeta
