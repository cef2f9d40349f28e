#include "cuda/launch.cuh"

namespace inputmeta::cuda {
namespace {

template <class Unit>
__global__ void __launch_bounds__(kTablesThreads) zos_tables(const __grid_constant__ ZosTablesArgs args) {
  zos_tables_thread<Unit>(args, blockIdx.x, threadIdx.x);
  wait_for_previous();
}

}  // namespace

void launch_zos_tables(const Queue& queue, const ZosTablesArgs& args, bool follows) {
  const auto kernel = args.is_vector ? &zos_tables<Cells4> : &zos_tables<int32_t>;
  launch("zos_tables", kernel, args.blocks, kTablesThreads, queue, args, follows);
}

}  // namespace inputmeta::cuda
