#include "core/sliding_window.h"

#include <array>

#include "core/arithmetic.h"

namespace inputmeta {
namespace {

/// Ring slots of the rows of one chunk: a row that a later row of the chunk overwrites is not stored.
void write_ring_slots(int32_t* out, const Sequence& sequence, int64_t ring) {
  const int64_t stored = sequence.is_placeholder ? 0 : std::min(ring, sequence.seqlen_q);
  const int64_t overwritten = sequence.seqlen_q - stored;
  write_constant(out, overwritten, -1);
  if (stored == 0) return;  // state_id * ring is known to fit only where a slot is stored
  write_ring(out + overwritten, stored, sequence.state_id * ring, sequence.q_start() + overwritten, ring);
}

/// One sequence's segments [block, begin, end, dst]; returns the next free segment.
int32_t* write_history_segments(int32_t* segment, const Sequence& sequence, const Config& config, int64_t dst) {
  const auto append = [&](int64_t block, int64_t begin, int64_t end) {
    const Quad row = {narrow(block), narrow(begin), narrow(end), narrow(dst)};
    segment = std::copy_n(row.data(), row.size(), segment);
    dst += end - begin;
  };
  const WindowHistory history(sequence, config.window_size);
  if (history.padding > 0) append(-1, 0, history.padding);
  const int64_t ring = config.swa_block_size;
  int64_t slot = history.begin % ring;
  for (int64_t left = history.end - history.begin; left > 0; slot = 0) {
    const int64_t run = std::min(left, ring - slot);
    append(sequence.state_id, slot, slot + run);
    left -= run;
  }
  return segment;
}

/// F-SWADEC: row j's window begins at ring slot of max(0, pos - W + 1) and has min(pos + 1, W) keys.
void write_window_offsets(int32_t* out, const Sequence& sequence, const Config& config) {
  const int64_t ring = config.swa_block_size;
  const int64_t state_begin = sequence.state_id * ring;
  int64_t position = sequence.q_start();
  int64_t slot = std::max<int64_t>(0, position - config.window_size + 1) % ring;
  for (int64_t j = 0; j < sequence.seqlen_q; ++j, ++position) {
    out[2 * j] = narrow(state_begin + slot);
    out[2 * j + 1] = narrow(std::min(position + 1, config.window_size));
    const bool window_is_full = position + 1 >= config.window_size;
    if (window_is_full) slot = slot + 1 == ring ? 0 : slot + 1;
  }
}

}  // namespace

WindowHistory::WindowHistory(const Sequence& sequence, int64_t window_size) : end(sequence.q_start()) {
  const int64_t window_begin = end - window_size;
  padding = std::clamp<int64_t>(sequence.swa_valid_start - window_begin, 0, window_size);
  begin = window_begin + padding;
}

int64_t window_load_segments(const Sequence& sequence, const Config& config) {
  const WindowHistory history(sequence, config.window_size);
  const int64_t zero_fill = history.padding > 0 ? 1 : 0;
  if (history.begin == history.end) return zero_fill;
  const bool wraps = history.begin % config.swa_block_size + (history.end - history.begin) > config.swa_block_size;
  return zero_fill + (wraps ? 2 : 1);
}

Quad Visibility::pivots(int64_t j) const {
  const int64_t position = q_start + j;
  const int64_t lowest = std::clamp<int64_t>(std::max(position - window_size + 1, floor), 0, position + 1);
  const int64_t start = std::min(lowest, q_start) - (q_start - window_size);
  const int64_t first_new = std::max<int64_t>(lowest - q_start, 0);
  return {narrow(history_row + start), narrow(window_size - start), narrow(new_row + first_new),
          narrow(j - first_new + 1)};
}

void write_pivots(int32_t* out, const Visibility& visibility, int64_t begin, int64_t end) {
  const int64_t sees_floor = visibility.floor - visibility.q_start;  // first row that sees anything
  const int64_t leaves_floor = sees_floor + visibility.window_size;  // first row whose window begins above the floor
  const int64_t leaves_history = visibility.window_size - 1;         // first row whose window is in the chunk
  std::array<int64_t, 5> stretches = {begin, sees_floor, leaves_floor, leaves_history, end};
  for (int64_t& row : stretches) row = std::clamp(row, begin, end);
  std::sort(stretches.begin(), stretches.end());
  for (size_t k = 0; k + 1 < stretches.size(); ++k) {
    const int64_t count = stretches[k + 1] - stretches[k];
    if (count == 0) continue;
    const Quad first = visibility.pivots(stretches[k]);
    Quad step = {};
    if (count > 1) {
      step = visibility.pivots(stretches[k] + 1);
      for (size_t cell = 0; cell < step.size(); ++cell) step[cell] -= first[cell];
    }
    write_quads(out + 4 * (stretches[k] - begin), count, first, step);
  }
}

void fill_ring_slots(const Batch& batch, const Outputs& outputs) {
  int32_t* const slots = outputs.int32s(Field::slot_mapping_store_swa).data();
  for_each_chunk(batch.sequences, [&](int64_t, const Sequence& sequence, int64_t first_row) {
    write_ring_slots(slots + first_row, sequence, batch.config.swa_block_size);
  });
}

void fill_window_prompt(const Batch& batch, const Outputs& outputs) {
  const int64_t window = batch.config.window_size;
  int32_t* const states = outputs.int32s(Field::state_block_idx).data();
  int32_t* segment = outputs.int32s(Field::load_segments_swa).data();
  int32_t* const pivots = outputs.int32s(Field::kv_swa_full_index_pivots).data();
  for_each_chunk(batch.sequences, [&](int64_t index, const Sequence& sequence, int64_t first_row) {
    states[index] = narrow(sequence.state_id);
    segment = write_history_segments(segment, sequence, batch.config, index * window);
    const Visibility visibility = {.q_start = sequence.q_start(),
                                   .window_size = window,
                                   .floor = std::min(sequence.swa_valid_start, sequence.seqlen_k),
                                   .history_row = index * window,
                                   .new_row = batch.plan.total_k_swa + first_row};
    write_pivots(pivots + 4 * first_row, visibility, 0, sequence.seqlen_q);
  });
}

void fill_window_decode(const Batch& batch, const Outputs& outputs) {
  int32_t* const states = outputs.int32s(Field::state_block_idx).data();
  int32_t* const windows = outputs.int32s(Field::kv_swa_index_offset_len).data();
  for_each_chunk(batch.sequences, [&](int64_t, const Sequence& sequence, int64_t first_row) {
    write_constant(states + first_row, sequence.seqlen_q, narrow(sequence.state_id));
    write_window_offsets(windows + 2 * first_row, sequence, batch.config);
  });
}

}  // namespace inputmeta
