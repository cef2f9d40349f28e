#include "core/zos_gather.h"

#include <algorithm>
#include <string>

#include "core/zos_varlen.h"

namespace inputmeta {

void check_gather(const ZosTokens& tokens) {
  const ZosTokenSources& sources = tokens.sources;
  const bool has_layout = sources.fresh_cu_seqlens_q != nullptr;
  int64_t end = 0;
  int64_t fresh_end = 0;
  for (size_t index = 0; index < tokens.seqlens_q.size(); ++index) {
    const int64_t seqlen_q = tokens.seqlens_q[index];
    const int64_t fresh_begin = fresh_end;
    end += seqlen_q;
    fresh_end = has_layout ? sources.fresh_cu_seqlens_q[index] : end;
    if (fresh_end < fresh_begin || fresh_end > sources.fresh_rows) {
      refuse_cell(has_layout ? "fresh_cu_seqlens_q" : "seqlens_q", index, has_layout ? fresh_end : seqlen_q,
                  "0 or more rows a sequence, " + std::to_string(sources.fresh_rows) + " fresh_input_ids in all");
    }
    const int64_t most = std::min(tokens.max_seqlen_q, fresh_end - fresh_begin);
    if (seqlen_q < 0 || seqlen_q > most) {
      refuse_cell("seqlens_q", index, seqlen_q, "0 or more, at most " + std::to_string(most) + " rows");
    }
    if (tokens.cu_seqlens_q[index] != end) {
      refuse_cell("cu_seqlens_q", index, tokens.cu_seqlens_q[index], "the inclusive sum of seqlens_q");
    }
    if (sources.remap == nullptr || sources.remap[index] < 0) continue;
    if (sources.remap[index] >= sources.previous) {
      refuse_cell("remap", index, sources.remap[index],
                  "a place below the " + std::to_string(sources.previous) + " of the last step");
    }
    if (seqlen_q - 1 > sources.predict_columns) {
      refuse_cell("seqlens_q", index, seqlen_q,
                  "at most 1 + the " + std::to_string(sources.predict_columns) + " columns of prev_predict_token_ids");
    }
  }
}

void gather_input_ids(const ZosTokens& tokens, int32_t* out, int64_t rows, bool has_tail) {
  ZosTokenSources sources = tokens.sources;
  if (sources.fresh_cu_seqlens_q == nullptr) sources.fresh_cu_seqlens_q = tokens.cu_seqlens_q.data();
  int64_t row = 0;
  for (size_t index = 0; index < tokens.seqlens_q.size(); ++index) {
    const auto count = static_cast<uint32_t>(tokens.seqlens_q[index]);
    for (uint32_t j = 0; j < count; ++j) out[row++] = *sources.token(static_cast<int64_t>(index), j);
  }
  if (has_tail) std::fill(out + row, out + rows, 0);
}

}  // namespace inputmeta
