// Inclusive sums of int32, in one block of threads: in a round each thread takes four cells, sums them up, and the sums
// are scanned over the 32 lanes of a warp, then over the warps. The parts are functions, which tests run in lock-step on
// the host; the kernel only carries values between lanes. Sums wrap where int32 does not hold them.
#pragma once

#include <cstdint>

#include "cuda/cells.h"

namespace inputmeta::cuda {

inline constexpr uint32_t kScanThreads = 1024;
inline constexpr uint32_t kScanRound = 4 * kScanThreads;  ///< cells of a round

/// Four cells of a thread as their running sums.
struct ScanCells {
  uint32_t sum[4];

  INPUTMETA_ANYWHERE uint32_t total() const { return sum[3]; }
};

/// The cells from `first` on, 0 past the end; summed up. `is_vector`: the array is aligned.
INPUTMETA_ANYWHERE inline ScanCells scan_load(const int32_t* cells, int64_t count, int64_t first, bool is_vector) {
  Cells4 own = {{0, 0, 0, 0}};
  if (is_vector && first + 4 <= count) {
    own = *reinterpret_cast<const Cells4*>(cells + first);
  } else {
    for (int k = 0; k < 4; ++k) own.cell[k] = first + k < count ? cells[first + k] : 0;
  }
  ScanCells sums;
  uint32_t sum = 0;
  for (int k = 0; k < 4; ++k) sums.sum[k] = sum += static_cast<uint32_t>(own.cell[k]);
  return sums;
}

/// One of the five steps of a warp's inclusive scan: `received` is the value of the lane `distance` below.
INPUTMETA_ANYWHERE inline uint32_t scan_step(uint32_t own, uint32_t received, uint32_t lane, uint32_t distance) {
  return lane >= distance ? own + received : own;
}

/// Writes the running sums, `before` being the sum of all that is in front of the thread's cells.
INPUTMETA_ANYWHERE inline void scan_store(int32_t* out, int64_t count, int64_t first, bool is_vector,
                                          const ScanCells& sums, uint32_t before) {
  Cells4 cells;
  for (int k = 0; k < 4; ++k) cells.cell[k] = static_cast<int32_t>(before + sums.sum[k]);
  if (is_vector && first + 4 <= count) {
    store4(out + first, cells);
    return;
  }
  for (int k = 0; k < 4; ++k) {
    if (first + k < count) out[first + k] = cells.cell[k];
  }
}

/// What the next round adds: all cells up to the end of this one.
INPUTMETA_ANYWHERE inline uint32_t scan_carry([[maybe_unused]] uint32_t carry, uint32_t round_total) {
#if INPUTMETA_PLANTED(lost_carry)
  return round_total;
#else
  return carry + round_total;
#endif
}

}  // namespace inputmeta::cuda
