#include "cuda/write_tiles.cuh"

namespace inputmeta::cuda {

void launch_gather_rows(const Queue& queue, const int32_t* source, int64_t source_rows, int64_t columns,
                        const int32_t* rows, int64_t rows_count, int32_t padding, int32_t* out) {
  if (are_fours(columns, out, source)) {
    const auto* const fours = reinterpret_cast<const Cells4*>(source);
    const Cells4 padding4 = {{padding, padding, padding, padding}};
    const GatherSource<Cells4> gather = {fours, source_rows, columns / 4, rows, padding4};
    launch_tiles<Cells4>("gather_rows", queue, gather, rows_count, columns, out);
  } else {
    const GatherSource<int32_t> gather = {source, source_rows, columns, rows, padding};
    launch_tiles<int32_t>("gather_rows", queue, gather, rows_count, columns, out);
  }
}

void launch_gather_rows(const Queue& queue, const bool* source, int64_t source_rows, int64_t columns,
                        const int32_t* rows, int64_t rows_count, bool padding, bool* out) {
  const GatherSource<bool> gather = {source, source_rows, columns, rows, padding};
  launch_tiles<bool>("gather_rows", queue, gather, rows_count, columns, out);
}

}  // namespace inputmeta::cuda
