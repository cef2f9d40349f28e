#include "core/compressed.h"

#include "core/arithmetic.h"
#include "core/runs.h"

namespace inputmeta {
namespace {

/// F-CSLOT for the compressed tokens of the range, in runs that end with a physical block.
void write_slots(int32_t* out, const Sequence& sequence, CompressedRange range, const Ratio& ratio) {
  const int64_t tokens_per_block = ratio.tokens_per_block();
  int64_t block = ratio.block_of(range.begin);
  int64_t offset = ratio.place_of(range.begin);
  for (int64_t token = range.begin; token < range.end; ++block, offset = 0) {
    const int64_t run = std::min(range.end - token, tokens_per_block - offset);
    write_ramp(out + (token - range.begin), run, narrow(sequence.block_table[block] * tokens_per_block + offset));
    token += run;
  }
}

void fill_prompt_ratio(const Batch& batch, const Outputs& outputs, const Ratio& ratio) {
  int32_t* const boundaries = outputs.int32s(Field::cu_compressed_seqlens_q, ratio.value()).data();
  int32_t* const positions = outputs.int32s(Field::positions_c, ratio.value()).data();
  int32_t* const slots = outputs.int32s(Field::slot_mapping_store_ca, ratio.value()).data();
  int64_t row = 0;
  boundaries[0] = 0;
  for_each_chunk(batch.sequences, [&](int64_t index, const Sequence& sequence, int64_t) {
    const CompressedRange range = compressed_range(sequence, ratio);
    if (range.empty() || sequence.is_placeholder) {
      write_constant(positions + row, range.rows(), 0);
      write_constant(slots + row, range.rows(), -1);
    } else {
      write_ramp(positions + row, range.rows(), narrow(range.begin * ratio.value()), narrow(ratio.value()));
      write_slots(slots + row, sequence, range, ratio);
    }
    row += range.rows();
    boundaries[index + 1] = narrow(row);
  });
}

void fill_decode_ratio(const Batch& batch, const Outputs& outputs, const Ratio& ratio) {
  int32_t* const positions = outputs.int32s(Field::positions_c, ratio.value()).data();
  int32_t* const slots = outputs.int32s(Field::slot_mapping_store_ca, ratio.value()).data();
  write_constant(positions, batch.plan.total_q, 0);
  write_constant(slots, batch.plan.total_q, -1);
  for_each_chunk(batch.sequences, [&](int64_t, const Sequence& sequence, int64_t first_row) {
    if (sequence.is_placeholder) return;
    const CompressedRange range = compressed_range(sequence, ratio);
    for (int64_t token = range.begin; token < range.end; ++token) {
      const int64_t last_position = (token + 1) * ratio.value() - 1;
      const int64_t row = first_row + last_position - sequence.q_start();
      positions[row] = narrow(token * ratio.value());
      write_slots(slots + row, sequence, {token, token + 1}, ratio);
    }
  });
}

}  // namespace

void fill_compressed_prompt(const Batch& batch, const Outputs& outputs) {
  for (const Ratio& ratio : batch.plan.ratios.ca) fill_prompt_ratio(batch, outputs, ratio);
}

void fill_compressed_decode(const Batch& batch, const Outputs& outputs) {
  for (const Ratio& ratio : batch.plan.ratios.ca) fill_decode_ratio(batch, outputs, ratio);
}

}  // namespace inputmeta
