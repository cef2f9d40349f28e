#include "cuda/launch.cuh"

namespace inputmeta::cuda {
namespace {

__global__ void __launch_bounds__(kGatherWarps* kWarp) gather_ids(const __grid_constant__ GatherIdsArgs args) {
  begin_after_previous();
  gather_ids_thread(args, blockIdx.x, threadIdx.x);
}

}  // namespace

void launch_gather_ids(const Queue& queue, const GatherIdsArgs& args) {
  launch("gather_ids", &gather_ids, gather_ids_blocks(args), kGatherWarps * kWarp, queue, args);
}

}  // namespace inputmeta::cuda
