// One launch of a ZOS decode step for one thread. Blocks of threads have roles, which do not depend on each other: the
// first ones write the metadata, the others a wide field each.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "cuda/zos_metadata.h"
#include "cuda/zos_sequences.h"
#include "cuda/zos_wide.h"

namespace inputmeta::cuda {

inline constexpr uint32_t kWidesAtOnce = 2 + kRatiosAtOnce;  ///< tables, window, dense ratios
inline constexpr uint32_t kStepWarps = kStepThreads / kWarp;

struct ZosStepArgs {
  uint32_t metadata_blocks = 0;
  uint32_t wides_count = 0;
  ZosSequences sequences;
  ZosMetadata metadata;
  ZosWide wides[kWidesAtOnce];

  bool has_expansions() const { return wides_count > (wides[0].kind == WideField::tables ? 1 : 0); }
  uint32_t blocks() const {
    uint32_t count = metadata_blocks;
    for (uint32_t k = 0; k < wides_count; ++k) count += wides[k].blocks;
    return count;
  }

  /// Adds a wide field, planned by plan().
  void add(const ZosWide& wide) { wides[wides_count++] = wide; }

  /// Completes arrays, metadata and wide fields for sequences of at most `longest` rows, in a grid of `limit` blocks.
  void plan(int64_t longest, int64_t limit = kGridLimit) {
    metadata.plan(sequences.inputs.num_reqs, sequences.total_q, longest);
    metadata_blocks = (metadata.warps() + kStepWarps - 1) / kStepWarps;
    const int64_t left = limit - metadata_blocks;
    for (uint32_t k = 0; k < wides_count; ++k) wides[k].plan(sequences.inputs.num_reqs, longest, left / wides_count);
  }
};

/// What the wide fields are made from.
#if INPUTMETA_PLANTED(launch_race)
INPUTMETA_ANYWHERE inline ZosSequences zos_wide_sequences(const ZosStepArgs& args) {
  ZosSequences sequences = args.sequences;
  sequences.inputs.cu_seqlens_q = args.metadata.copies.out_cu_seqlens_q;
  return sequences;
}
#else
INPUTMETA_ANYWHERE inline const ZosSequences& zos_wide_sequences(const ZosStepArgs& args) { return args.sequences; }
#endif

/// `kExpands`: whether args.has_expansions(), a kernel of its own: code that a launch does not need costs it time.
template <bool kExpands>
INPUTMETA_ANYWHERE inline void zos_step_thread(const ZosStepArgs& args, uint32_t block, uint32_t thread) {
  if (block < args.metadata_blocks) {
    const uint32_t warp = block * kStepWarps + thread / kWarp;
    if (warp < args.metadata.warps()) zos_metadata_lane(args.metadata, args.sequences, warp, thread % kWarp);
    return;
  }
  block -= args.metadata_blocks;
  uint32_t k = 0;
  if constexpr (kExpands) {
    for (; block >= args.wides[k].blocks; ++k) block -= args.wides[k].blocks;
  }
  const ZosWide& wide = args.wides[k];
  const ZosSequences& sequences = zos_wide_sequences(args);
  if (!kExpands || wide.kind == WideField::tables) {
    wide.is_vector ? zos_tables_thread<Cells4>(wide, sequences, block, thread)
                   : zos_tables_thread<int32_t>(wide, sequences, block, thread);
    return;
  }
  if constexpr (kExpands) {
    const bool has_tail = zos_has_tail(args.metadata, sequences);
    wide.is_vector
        ? zos_expand_thread<Cells4>(wide, sequences, args.metadata.params, has_tail, block, thread)
        : zos_expand_thread<int32_t>(wide, sequences, args.metadata.params, has_tail, block, thread);
  }
}

}  // namespace inputmeta::cuda
