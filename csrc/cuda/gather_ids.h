// F-GATHER for one thread: token ids of the rows of sequences that go on, from what the last step left on the device.
// Nothing is checked here: rows and indices that the arrays do not have are left out.
#pragma once

#include <cstdint>

#include "cuda/sequence_tiles.h"

namespace inputmeta::cuda {

inline constexpr uint32_t kGatherWarps = 4;  ///< of a block of threads

struct GatherIdsArgs {
  const int32_t* fresh_input_ids;  ///< [rows]
  const int32_t* prev_sampled;     ///< [previous]
  const int32_t* prev_predict;     ///< [previous, predict_columns]
  const int32_t* remap;            ///< [n]
  const int32_t* seqlens_q;        ///< [n]
  const int32_t* cu_seqlens_q;     ///< [n], inclusive
  int32_t* out;                    ///< [rows], may be fresh_input_ids
  int64_t predict_columns;
  uint32_t rows;
  uint32_t previous;
  SequenceTiles tiles;
};

INPUTMETA_ANYWHERE inline uint32_t gather_ids_blocks(const GatherIdsArgs& args) {
  return args.tiles.groups / kGatherWarps + (args.tiles.groups % kGatherWarps != 0 ? 1 : 0);
}

INPUTMETA_ANYWHERE inline void gather_ids_row(const GatherIdsArgs& args, int32_t source, uint32_t j, uint32_t row) {
  if (source < 0) {
    args.out[row] = args.fresh_input_ids[row];
  } else if (static_cast<uint32_t>(source) < args.previous) {
    if (j == 0) {
      args.out[row] = args.prev_sampled[source];
    } else if (j <= args.predict_columns) {
      args.out[row] = args.prev_predict[source * args.predict_columns + (j - 1)];
    }
  }
}

INPUTMETA_ANYWHERE inline void gather_ids_thread(const GatherIdsArgs& args, uint32_t block, uint32_t thread) {
  const uint32_t group = block * kGatherWarps + thread / kWarp;
  if (group >= args.tiles.groups) return;
  args.tiles.visit(group, thread % kWarp, [&](uint32_t index, uint32_t first, uint32_t step) {
    const auto seqlen_q = static_cast<uint32_t>(args.seqlens_q[index]);
    const uint32_t first_row = static_cast<uint32_t>(args.cu_seqlens_q[index]) - seqlen_q;
    const int32_t source = args.remap[index];
    for (uint32_t j = first; j < seqlen_q; j += step) {
      if (first_row + j >= args.rows) return;
      gather_ids_row(args, source, j, first_row + j);
    }
  });
}

}  // namespace inputmeta::cuda
