#include "cuda/write_tiles.cuh"

namespace inputmeta::cuda {

void launch_expand_offsets(const Queue& queue, const DenseRanges& ranges, int64_t rows, int64_t width, int32_t* out) {
  if (are_fours(width, out)) {
    launch_tiles<Cells4>("expand_offsets", queue, OffsetSource<Cells4>{ranges}, rows, width, out);
  } else {
    launch_tiles<int32_t>("expand_offsets", queue, OffsetSource<int32_t>{ranges}, rows, width, out);
  }
}

}  // namespace inputmeta::cuda
