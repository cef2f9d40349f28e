#include "cuda/write_tiles.cuh"

namespace inputmeta::cuda {
namespace {

template <class Unit>
BlockSource<Unit> source_of(const DenseRanges& ranges, const int32_t* block_tables, int64_t table_cells,
                            uint32_t tokens_per_block) {
  return {ranges, block_tables, table_cells, ExactDivisor(tokens_per_block)};
}

}  // namespace

void launch_expand_blocks(const Queue& queue, const DenseRanges& ranges, const int32_t* block_tables,
                          int64_t table_cells, uint32_t tokens_per_block, int64_t rows, int64_t width, int32_t* out) {
  if (are_fours(width, out)) {
    const auto source = source_of<Cells4>(ranges, block_tables, table_cells, tokens_per_block);
    launch_tiles<Cells4>("expand_blocks", queue, source, rows, width, out);
  } else {
    const auto source = source_of<int32_t>(ranges, block_tables, table_cells, tokens_per_block);
    launch_tiles<int32_t>("expand_blocks", queue, source, rows, width, out);
  }
}

}  // namespace inputmeta::cuda
