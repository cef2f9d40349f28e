#include "cuda/launch.cuh"

namespace inputmeta::cuda {
namespace {

template <bool kExpands>
__global__ void __launch_bounds__(kStepThreads) zos_step(const __grid_constant__ ZosStepArgs args) {
  begin_after_previous();
#if INPUTMETA_PLANTED(launch_race)
  if (blockIdx.x < args.metadata_blocks) {
    for (int k = 0; k < 100; ++k) __nanosleep(1000);
  }
#endif
  zos_step_thread<kExpands>(args, blockIdx.x, threadIdx.x);
}

}  // namespace

void launch_zos_step(const Queue& queue, const ZosStepArgs& args) {
  const auto kernel = args.has_expansions() ? &zos_step<true> : &zos_step<false>;
  launch("zos_step", kernel, args.blocks(), kStepThreads, queue, args);
}

}  // namespace inputmeta::cuda
