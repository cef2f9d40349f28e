// Block tables (section 4).
#pragma once

#include "core/batch.h"
#include "core/plan.h"
#include "core/ratios.h"

namespace inputmeta {

/// F-BLOCKS: blocks that the compressed tokens of the smallest ratio fill; one table serves all ratios.
inline int64_t num_blocks(const Sequence& sequence, const Ratios& ratios) {
  const Ratio& smallest = ratios.smallest();
  return smallest.blocks_for(smallest.complete_tokens(sequence.seqlen_k));
}

/// block_tables, decode: the first num_blocks columns of each row; the others are not defined and not written.
void fill_block_tables(const Batch& batch, const Outputs& outputs);

}  // namespace inputmeta
