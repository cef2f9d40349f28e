// F-GATHER for one thread: token ids of the rows of sequences that go on, from what the last step left on the device.
// Nothing is checked here: rows and indices that the arrays do not have are left out.
#pragma once

#include <cstdint>

#include "core/zos_gather.h"
#include "cuda/sequence_tiles.h"

namespace inputmeta::cuda {

inline constexpr uint32_t kGatherWarps = 4;  ///< of a block of threads

struct GatherIdsArgs {
  ZosTokenSources sources;      ///< fresh_cu_seqlens_q is there: cu_seqlens_q where the step has its extracted layout
  const int32_t* seqlens_q;     ///< [n]
  const int32_t* cu_seqlens_q;  ///< [n], inclusive
  int32_t* out;                 ///< [rows]; may be fresh_input_ids where the layout is the extracted one
  uint32_t rows;
  uint32_t max_seqlen_q;  ///< rows j past it are left out
  bool has_tail;          ///< rows past the last sum become 0 (F-TAIL)
  SequenceTiles tiles;
};

INPUTMETA_ANYWHERE inline uint32_t gather_ids_blocks(const GatherIdsArgs& args) {
  return args.tiles.groups / kGatherWarps + (args.tiles.groups % kGatherWarps != 0 ? 1 : 0);
}

INPUTMETA_ANYWHERE inline void gather_ids_thread(const GatherIdsArgs& args, uint32_t block, uint32_t thread) {
  const uint32_t group = block * kGatherWarps + thread / kWarp;
  if (group >= args.tiles.groups) return;
  const uint32_t lane = thread % kWarp;
  args.tiles.visit(group, lane, [&](uint32_t index, uint32_t first, uint32_t step) {
    const auto seqlen_q = static_cast<uint32_t>(args.seqlens_q[index]);
    const uint32_t first_row = static_cast<uint32_t>(args.cu_seqlens_q[index]) - seqlen_q;
    const uint32_t count = seqlen_q < args.max_seqlen_q ? seqlen_q : args.max_seqlen_q;
    for (uint32_t j = first; j < count; j += step) {
      if (first_row + j >= args.rows) return;
      const int32_t* const token = args.sources.token(index, j);
      if (token != nullptr) args.out[first_row + j] = *token;
    }
  });
  if (!args.has_tail) return;
  const auto end = static_cast<uint32_t>(args.cu_seqlens_q[args.tiles.num_reqs - 1]);
  const int64_t lanes = int64_t{args.tiles.groups} * kWarp;
  for (int64_t row = end + int64_t{group} * kWarp + lane; row < args.rows; row += lanes) args.out[row] = 0;
}

}  // namespace inputmeta::cuda
