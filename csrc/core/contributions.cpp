#include "core/contributions.h"

#include <algorithm>
#include <vector>

#include "core/arithmetic.h"
#include "core/runs.h"
#include "core/truncation.h"

namespace inputmeta {
namespace {

/// The full mirror's cut of one chunk of which the first `clip` rows are not kept.
struct KeptBlocks {
  MirrorBlocks blocks;
  int64_t clip;

  int64_t first_kept(int64_t block) const { return std::max(blocks.begin(block), clip); }
  int64_t kept_in(int64_t block) const { return std::max<int64_t>(blocks.end(block) - first_kept(block), 0); }
};

/// Kept rows of each rank's full mirror, of the sequences so far; only ranks that can own rows are there.
class KeptByRank {
 public:
  KeptByRank(std::span<const Sequence> sequences, const MirrorGroup& group) {
    int64_t longest = 0;
    for (const Sequence& sequence : sequences) longest = std::max(longest, sequence.seqlen_q);
    kept_.resize(static_cast<size_t>(std::min(longest, group.size())));
  }

  int64_t& operator[](int64_t rank) { return kept_[static_cast<size_t>(rank)]; }
  int64_t largest() const { return kept_.empty() ? 0 : *std::ranges::max_element(kept_); }

  void add(const KeptBlocks& chunk, const MirrorGroup& group) {
    if (chunk.blocks.rows == 0) return;
    const int64_t first_block = chunk.clip / chunk.blocks.block_rows;
    for (int64_t block = first_block; chunk.blocks.begin(block) < chunk.blocks.rows; ++block) {
      (*this)[group.owner_of(block)] += chunk.kept_in(block);
    }
  }

 private:
  std::vector<int64_t> kept_;
};

/// Appends the runs of the chunk rows [begin, end), all kept; the first of them is row `mirror_row` of the compact
/// mirror. A run ends with a block of the full mirror.
void append_runs(std::vector<BoundaryRun>& runs, int64_t begin, int64_t end, int64_t mirror_row,
                 const KeptBlocks& chunk, const MirrorGroup& group, KeptByRank& before) {
  for (int64_t row = begin; row < end;) {
    const int64_t block = row / chunk.blocks.block_rows;
    const int64_t owner = group.owner_of(block);
    const int64_t count = std::min(end, chunk.blocks.end(block)) - row;
    const int64_t early = group.is_late(block) ? chunk.kept_in(owner) : 0;  // the owner's other block comes first
    runs.push_back({.row = mirror_row + (row - begin),
                    .count = count,
                    .owner = owner,
                    .place = before[owner] + early + row - chunk.first_kept(block)});
    row += count;
  }
}

void fill_contrib_index(const Batch& batch, const MirrorGroup& group, std::span<int32_t> index) {
  int32_t* cell = index.data();
  int64_t offset = 0;
  const auto visit = [&](int64_t, const Sequence& sequence, const Truncation& truncation, int64_t, int64_t) {
    const KeptBlocks chunk = {MirrorBlocks(sequence.seqlen_q, group), truncation.clip_prefix};
    for (const int64_t block : group.own_blocks()) {
      const int64_t clipped = chunk.first_kept(block) - chunk.blocks.begin(block);
      const int64_t kept = chunk.kept_in(block);
      write_ramp(cell, kept, narrow(offset + chunk.blocks.place_of(block, group) + clipped));
      cell += kept;
    }
    offset += chunk.blocks.mirror_rows();
  };
  for_each_truncated(batch.config, batch.sequences, visit);
  std::fill(cell, index.data() + index.size(), -1);
}

}  // namespace

void plan_contributions(const Config& config, std::span<const Sequence> sequences, const MirrorGroup& group,
                        ConsumerPlan& plan) {
  KeptByRank kept_by_rank(sequences, group);
  // A compact block has no more rows than a full one, so it lies in two of them at most.
  plan.boundary_runs.reserve(4 * sequences.size());
  int64_t mirror_row = 0;
  const auto visit = [&](int64_t, const Sequence& sequence, const Truncation& truncation, int64_t, int64_t) {
    const int64_t clip = truncation.clip_prefix;
    const KeptBlocks chunk = {MirrorBlocks(sequence.seqlen_q, group), clip};
    const MirrorBlocks compact(truncation.kept_rows(sequence), group);
    for (const int64_t block : group.own_blocks()) {
      append_runs(plan.boundary_runs, clip + compact.begin(block), clip + compact.end(block), mirror_row, chunk, group,
                  kept_by_rank);
      mirror_row += compact.block_rows;
    }
    kept_by_rank.add(chunk, group);
  };
  for_each_truncated(config, sequences, visit);
  plan.contrib_pad_len = kept_by_rank.largest();
}

void fill_contributions(const Batch& batch, const Outputs& outputs, const MirrorGroup& group) {
  const ConsumerPlan& plan = batch.plan.consumer;
  fill_contrib_index(batch, group, outputs.int32s(Field::yoco_cp_contrib_index));
  const std::span<int32_t> boundary = outputs.int32s(Field::yoco_cp_boundary_index);
  std::ranges::fill(boundary, -1);
  for (const BoundaryRun& run : plan.boundary_runs) {
    write_ramp(boundary.data() + run.row, run.count, narrow(run.owner * plan.contrib_pad_len + run.place));
  }
}

}  // namespace inputmeta
