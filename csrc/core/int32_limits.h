// P-INT32 on what is written (section 9), exact: a batch is refused if and only if a value of its fields, expansions
// included, leaves int32 or the product bound of F-LIMIT is broken (I-11). Found by maxima a sequence and a block, in
// 128 bits, without visiting rows.
#pragma once

#include <span>

#include "core/arithmetic.h"
#include "core/batch.h"
#include "core/plan.h"

namespace inputmeta {

/// Throws PreconditionError(P-INT32). All other preconditions hold and `plan` has its sizes, still unchecked.
void check_outputs_int32(const Batch& batch);

/// Throws PreconditionError(P-INT32) unless int32 holds `value` of `field`; `ratio` is its bucket, 0 without buckets.
void require_fits(Wide value, int64_t sequence, const char* field, int64_t ratio = 0);

/// P-INT32 on the pivots (F-PIVOT) of a sequence that sees no position below `visible_from` and whose last row is row
/// end_row - 1 of the buffer's new rows.
void check_pivots(const Batch& batch, int64_t index, int64_t visible_from, Wide end_row, const char* field);

/// Throws PreconditionError(P-INT32) for the first total that int32 cannot hold: total_q and the sum of seqlen_k. The
/// plan needs these before it may count rows in int64.
void check_totals_int32(std::span<const Sequence> sequences);

}  // namespace inputmeta
