#include "cuda/launch.cuh"

namespace inputmeta::cuda {
namespace {

constexpr uint32_t kMostThreads = kWarp * (1 + kRatiosAtOnce + kCopyWarps);

__global__ void __launch_bounds__(kMostThreads) zos_metadata(const __grid_constant__ ZosMetadataArgs args) {
  let_next_begin();
#if INPUTMETA_PLANTED(launch_race)
  for (int k = 0; k < 100; ++k) __nanosleep(1000);
#endif
  zos_metadata_thread(args, blockIdx.x, threadIdx.x, gridDim.x);
  wait_for_previous();
}

}  // namespace

void launch_zos_metadata(const Queue& queue, const ZosMetadataArgs& args, bool follows) {
  launch("zos_metadata", &zos_metadata, args.blocks(), args.threads(), queue, args, follows);
}

}  // namespace inputmeta::cuda
