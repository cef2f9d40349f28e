#include "core/truncation.h"

#include "core/arithmetic.h"
#include "core/contributions.h"
#include "core/key_ranges.h"
#include "core/runs.h"
#include "core/sliding_window.h"

namespace inputmeta {
namespace {

Visibility visibility_of(const Batch& batch, int64_t index, const Sequence& sequence, const Truncation& truncation,
                         int64_t new_row) {
  return {.q_start = sequence.q_start(),
          .window_size = batch.config.window_size,
          .floor = truncation.visible_from(sequence),
          .history_row = index * batch.config.window_size,
          .new_row = batch.plan.total_k_swa + new_row};
}

/// F-RING for the kept rows; only rows inside the rectangle are stored.
void write_kept_slots(int32_t* out, const Sequence& sequence, const Truncation& truncation, int64_t ring) {
  const int64_t first = sequence.q_start() + truncation.clip_prefix;
  const int64_t begin = std::max({first, sequence.seqlen_k - ring, truncation.rect_begin});
  const bool stores = begin < truncation.rect_end && !sequence.is_placeholder;
  const int64_t before = stores ? begin - first : truncation.kept_rows(sequence);
  write_constant(out, before, -1);
  if (!stores) return;  // state_id * ring is known to fit only where a slot is stored
  write_ring(out + before, truncation.rect_end - begin, sequence.state_id * ring, begin, ring);
  write_constant(out + (truncation.rect_end - first), sequence.seqlen_k - truncation.rect_end, -1);
}

void fill_mask(const Batch& batch, const Outputs& outputs) {
  int32_t* const pivots = outputs.int32s(Field::yoco_mask_swa_index_pivots).data();
  const auto visit = [&](int64_t index, const Sequence& sequence, const Truncation& truncation, int64_t first_row,
                         int64_t) {
    const Visibility visibility = visibility_of(batch, index, sequence, truncation, first_row);
    write_pivots(pivots + 4 * first_row, visibility, 0, sequence.seqlen_q);
  };
  for_each_truncated(batch.config, batch.sequences, visit);
}

void fill_kept_rows(const Batch& batch, const Outputs& outputs) {
  int32_t* const boundaries = outputs.int32s(Field::yoco_consumer_cu_seqlens_q).data();
  int32_t* const rows = outputs.int32s(Field::yoco_consumer_query_indices).data();
  int32_t* const positions = outputs.int32s(Field::yoco_consumer_positions).data();
  int32_t* const slots = outputs.int32s(Field::yoco_consumer_slot_mapping_store_swa).data();
  int32_t* const pivots = outputs.int32s(Field::yoco_consumer_swa_index_pivots).data();
  boundaries[0] = 0;
  const auto visit = [&](int64_t index, const Sequence& sequence, const Truncation& truncation, int64_t first_row,
                         int64_t kept_row) {
    const int64_t clip = truncation.clip_prefix;
    const int64_t kept = truncation.kept_rows(sequence);
    boundaries[index + 1] = narrow(kept_row + kept);
    write_ramp(rows + kept_row, kept, narrow(first_row + clip));
    write_ramp(positions + kept_row, kept, narrow(sequence.q_start() + clip));
    write_kept_slots(slots + kept_row, sequence, truncation, batch.config.swa_block_size);
    // The new rows of the buffer are the kept ones: row clip of the chunk is the first.
    const Visibility visibility = visibility_of(batch, index, sequence, truncation, kept_row - clip);
    write_pivots(pivots + 4 * kept_row, visibility, clip, sequence.seqlen_q);
  };
  for_each_truncated(batch.config, batch.sequences, visit);
}

/// The bases are those of section 6, over all sequences: keys are not cut.
void fill_kept_ranges(const Batch& batch, const Outputs& outputs) {
  const auto each_chunk = [&](const Ratio& ratio, auto write) {
    int64_t base = 0;
    const auto visit = [&](int64_t, const Sequence& sequence, const Truncation& truncation, int64_t, int64_t kept_row) {
      const int64_t first_position = sequence.q_start() + truncation.clip_prefix;
      write(kept_row, truncation.kept_rows(sequence), narrow(base), first_position);
      base += compressed_key_rows(sequence, ratio);
    };
    for_each_truncated(batch.config, batch.sequences, visit);
  };
  for (const Ratio& ratio : batch.plan.ratios.sparse) {
    int32_t* const ks = outputs.int32s(Field::yoco_consumer_ks, ratio.value()).data();
    int32_t* const ke = outputs.int32s(Field::yoco_consumer_ke, ratio.value()).data();
    each_chunk(ratio, [&](int64_t row, int64_t kept, int32_t base, int64_t first_position) {
      write_constant(ks + row, kept, base);
      write_stairs(ke + row, kept, base, first_position + 1, ratio.value());
    });
  }
  for (const Ratio& ratio : batch.plan.ratios.dense) {
    int32_t* const offset_len = outputs.int32s(Field::yoco_consumer_kv_ca_index_offset_len, ratio.value()).data();
    each_chunk(ratio, [&](int64_t row, int64_t kept, int32_t base, int64_t first_position) {
      write_offset_len(offset_len + 2 * row, kept, base, 0, first_position + 1, ratio.value());
    });
  }
}

/// The second mirror, over the kept rows, with the keys of the whole sequences: that is what puts a kept row where it
/// stands in its sequence.
void fill_kept_mirror(const Batch& batch, const Outputs& outputs, const MirrorGroup& group) {
  const Boundaries kept = {.queries = outputs.int32s(Field::yoco_consumer_cu_seqlens_q),
                           .keys = outputs.int32s(Field::cu_seqlens_k)};
  write_mirror_index(kept, group, outputs.int32s(Field::yoco_consumer_mirror_cp_index).data());
  write_mirror_reverse_index(kept, group, outputs.int32s(Field::yoco_consumer_mirror_cp_reverse_index).data());
  for (const Ratio& ratio : batch.plan.ratios.sparse) {
    MirrorRanges ranges = {.ratio = ratio.value(),
                           .ks = outputs.int32s(Field::yoco_consumer_mirror_ks, ratio.value()).data(),
                           .ke = outputs.int32s(Field::yoco_consumer_mirror_ke, ratio.value()).data()};
    write_mirror_ranges(kept, group, {&ranges, 1});
  }
}

}  // namespace

Truncation::Truncation(const Sequence& sequence, const Config& config)
    : rect_begin(0), rect_end(std::min(sequence.data_len, sequence.seqlen_k)), clip_prefix(0) {
  const Wide first_token = Wide{sequence.data_len} - config.yoco_prefill_keep_tokens;
  rect_begin = static_cast<int64_t>(std::clamp<Wide>(first_token, 0, sequence.seqlen_k));
  if (config.yoco_mode == YocoMode::compact && sequence.seqlen_q > 0) {
    clip_prefix = std::clamp<int64_t>(rect_begin - sequence.q_start(), 0, sequence.seqlen_q - 1);
  }
}

ConsumerPlan plan_consumer(const Config& config, std::span<const Sequence> sequences) {
  ConsumerPlan plan;
  const MirrorGroup group(config.cp_size, config.cp_rank);
  const auto visit = [&](int64_t, const Sequence& sequence, const Truncation& truncation, int64_t, int64_t) {
    const int64_t kept = truncation.kept_rows(sequence);
    plan.total_q += kept;
    if (config.cp_size > 1) plan.cp_mirror_len += MirrorBlocks(kept, group).mirror_rows();
  };
  for_each_truncated(config, sequences, visit);
  if (config.cp_size > 1) plan_contributions(config, sequences, group, plan);
  return plan;
}

void fill_yoco_truncation_metadata(const Batch& batch, const Outputs& outputs) {
  if (batch.config.yoco_mode == YocoMode::mask) fill_mask(batch, outputs);
  if (batch.config.yoco_mode != YocoMode::compact) return;
  fill_kept_rows(batch, outputs);
  fill_kept_ranges(batch, outputs);
  if (batch.config.cp_size == 1) return;
  const MirrorGroup group(batch.config.cp_size, batch.config.cp_rank);
  fill_kept_mirror(batch, outputs, group);
  fill_contributions(batch, outputs, group);
}

}  // namespace inputmeta
