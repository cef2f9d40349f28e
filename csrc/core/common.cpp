#include "core/common.h"

#include <algorithm>

#include "core/arithmetic.h"
#include "core/ngram.h"
#include "core/runs.h"

namespace inputmeta {
namespace {

void fill_positions(const Batch& batch, const Outputs& outputs) {
  int32_t* const positions = outputs.int32s(Field::positions).data();
  for_each_chunk(batch.sequences, [&](int64_t, const Sequence& sequence, int64_t first_row) {
    write_ramp(positions + first_row, sequence.seqlen_q, narrow(sequence.q_start()));
  });
}

/// F-IDS: a decode chunk is one known token and then the drafts, which token_ids does not have yet.
void fill_input_ids(const Batch& batch, const Outputs& outputs) {
  int32_t* const ids = outputs.int32s(Field::input_ids).data();
  const bool is_prompt = batch.plan.path == Path::prompt;
  for_each_chunk(batch.sequences, [&](int64_t, const Sequence& sequence, int64_t first_row) {
    const int64_t known = is_prompt ? sequence.seqlen_q : 1;
    const auto tokens = sequence.token_ids.values.subspan(static_cast<size_t>(sequence.q_start()));
    int32_t* const drafts = std::copy_n(tokens.data(), known, ids + first_row);
    std::copy_n(sequence.draft_tokens.values.data(), sequence.seqlen_q - known, drafts);
  });
}

/// F-MASK and F-QIDX: what a row's owner says.
void fill_owners(const Batch& batch, const Outputs& outputs) {
  bool* const mask = outputs.flags(Field::valid_token_mask).data();
  int32_t* const owners = outputs.int32s(Field::query_indices).data();
  std::ranges::fill(outputs.flags(Field::gate_force_random), batch.config.force_load_balance);
  for_each_chunk(batch.sequences, [&](int64_t index, const Sequence& sequence, int64_t first_row) {
    std::fill_n(mask + first_row, sequence.seqlen_q, !sequence.is_placeholder);
    write_constant(owners + first_row, sequence.seqlen_q, sequence.is_placeholder ? kNoQuery : narrow(index));
  });
}

/// Prefix sums with the leading 0, length n + 1.
void fill_boundaries(const Batch& batch, const Outputs& outputs) {
  int32_t* const queries = outputs.int32s(Field::cu_seqlens_q).data();
  int32_t* const keys = outputs.int32s(Field::cu_seqlens_k).data();
  queries[0] = keys[0] = 0;
  for_each_chunk(batch.sequences, [&](int64_t index, const Sequence& sequence, int64_t) {
    queries[index + 1] = queries[index] + narrow(sequence.seqlen_q);
    keys[index + 1] = keys[index] + narrow(sequence.seqlen_k);
  });
}

}  // namespace

void fill_common(const Batch& batch, const Outputs& outputs) {
  fill_positions(batch, outputs);
  fill_input_ids(batch, outputs);
  fill_owners(batch, outputs);
  fill_boundaries(batch, outputs);
  if (batch.config.max_ngram_size > 0) {
    write_ngrams(batch.config, batch.sequences, outputs.int32s(Field::ngram_token_ids).data());
  }
}

}  // namespace inputmeta
