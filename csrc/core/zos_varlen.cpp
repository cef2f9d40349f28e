#include "core/zos_varlen.h"

#include <stdexcept>

#include "core/arithmetic.h"

namespace inputmeta {
namespace {

/// The last step by itself, places that no sequence goes on from included.
void check_previous(const ZosVarlen& varlen) {
  for (size_t place = 0; place < static_cast<size_t>(varlen.previous); ++place) {
    const int64_t drafts = int64_t{varlen.prev_seqlens_q[place]} - 1;
    const int64_t accepted = varlen.prev_num_accepted_tokens[place];
    if (accepted < 0 || accepted > drafts) {
      refuse_cell("prev_num_accepted_tokens", place, accepted, "0 to prev_seqlens_q - 1 = " + std::to_string(drafts));
    }
  }
}

/// The slots of a sequence's earlier positions, which P-INT32 of the extracted step did not look at.
void check_earlier_slots(const ZosVarlenBounds& bounds, size_t index) {
  constexpr auto kEnd = Wide{1} << 31;
  if ((Wide{bounds.state_ids[index]} + 1) * bounds.swa_block_size > kEnd) {
    refuse_cell("state_ids", index, bounds.state_ids[index], "(state_id + 1) * B <= 2^31 where drafts were rejected");
  }
  const int64_t begin = bounds.block_tables_offsets[index];
  const int64_t end = bounds.block_tables_offsets[index + 1];
  if (begin < 0 || begin > end || end > static_cast<int64_t>(bounds.block_tables.size())) {
    refuse_cell("block_tables_offsets", index + 1, end, "ascends inside block_tables");
  }
  for (auto cell = static_cast<size_t>(begin); cell < static_cast<size_t>(end); ++cell) {
    if ((Wide{bounds.block_tables[cell]} + 1) * bounds.tokens_per_block > kEnd) {
      refuse_cell("block_tables", cell, bounds.block_tables[cell],
                  "(block + 1) * (block_size // m) <= 2^31 where drafts were rejected");
    }
  }
}

void check_continued(const ZosVarlen& varlen, const ZosVarlenBounds& bounds, size_t index, int64_t q_start) {
  const int64_t place = varlen.remap[index];
  if (place >= varlen.previous) {
    refuse_cell("remap", index, place, "a place below the " + std::to_string(varlen.previous) + " of the last step");
  }
  if (varlen.seqlens_q[index] - 1 > bounds.max_predicted) {
    refuse_cell("seqlens_q", index, varlen.seqlens_q[index],
                "at most 1 + the " + std::to_string(bounds.max_predicted) + " columns of prev_predict_token_ids");
  }
  const int64_t rejected = varlen.rejected(static_cast<int64_t>(index));
  if (rejected > q_start) {
    refuse_cell("prev_num_accepted_tokens", static_cast<size_t>(place), varlen.prev_num_accepted_tokens[place],
                "rejects at most the " + std::to_string(q_start) + " keys before sequence " + std::to_string(index));
  }
  if (rejected > 0) check_earlier_slots(bounds, index);
}

}  // namespace

void refuse_cell(const char* array, size_t index, int64_t value, const std::string& rule) {
  throw std::invalid_argument(std::string(array) + "[" + std::to_string(index) + "] is " + std::to_string(value) +
                              "; rule: " + rule);
}

void check_varlen(const ZosVarlen& varlen, const ZosVarlenBounds& bounds) {
  const int64_t total_q = bounds.total_q;
  if (varlen.remap != nullptr) check_previous(varlen);
  int64_t begin = 0;
  for (size_t index = 0; index < static_cast<size_t>(varlen.num_reqs); ++index) {
    const int64_t end = varlen.fresh_cu_seqlens_q[index];
    const bool is_last = static_cast<int64_t>(index) + 1 == varlen.num_reqs;
    if (end < begin || end > total_q || (is_last && end != total_q)) {
      refuse_cell("fresh_cu_seqlens_q", index, end, "inclusive sums that end with total_q = " + std::to_string(total_q));
    }
    const int64_t rows = end - begin;
    begin = end;
    if (varlen.seqlens_q[index] < 1 || varlen.seqlens_q[index] > rows) {
      refuse_cell("seqlens_q", index, varlen.seqlens_q[index], "1 to the " + std::to_string(rows) + " rows extracted");
    }
    const int64_t q_start = varlen.seqlens_k[index] - rows;
    if (q_start < 0) refuse_cell("seqlens_k", index, varlen.seqlens_k[index], "as extracted: it counts its own rows");
    if (varlen.remap != nullptr && varlen.remap[index] >= 0) check_continued(varlen, bounds, index, q_start);
  }
}

void shorten_step(const ZosVarlen& varlen, int32_t* seqlens_k, int32_t* cu_seqlens_q) {
  int32_t end = 0;
  for (int64_t index = 0; index < varlen.num_reqs; ++index) {
    seqlens_k[index] = varlen.shorter_seqlen_k(index);
    cu_seqlens_q[index] = end += varlen.seqlens_q[index];
  }
}

}  // namespace inputmeta
