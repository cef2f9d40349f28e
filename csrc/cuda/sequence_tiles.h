// How threads are dealt out over the rows of sequences: a group of 32 lanes takes several sequences side by side, a
// power of two of lanes each, so that lanes that are neighbours write rows that are neighbours. Any number of rows and
// of sequences is right; the sizes that the host knows only make it fast.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/exact_divisor.h"

namespace inputmeta::cuda {

inline constexpr uint32_t kWarp = 32;
/// Blocks that a grid may have in its first dimension.
inline constexpr int64_t kGridLimit = (int64_t{1} << 31) - 1;

struct SequenceTiles {
  uint32_t num_reqs = 0;
  uint32_t slots_log2 = 0;  ///< lanes of one sequence
  ExactDivisor row_tiles;   ///< groups that share the rows of the same sequences
  uint32_t groups = 0;      ///< groups of lanes in all

  INPUTMETA_ANYWHERE uint32_t sequences_per_group() const { return kWarp >> slots_log2; }

  /// Calls visit(index, j, step) for the lane's sequence, if it has one: its rows are j, j + step, j + 2 * step, ….
  template <class Visit>
  INPUTMETA_ANYWHERE void visit(uint32_t group, uint32_t lane, Visit visit) const {
    const uint32_t tile = row_tiles.quotient(group);
    const uint32_t row_tile = group - tile * row_tiles.value;
    const uint32_t index = tile * sequences_per_group() + (lane >> slots_log2);
    const uint32_t slots = uint32_t{1} << slots_log2;
    if (index < num_reqs) visit(index, row_tile * slots + (lane & (slots - 1)), slots * row_tiles.value);
  }
};

/// For `num_reqs` sequences (at most 2^31 - 1) of at most `longest` of `total_q` rows.
inline SequenceTiles plan_sequence_tiles(int64_t num_reqs, int64_t total_q, int64_t longest) {
  constexpr int64_t kRowsOfALane = 4;
  constexpr int64_t kEnoughGroups = 4096;  // past these, a long sequence does not leave the device idle
  const int64_t typical = 2 * (total_q / std::max<int64_t>(1, num_reqs)) + 1;
  const auto wanted = static_cast<uint64_t>(std::clamp<int64_t>(std::min(longest, typical), 1, kWarp));
  SequenceTiles tiles;
  tiles.num_reqs = static_cast<uint32_t>(num_reqs);
  tiles.slots_log2 = static_cast<uint32_t>(std::countr_zero(std::bit_ceil(wanted)));
  const int64_t per_group = tiles.sequences_per_group();
  const int64_t sequence_groups = (num_reqs + per_group - 1) / per_group;
  const int64_t rows_of_a_group = kRowsOfALane << tiles.slots_log2;
  const int64_t row_tiles = (longest + rows_of_a_group - 1) / rows_of_a_group;
  const int64_t most = kEnoughGroups / std::max<int64_t>(1, sequence_groups);
  tiles.row_tiles = ExactDivisor(static_cast<uint32_t>(std::clamp<int64_t>(row_tiles, 1, std::max<int64_t>(1, most))));
  tiles.groups = static_cast<uint32_t>(sequence_groups) * tiles.row_tiles.value;
  return tiles;
}

}  // namespace inputmeta::cuda
