#include "core/zos_gather.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace inputmeta {
namespace {

[[noreturn]] void refuse_sequence(size_t index, const std::string& rule) {
  throw std::invalid_argument("sequence " + std::to_string(index) + ": " + rule);
}

}  // namespace

void check_gather(const ZosTokens& tokens) {
  const auto rows = static_cast<int64_t>(tokens.fresh_input_ids.size());
  const auto previous = static_cast<int64_t>(tokens.prev_sampled.size());
  int64_t end = 0;
  for (size_t index = 0; index < tokens.remap.size(); ++index) {
    const int64_t seqlen_q = tokens.seqlens_q[index];
    if (seqlen_q < 0) refuse_sequence(index, "seqlens_q >= 0");
    end += seqlen_q;
    if (!tokens.cu_seqlens_q.empty() && tokens.cu_seqlens_q[index] != end) {
      refuse_sequence(index, "cu_seqlens_q is the inclusive sum of seqlens_q");
    }
    if (end > rows) refuse_sequence(index, "seqlens_q sum to at most " + std::to_string(rows) + " fresh_input_ids");
    if (tokens.remap[index] < 0) continue;
    if (tokens.remap[index] >= previous) {
      refuse_sequence(index, "remap < len(prev_sampled) = " + std::to_string(previous));
    }
    if (seqlen_q - 1 > tokens.predict_columns) {
      refuse_sequence(index, "seqlens_q - 1 <= columns of prev_predict = " + std::to_string(tokens.predict_columns));
    }
  }
}

void gather_input_ids(const ZosTokens& tokens, std::span<int32_t> out) {
  int64_t row = 0;
  for (size_t index = 0; index < tokens.remap.size(); ++index) {
    const int64_t count = tokens.seqlens_q[index];
    int32_t* const rows = out.data() + row;
    const int32_t source = tokens.remap[index];
    if (source < 0) {
      const int32_t* const fresh = tokens.fresh_input_ids.data() + row;
      if (fresh != rows) std::copy_n(fresh, count, rows);
    } else if (count > 0) {
      rows[0] = tokens.prev_sampled[static_cast<size_t>(source)];
      std::copy_n(tokens.prev_predict.data() + source * tokens.predict_columns, count - 1, rows + 1);
    }
    row += count;
  }
}

void sum_seqlens(std::span<const int32_t> seqlens_q, std::span<int32_t> out) {
  std::inclusive_scan(seqlens_q.begin(), seqlens_q.end(), out.begin());
}

}  // namespace inputmeta
