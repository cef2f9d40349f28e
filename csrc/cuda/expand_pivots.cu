#include "cuda/write_tiles.cuh"

namespace inputmeta::cuda {

void launch_expand_pivots(const Queue& queue, const int32_t* pivots, int64_t rows, int64_t width, int32_t* out) {
  if (are_fours(width, out)) {
    launch_tiles<Cells4>("expand_pivots", queue, PivotSource<Cells4>{pivots}, rows, width, out);
  } else {
    launch_tiles<int32_t>("expand_pivots", queue, PivotSource<int32_t>{pivots}, rows, width, out);
  }
}

}  // namespace inputmeta::cuda
