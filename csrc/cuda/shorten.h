// F-VARLEN for one thread: seqlens_k' of one sequence. The sums of seqlens_q are cumsum's.
#pragma once

#include <cstdint>

#include "core/zos_varlen.h"

namespace inputmeta::cuda {

inline constexpr uint32_t kShortenThreads = 256;

struct ShortenArgs {
  ZosVarlen varlen;
  int32_t* seqlens_k;  ///< [n], not the extracted one
};

INPUTMETA_ANYWHERE inline uint32_t shorten_blocks(const ShortenArgs& args) {
  return static_cast<uint32_t>((args.varlen.num_reqs + kShortenThreads - 1) / kShortenThreads);
}

INPUTMETA_ANYWHERE inline void shorten_thread(const ShortenArgs& args, uint32_t block, uint32_t thread) {
  const int64_t index = int64_t{block} * kShortenThreads + thread;
  if (index < args.varlen.num_reqs) args.seqlens_k[index] = args.varlen.shorter_seqlen_k(index);
}

}  // namespace inputmeta::cuda
