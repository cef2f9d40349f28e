#include "core/blocks.h"

#include <algorithm>

#include "core/runs.h"

namespace inputmeta {

void fill_block_tables(const Batch& batch, const Outputs& outputs) {
  int32_t* const tables = outputs.int32s(Field::block_tables).data();
  const int64_t columns = batch.plan.max_num_blocks;
  int64_t cells = 0;
  for (const Sequence& sequence : batch.sequences) cells += num_blocks(sequence, batch.plan.ratios) * sequence.seqlen_q;
  const bool streams = cells * static_cast<int64_t>(sizeof(int32_t)) >= kLeastStreamedBytes;
  for_each_chunk(batch.sequences, [&](int64_t, const Sequence& sequence, int64_t first_row) {
    const int64_t blocks = num_blocks(sequence, batch.plan.ratios);
    for (int64_t row = first_row; row < first_row + sequence.seqlen_q; ++row) {
      const int32_t* const table = sequence.block_table.values.data();
      if (streams && blocks >= kLeastStreamedCells) {
        stream_cells(tables + row * columns, table, blocks);
      } else {
        std::copy_n(table, blocks, tables + row * columns);
      }
    }
  });
  if (streams) fence_streams();
}

}  // namespace inputmeta
