// F-REMAP and F-VARLEN (section 10): the lengths of a step that follows one whose drafts were not all accepted. The
// cells of one sequence are for one thread of a kernel, on the host or on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/exact_divisor.h"

namespace inputmeta {

/// Arrays of a step of variable length, as plain addresses; n sequences now, m in the last step.
struct ZosVarlen {
  int64_t num_reqs = 0;                               ///< n
  const int32_t* seqlens_q = nullptr;                 ///< [n], rows that the step has
  const int32_t* seqlens_k = nullptr;                 ///< [n], K: as extracted
  const int32_t* fresh_cu_seqlens_q = nullptr;        ///< [n], C: inclusive sums as extracted
  const int32_t* remap = nullptr;                     ///< [n], place in the last step, negative: new; null: all are
  int64_t previous = 0;                               ///< m
  const int32_t* prev_seqlens_q = nullptr;            ///< [m]
  const int32_t* prev_num_accepted_tokens = nullptr;  ///< [m]

  /// `rejected` of F-REMAP, 0 for a place that the last step had not.
  INPUTMETA_ANYWHERE uint32_t rejected(int64_t index) const {
    const int64_t place = remap == nullptr ? -1 : remap[index];
    if (place < 0 || place >= previous) return 0;
    return static_cast<uint32_t>(prev_seqlens_q[place]) - 1 - static_cast<uint32_t>(prev_num_accepted_tokens[place]);
  }

  /// seqlens_k' of F-VARLEN; arrays that do not agree make it wrap.
  INPUTMETA_ANYWHERE int32_t shorter_seqlen_k(int64_t index) const {
    const auto end = static_cast<uint32_t>(fresh_cu_seqlens_q[index]);
    const uint32_t begin = index == 0 ? 0 : static_cast<uint32_t>(fresh_cu_seqlens_q[index - 1]);
    const uint32_t fewer = end - begin - static_cast<uint32_t>(seqlens_q[index]);
    return static_cast<int32_t>(static_cast<uint32_t>(seqlens_k[index]) - fewer - rejected(index));
  }
};

/// Throws std::invalid_argument: "`array`[`index`] is `value`; rule: `rule`".
[[noreturn]] void refuse_cell(const char* array, size_t index, int64_t value, const std::string& rule);

/// What check_varlen holds the rejected drafts against: they move stores to positions that the extracted step had not.
struct ZosVarlenBounds {
  int64_t total_q = 0;
  int64_t max_predicted = 0;                      ///< columns of prev_predict_token_ids
  int64_t tokens_per_block = 0;                   ///< of the smallest ratio
  int64_t swa_block_size = 0;                     ///< B
  const int32_t* state_ids = nullptr;             ///< [n]
  const int64_t* block_tables_offsets = nullptr;  ///< [n + 1]
  std::span<const int32_t> block_tables = {};     ///< flat
};

/// Throws std::invalid_argument, naming array and index, unless fresh_cu_seqlens_q ascends to total_q, I-33 holds, what
/// the device brought fits the step, and so does all that rejected drafts may store (I-37).
void check_varlen(const ZosVarlen& varlen, const ZosVarlenBounds& bounds);

/// F-VARLEN: seqlens_k' and the inclusive sums of seqlens_q, [n] each; no input shares their memory.
void shorten_step(const ZosVarlen& varlen, int32_t* seqlens_k, int32_t* cu_seqlens_q);

}  // namespace inputmeta
