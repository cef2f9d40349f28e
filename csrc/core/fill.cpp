#include "core/fill.h"

#include "core/arithmetic.h"
#include "core/blocks.h"
#include "core/common.h"
#include "core/compressed.h"
#include "core/key_ranges.h"
#include "core/sliding_window.h"
#include "core/truncation.h"

namespace inputmeta {

void fill(const Batch& batch, const Outputs& outputs) {
  fill_common(batch, outputs);
  fill_ring_slots(batch, outputs);
  fill_dense_offsets(batch, outputs);
  if (batch.plan.path == Path::prompt) {
    fill_window_prompt(batch, outputs);
    fill_compressed_prompt(batch, outputs);
    fill_compressed_load_plan(batch, outputs);
    fill_key_ranges(batch, outputs);
    fill_yoco_truncation_metadata(batch, outputs);
  } else {
    fill_window_decode(batch, outputs);
    fill_compressed_decode(batch, outputs);
    fill_block_tables(batch, outputs);
    fill_key_lengths(batch, outputs);
  }
  if (batch.plan.total_q == 0) outputs.write_neutral_rows(narrow(batch.config.pad_token));
}

}  // namespace inputmeta
