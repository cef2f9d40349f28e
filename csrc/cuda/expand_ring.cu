#include "cuda/write_tiles.cuh"

namespace inputmeta::cuda {

void launch_expand_ring(const Queue& queue, const int32_t* offset_len, uint32_t ring, int64_t rows, int64_t width,
                        int32_t* out) {
  const ExactDivisor by_ring(ring);
  if (are_fours(width, out)) {
    launch_tiles<Cells4>("expand_ring", queue, RingSource<Cells4>{offset_len, by_ring}, rows, width, out);
  } else {
    launch_tiles<int32_t>("expand_ring", queue, RingSource<int32_t>{offset_len, by_ring}, rows, width, out);
  }
}

}  // namespace inputmeta::cuda
