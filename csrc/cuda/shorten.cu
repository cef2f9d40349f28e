#include "cuda/launch.cuh"

namespace inputmeta::cuda {
namespace {

__global__ void __launch_bounds__(kShortenThreads) shorten(const __grid_constant__ ShortenArgs args) {
  begin_after_previous();
  shorten_thread(args, blockIdx.x, threadIdx.x);
}

}  // namespace

void launch_shorten(const Queue& queue, const ShortenArgs& args) {
  launch("shorten", &shorten, shorten_blocks(args), kShortenThreads, queue, args);
}

}  // namespace inputmeta::cuda
