#include "core/key_ranges.h"

#include "core/arithmetic.h"
#include "core/runs.h"

namespace inputmeta {
namespace {

/// One sequence's segments [block, 0, end, dst] from dst on; returns the next free segment.
int32_t* write_load_segments(int32_t* segment, const Sequence& sequence, const Ratio& ratio, int64_t dst) {
  const auto append = [&segment](int32_t block, int64_t end, int64_t to) {
    const Quad row = {block, 0, narrow(end), narrow(to)};
    segment = std::copy_n(row.data(), row.size(), segment);
  };
  const int64_t tokens = ratio.complete_tokens(sequence.seqlen_k);
  const int64_t tokens_per_block = ratio.tokens_per_block();
  if (tokens == 0) append(-1, 1, dst);
  const int64_t whole = ratio.block_of(tokens);
  write_whole_segments(segment, whole, sequence.block_table.values.data(), narrow(tokens_per_block), narrow(dst));
  segment += 4 * whole;
  const int64_t left = ratio.place_of(tokens);
  if (left > 0) append(sequence.block_table[whole], left, dst + whole * tokens_per_block);
  return segment;
}

}  // namespace

void fill_compressed_load_plan(const Batch& batch, const Outputs& outputs) {
  for (const Ratio& ratio : batch.plan.ratios.ca) {
    int32_t* segment = outputs.int32s(Field::load_segments_ca, ratio.value()).data();
    int64_t base = 0;
    for (const Sequence& sequence : batch.sequences) {
      segment = write_load_segments(segment, sequence, ratio, base);
      base += compressed_key_rows(sequence, ratio);
    }
  }
}

void fill_key_ranges(const Batch& batch, const Outputs& outputs) {
  for (const Ratio& ratio : batch.plan.ratios.sparse) {
    int32_t* const ks = outputs.int32s(Field::ks, ratio.value()).data();
    int32_t* const ke = outputs.int32s(Field::ke, ratio.value()).data();
    int64_t base = 0;
    for_each_chunk(batch.sequences, [&](int64_t, const Sequence& sequence, int64_t first_row) {
      write_constant(ks + first_row, sequence.seqlen_q, narrow(base));
      write_stairs(ke + first_row, sequence.seqlen_q, narrow(base), sequence.q_start() + 1, ratio.value());
      base += compressed_key_rows(sequence, ratio);
    });
  }
}

void fill_dense_offsets(const Batch& batch, const Outputs& outputs) {
  const bool is_prompt = batch.plan.path == Path::prompt;
  for (const Ratio& ratio : batch.plan.ratios.dense) {
    int32_t* const offset_len = outputs.int32s(Field::kv_ca_index_offset_len, ratio.value()).data();
    const int64_t row_step = is_prompt ? 0 : batch.plan.max_num_blocks * ratio.tokens_per_block();
    int64_t offset = 0;
    for_each_chunk(batch.sequences, [&](int64_t, const Sequence& sequence, int64_t first_row) {
      write_offset_len(offset_len + 2 * first_row, sequence.seqlen_q, narrow(offset), narrow(row_step),
                       sequence.q_start() + 1, ratio.value());
      offset += is_prompt ? compressed_key_rows(sequence, ratio) : row_step * sequence.seqlen_q;
    });
  }
}

void fill_key_lengths(const Batch& batch, const Outputs& outputs) {
  int32_t* const context_lens = outputs.int32s(Field::context_lens).data();
  for_each_chunk(batch.sequences, [&](int64_t, const Sequence& sequence, int64_t first_row) {
    write_ramp(context_lens + first_row, sequence.seqlen_q, narrow(sequence.q_start() + 1));
  });
  for (const Ratio& ratio : batch.plan.ratios.sparse) {
    int32_t* const lengths = outputs.int32s(Field::klen, ratio.value()).data();
    for_each_chunk(batch.sequences, [&](int64_t, const Sequence& sequence, int64_t first_row) {
      write_stairs(lengths + first_row, sequence.seqlen_q, 0, sequence.q_start() + 1, ratio.value());
    });
  }
}

}  // namespace inputmeta
