// Sliding window: ring slots, the load plan of the history, and the keys a row sees (section 5).
#pragma once

#include <algorithm>

#include "core/batch.h"
#include "core/plan.h"
#include "core/runs.h"

namespace inputmeta {

/// F-SWAPLAN: what a prompt's window history [q_start - W, q_start) is loaded from. The first `padding` rows are zeros,
/// the others come from ring positions [begin, end) of the sequence's state block.
struct WindowHistory {
  int64_t padding;
  int64_t begin;
  int64_t end;

  WindowHistory(const Sequence& sequence, int64_t window_size);
};

/// F-SWAPLAN: segments of one sequence's history; at least one, as W >= 1.
int64_t window_load_segments(const Sequence& sequence, const Config& config);

/// F-PIVOT for one chunk: what its rows see of the buffer [history rows][new rows].
struct Visibility {
  int64_t q_start;
  int64_t window_size;
  int64_t floor;        ///< no position below is seen: max(rect_lo, swa_valid_start)
  int64_t history_row;  ///< sec1: buffer row of position q_start - W
  int64_t new_row;      ///< sec2: buffer row of position q_start

  /// P0 … P3 of row j of the chunk: begin and length of the run in the history, then in the new rows.
  Quad pivots(int64_t j) const;
};

/// Rows [begin, end) of a chunk; in each of at most four stretches the pivots step by a constant.
void write_pivots(int32_t* out, const Visibility& visibility, int64_t begin, int64_t end);

/// slot_mapping_store_swa (F-RING), both paths.
void fill_ring_slots(const Batch& batch, const Outputs& outputs);

/// Prompt: state_block_idx (one a sequence), load_segments_swa (F-SWAPLAN), kv_swa_full_index_pivots (F-PIVOT).
void fill_window_prompt(const Batch& batch, const Outputs& outputs);

/// Decode: state_block_idx (one a query row) and kv_swa_index_offset_len (F-SWADEC).
void fill_window_decode(const Batch& batch, const Outputs& outputs);

}  // namespace inputmeta
