// F-GATHER (section 10): the token ids of a step, from the host where a request is new, else from what the last step
// sampled. The cells of one row are for one thread of a kernel, on the host or on a device.
#pragma once

#include <cstdint>
#include <span>

#include "core/exact_divisor.h"

namespace inputmeta {

/// Where token ids and n-grams come from, as plain addresses, for kernels to take by value; n sequences now, m in the
/// last step.
struct ZosTokenSources {
  const int32_t* fresh_input_ids = nullptr;         ///< [fresh_rows], in the extracted layout (I-34)
  int64_t fresh_rows = 0;
  const int32_t* fresh_cu_seqlens_q = nullptr;      ///< [n], inclusive sums: where the extracted layout's sequences end
  const int32_t* remap = nullptr;                   ///< [n], place in the last step, negative: new; null: all are
  const int32_t* prev_sampled_token_ids = nullptr;  ///< [previous]
  int64_t previous = 0;                             ///< m
  const int32_t* prev_predict_token_ids = nullptr;  ///< [previous, predict_columns]
  int64_t predict_columns = 0;

  /// Row of the extracted layout that holds row j of sequence `index`; -1 where there is none such. On a device the sums
  /// may hold anything.
  INPUTMETA_ANYWHERE int64_t fresh_row(int64_t index, uint32_t j) const {
    const int64_t row = (index == 0 ? 0 : int64_t{fresh_cu_seqlens_q[index - 1]}) + j;
    return row >= 0 && row < fresh_rows ? row : -1;
  }

  /// The token id of row j of sequence `index`; null where an index points outside its array.
  INPUTMETA_ANYWHERE const int32_t* token(int64_t index, uint32_t j) const {
    const int64_t place = remap == nullptr ? -1 : remap[index];
    if (place < 0) {
      const int64_t row = fresh_row(index, j);
      return row < 0 ? nullptr : fresh_input_ids + row;
    }
    if (place >= previous || j > predict_columns) return nullptr;
    return j == 0 ? prev_sampled_token_ids + place : prev_predict_token_ids + place * predict_columns + (j - 1);
  }
};

/// Arrays of one gather in host memory.
struct ZosTokens {
  ZosTokenSources sources;                ///< fresh_cu_seqlens_q null: the extracted layout is the step's
  std::span<const int32_t> seqlens_q;     ///< [n]
  std::span<const int32_t> cu_seqlens_q;  ///< [n], inclusive
  int64_t max_seqlen_q = 0;               ///< bounds each of seqlens_q
};

/// Throws std::invalid_argument, naming array and index, unless 0 <= seqlens_q <= max_seqlen_q, and their inclusive sum
/// is cu_seqlens_q and at most the fresh rows; with an extracted layout of its own, its sums ascend, end at the fresh
/// rows at most, and leave each sequence its rows; remap < m; and the last step has a draft for each row j >= 1 of a
/// sequence that goes on (seqlens_q - 1 <= predict_columns).
void check_gather(const ZosTokens& tokens);

/// out[row] of the rows that seqlens_q counts. Rows past them, `rows` in all, become 0 with `has_tail` (F-TAIL), else
/// are not written. `out` may be fresh_input_ids.
void gather_input_ids(const ZosTokens& tokens, int32_t* out, int64_t rows, bool has_tail);

}  // namespace inputmeta
