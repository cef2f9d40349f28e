#include "core/int32_limits.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/compressed.h"
#include "core/error.h"
#include "core/mirror.h"
#include "core/truncation.h"

namespace inputmeta {
namespace {

std::string bucket(const char* name, int64_t ratio) { return std::string(name) + "." + std::to_string(ratio); }

/// Rows of the window history of all sequences; the plan's total_k_swa is not known to fit yet.
Wide window_rows(const Batch& batch) { return Wide{batch.plan.num_reqs} * batch.config.window_size; }

/// Largest slot(c) over the compressed tokens c of [first, end), which is not empty: in every block but the last the
/// range reaches the block's last slot.
Wide largest_slot(const Sequence& sequence, int64_t first, int64_t end, const Ratio& ratio) {
  const int64_t tokens_per_block = ratio.tokens_per_block();
  const int64_t first_block = ratio.block_of(first);
  const int64_t last_block = ratio.block_of(end - 1);
  const auto blocks = sequence.block_table.values;
  Wide largest = Wide{blocks[static_cast<size_t>(last_block)]} * tokens_per_block + ratio.place_of(end - 1);
  if (first_block < last_block) {
    const int32_t largest_block = *std::max_element(blocks.begin() + first_block, blocks.begin() + last_block);
    largest = std::max(largest, Wide{largest_block} * tokens_per_block + (tokens_per_block - 1));
  }
  return largest;
}

/// F-CSLOT where it is stored (never for a placeholder) and, in decode, where the dense expansion reads it.
void check_slots(const Batch& batch, int64_t index, const Sequence& sequence) {
  // Nearly always no block of the table can reach the bound, at any place and ratio: one pass instead of two a ratio.
  const Wide largest_block = sequence.block_table.largest();
  if (fits_int32((largest_block + 1) * batch.plan.ratios.smallest().tokens_per_block() - 1)) return;
  for (const Ratio& ratio : batch.plan.ratios.ca) {
    const CompressedRange stored = compressed_range(sequence, ratio);
    if (!stored.empty() && !sequence.is_placeholder) {
      require_fits(largest_slot(sequence, stored.begin, stored.end, ratio), index, "slot_mapping_store_ca",
                   ratio.value());
    }
    const bool expanded = batch.plan.path == Path::decode && batch.plan.ratios.is_dense(ratio);
    if (expanded && stored.end > 0) {
      require_fits(largest_slot(sequence, 0, stored.end, ratio), index, "kv_ca_index", ratio.value());
    }
  }
}

/// F-RING where it is stored, and the state's own number, which is written for placeholders too.
void check_ring(const Batch& batch, int64_t index, const Sequence& sequence) {
  require_fits(sequence.state_id, index, "state_block_idx");
  const int64_t ring = batch.config.swa_block_size;
  const Wide state_begin = Wide{sequence.state_id} * ring;
  if (fits_int32(state_begin + (ring - 1))) return;  // nearly always: no slot of the ring is past the bound
  const int64_t stored_begin = sequence.seqlen_k - std::min(ring, sequence.seqlen_q);
  if (stored_begin < sequence.seqlen_k && !sequence.is_placeholder) {
    require_fits(state_begin + largest_ring_offset(stored_begin, sequence.seqlen_k, ring), index,
                 "slot_mapping_store_swa");
  }
  if (batch.plan.path == Path::prompt) return;
  const int64_t window_begin = std::max<int64_t>(0, sequence.q_start() - batch.config.window_size + 1);
  require_fits(state_begin + largest_ring_offset(window_begin, sequence.seqlen_k, ring), index, "kv_swa_index");
}

/// F-REVERSE of the full layout, which prepare_for_mirror_cp writes.
void check_reverse_index(const Batch& batch) {
  const MirrorGroup group(batch.config.cp_size, batch.config.cp_rank);
  int64_t offset = 0;
  for_each_chunk(batch.sequences, [&](int64_t index, const Sequence& sequence, int64_t) {
    const Wide largest = largest_reverse_index(sequence.seqlen_q, offset, batch.plan.cp_mirror_len, group);
    require_fits(largest, index, "mirror_cp_reverse_index");
    offset += MirrorBlocks(sequence.seqlen_q, group).mirror_rows();
  });
}

void check_prompt_totals(const Batch& batch) {
  const Plan& plan = batch.plan;
  require_fits(window_rows(batch), kNoSequence, "total_k_swa");
  require_fits(plan.cp_mirror_len, kNoSequence, "cp_mirror_len");
  for (const CompressedSizes& sizes : plan.compressed) {
    require_fits(sizes.rows, kNoSequence, "cu_compressed_seqlens_q", sizes.ratio);
    require_fits(sizes.total_k, kNoSequence, "total_k_compressed", sizes.ratio);
  }
}

/// The product bound of F-LIMIT: past the last row's last cell of the flattened block tables.
void check_decode_totals(const Batch& batch) {
  const Plan& plan = batch.plan;
  if (plan.ratios.dense.empty()) return;
  const Ratio& smallest = plan.ratios.dense.front();
  const Wide cells = Wide{plan.total_q} * plan.max_num_blocks;
  const Wide bound = cells * smallest.tokens_per_block();
  if (fits_int32(bound)) return;
  refuse(Condition::int32, kNoSequence, bucket("kv_ca_index_offset_len", smallest.value()), bound,
         "total_q * max_num_blocks * (block_size // min(dense_ratios)) <= 2^31 - 1");
}

}  // namespace

/// The field's name is built only for a refusal: this runs for every sequence.
void require_fits(Wide value, int64_t sequence, const char* field, int64_t ratio) {
  if (fits_int32(value)) return;
  refuse(Condition::int32, sequence, ratio == 0 ? field : bucket(field, ratio), value, "every value fits in int32");
}

/// The largest value is the last row's own key, or where that row points when it sees nothing.
void check_pivots(const Batch& batch, int64_t index, int64_t visible_from, Wide end_row, const char* field) {
  const Sequence& sequence = batch.sequences[static_cast<size_t>(index)];
  if (sequence.seqlen_q == 0) return;
  const bool sees_nothing = visible_from > sequence.seqlen_k - 1;
  require_fits(window_rows(batch) + end_row - (sees_nothing ? 0 : 1), index, field);
}

void check_totals_int32(std::span<const Sequence> sequences) {
  Wide total_q = 0;
  Wide total_k = 0;
  for (const Sequence& sequence : sequences) {
    total_q += sequence.seqlen_q;
    total_k += sequence.seqlen_k;
  }
  require_fits(total_q, kNoSequence, "total_q");
  require_fits(total_k, kNoSequence, "cu_seqlens_k");
}

void check_outputs_int32(const Batch& batch) {
  const bool is_prompt = batch.plan.path == Path::prompt;
  is_prompt ? check_prompt_totals(batch) : check_decode_totals(batch);
  for_each_chunk(batch.sequences, [&](int64_t index, const Sequence& sequence, int64_t first_row) {
    check_ring(batch, index, sequence);
    check_slots(batch, index, sequence);
    if (!is_prompt) return;
    check_pivots(batch, index, sequence.swa_valid_start, first_row + sequence.seqlen_q, "kv_swa_full_index_pivots");
  });
  if (!is_prompt) return;
  if (batch.config.cp_size > 1) check_reverse_index(batch);
  check_truncation_int32(batch);
}

}  // namespace inputmeta
