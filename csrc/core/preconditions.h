// The preconditions on what comes in: P-RATIO, P-LEN, P-TABLE, P-STATE, P-NGRAM, and P-INT32 of the inputs.
#pragma once

#include <span>

#include "core/batch.h"
#include "core/ratios.h"

namespace inputmeta {

/// P-RATIO, which the ratios themselves suppose.
void check_ratios(const Config& config);

/// P-LEN, P-TABLE, P-STATE, P-NGRAM, and P-INT32 of the inputs (I-10), in this order; within a condition, sequences in
/// order. P-INT32 of the outputs is in int32_limits.h: it supposes that all of these hold.
void check_sequences(Path path, const Config& config, const Ratios& ratios, std::span<const Sequence> sequences);

}  // namespace inputmeta
