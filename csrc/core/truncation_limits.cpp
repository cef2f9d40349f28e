#include "core/int32_limits.h"
#include "core/truncation.h"

namespace inputmeta {
namespace {

void check_mask(const Batch& batch) {
  const auto visit = [&](int64_t index, const Sequence& sequence, const Truncation& truncation, int64_t first_row,
                         int64_t) {
    check_pivots(batch, index, truncation.visible_from(sequence), first_row + sequence.seqlen_q,
                 "yoco_mask_swa_index_pivots");
  };
  for_each_truncated(batch.config, batch.sequences, visit);
}

void check_compact(const Batch& batch) {
  const auto visit = [&](int64_t index, const Sequence& sequence, const Truncation& truncation, int64_t,
                         int64_t kept_row) {
    const int64_t kept = truncation.kept_rows(sequence);
    check_pivots(batch, index, truncation.visible_from(sequence), kept_row + kept, "yoco_consumer_swa_index_pivots");
  };
  for_each_truncated(batch.config, batch.sequences, visit);
}

}  // namespace

void check_truncation_int32(const Batch& batch) {
  if (batch.config.yoco_mode == YocoMode::mask) check_mask(batch);
  if (batch.config.yoco_mode == YocoMode::compact) check_compact(batch);
}

}  // namespace inputmeta
