#include "cuda/launch.cuh"

namespace inputmeta::cuda {
namespace {

struct CumsumArgs {
  const int32_t* cells;
  int64_t count;
  int32_t* out;
  bool is_vector;
};

constexpr uint32_t kWarps = kScanThreads / kWarp;
static_assert(kWarps == kWarp, "one warp scans the warps' sums");

__device__ uint32_t scan_warp(uint32_t value, uint32_t lane) {
  for (uint32_t distance = 1; distance < kWarp; distance *= 2) {
    value = scan_step(value, __shfl_up_sync(0xffffffff, value, distance), lane, distance);
  }
  return value;
}

/// One block of threads. The cells of the next round are loaded before this one is scanned.
__global__ void __launch_bounds__(kScanThreads) cumsum(const __grid_constant__ CumsumArgs args) {
  __shared__ uint32_t warp_sums[kWarps];
  begin_after_previous();
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  uint32_t carry = 0;
  int64_t first = 4 * threadIdx.x;
  ScanCells own = scan_load(args.cells, args.count, first, args.is_vector);
  for (int64_t round = 0; round < args.count; round += kScanRound) {
    const ScanCells next = scan_load(args.cells, args.count, first + kScanRound, args.is_vector);
    const uint32_t inclusive = scan_warp(own.total(), lane);
    if (lane == kWarp - 1) warp_sums[warp] = inclusive;
    __syncthreads();
    const uint32_t warps = scan_warp(warp_sums[lane], lane);
    const uint32_t warps_before = __shfl_sync(0xffffffff, warps, warp == 0 ? 0 : warp - 1);
    const uint32_t before = carry + (warp == 0 ? 0 : warps_before) + inclusive - own.total();
    scan_store(args.out, args.count, first, args.is_vector, own, before);
    carry = scan_carry(carry, __shfl_sync(0xffffffff, warps, kWarp - 1));
    __syncthreads();  // the sums have been read: the next round may overwrite them
    own = next;
    first += kScanRound;
  }
}

}  // namespace

void launch_cumsum(const Queue& queue, const int32_t* cells, int64_t count, int32_t* out) {
  const CumsumArgs args = {cells, count, out, is_aligned(cells) && is_aligned(out)};
  launch("cumsum", &cumsum, count > 0 ? 1 : 0, kScanThreads, queue, args);
}

}  // namespace inputmeta::cuda
