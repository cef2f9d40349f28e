#include "core/blocks.h"

#include <algorithm>

namespace inputmeta {

void fill_block_tables(const Batch& batch, const Outputs& outputs) {
  int32_t* const tables = outputs.int32s(Field::block_tables).data();
  const int64_t columns = batch.plan.max_num_blocks;
  for_each_chunk(batch.sequences, [&](int64_t, const Sequence& sequence, int64_t first_row) {
    const int64_t blocks = num_blocks(sequence, batch.plan.ratios);
    for (int64_t row = first_row; row < first_row + sequence.seqlen_q; ++row) {
      std::copy_n(sequence.block_table.values.data(), blocks, tables + row * columns);
    }
  });
}

}  // namespace inputmeta
