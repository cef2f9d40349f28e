// What the bindings call: launches on a stream of a device. No header of CUDA is needed to call them, and nothing here
// waits for the device. A launch that fails throws LaunchError.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "cuda/cumsum.h"
#include "cuda/expand.h"
#include "cuda/gather_ids.h"
#include "cuda/gather_rows.h"
#include "cuda/row_tiles.h"
#include "cuda/shorten.h"
#include "cuda/zos_step.h"

namespace inputmeta::cuda {

/// Where to launch: `stream` is a cudaStream_t of the device, null for its default stream.
struct Queue {
  int device = 0;
  void* stream = nullptr;
};

/// The kernel's name and CUDA's text.
class LaunchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A ZOS decode step, or the part of it that one launch takes.
void launch_zos_step(const Queue& queue, const ZosStepArgs& args);

/// Expansions [rows, width]; `out` decides whether units are of four cells.
void launch_expand_pivots(const Queue& queue, const int32_t* pivots, int64_t rows, int64_t width, int32_t* out);
void launch_expand_ring(const Queue& queue, const int32_t* offset_len, uint32_t ring, int64_t rows, int64_t width,
                        int32_t* out);
void launch_expand_offsets(const Queue& queue, const DenseRanges& ranges, int64_t rows, int64_t width, int32_t* out);
/// `block_tables` has `table_cells` cells.
void launch_expand_blocks(const Queue& queue, const DenseRanges& ranges, const int32_t* block_tables,
                          int64_t table_cells, uint32_t tokens_per_block, int64_t rows, int64_t width, int32_t* out);

/// Inclusive sums of `count` cells; `out` is another array.
void launch_cumsum(const Queue& queue, const int32_t* cells, int64_t count, int32_t* out);
/// seqlens_k' of a step of variable length.
void launch_shorten(const Queue& queue, const ShortenArgs& args);
void launch_gather_ids(const Queue& queue, const GatherIdsArgs& args);

/// Gathers `rows_count` rows of `columns` cells.
void launch_gather_rows(const Queue& queue, const int32_t* source, int64_t source_rows, int64_t columns,
                        const int32_t* rows, int64_t rows_count, int32_t padding, int32_t* out);
void launch_gather_rows(const Queue& queue, const bool* source, int64_t source_rows, int64_t columns,
                        const int32_t* rows, int64_t rows_count, bool padding, bool* out);

/// Whether rows of `columns` cells from each of these addresses on can be taken by fours.
inline bool are_fours(int64_t columns, const void* out, const void* source = nullptr) {
  return columns % 4 == 0 && is_aligned(out) && is_aligned(source);
}

}  // namespace inputmeta::cuda
