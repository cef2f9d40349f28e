// F-GATHER (section 10): the token ids of a step, from the host where a request is new, else from what the last step
// sampled.
#pragma once

#include <cstdint>
#include <span>

namespace inputmeta {

/// Arrays of one gather; n sequences now, m in the last step.
struct ZosTokens {
  std::span<const int32_t> fresh_input_ids;  ///< [rows]
  std::span<const int32_t> prev_sampled;     ///< [m]
  std::span<const int32_t> prev_predict;     ///< [m, predict_columns]
  int64_t predict_columns = 0;
  std::span<const int32_t> remap;         ///< [n], index into the last step's m, negative: a new request
  std::span<const int32_t> seqlens_q;     ///< [n]
  std::span<const int32_t> cu_seqlens_q;  ///< [n], inclusive; empty: still to be summed
};

/// Throws std::invalid_argument, naming the sequence, unless seqlens_q >= 0 and their inclusive sum is cu_seqlens_q, if
/// that is there, and at most `rows`; remap < m; and the last step has a draft for each row j >= 1 (seqlens_q - 1 <=
/// predict_columns).
void check_gather(const ZosTokens& tokens);

/// out[row] of the rows that seqlens_q counts; rows past them are not written. `out` has the rows of fresh_input_ids and
/// may be these.
void gather_input_ids(const ZosTokens& tokens, std::span<int32_t> out);

/// Inclusive sums: out[i] = seqlens_q[0] + … + seqlens_q[i].
void sum_seqlens(std::span<const int32_t> seqlens_q, std::span<int32_t> out);

}  // namespace inputmeta
