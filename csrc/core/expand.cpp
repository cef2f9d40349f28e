#include "core/expand.h"

#include <algorithm>
#include <string>

#include "core/arithmetic.h"
#include "core/runs.h"

namespace inputmeta {
namespace {

[[noreturn]] void refuse_row(int64_t row, const char* rule) {
  throw ExpansionError("row " + std::to_string(row) + ": " + rule);
}

inline void ramp(int32_t* out, int64_t count, int32_t first) {
  for (int64_t k = 0; k < count; ++k) out[k] = first + static_cast<int32_t>(k);
}

/// Whether the run of `count` values from `first` on stays within int32; a run of none always does.
bool run_fits(int64_t first, int64_t count) { return count == 0 || fits_int32(Wide{first} + count - 1); }

/// Row by row with the loops inlined: a row is short, a call per run would cost as much as the run.
INPUTMETA_CLONES
void write_pivot_rows(const int32_t* pivots, int64_t rows, int64_t width, int32_t* out) {
  for (int64_t row = 0; row < rows; ++row, pivots += 4, out += width) {
    const int64_t history = pivots[1];
    const int64_t seen = history + pivots[3];
    ramp(out, history, pivots[0]);
    ramp(out + history, pivots[3], pivots[2]);
    std::fill_n(out + seen, width - seen, -1);
  }
}

/// Checks the lengths and calls write(row, offset, len, out_row), then fills the rest of the row with -1.
template <class Write>
void for_each_range(std::span<const int32_t> offset_len, int64_t width, std::span<int32_t> out, Write write) {
  const auto rows = static_cast<int64_t>(offset_len.size() / 2);
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t offset = offset_len[static_cast<size_t>(2 * row)];
    const int32_t len = offset_len[static_cast<size_t>(2 * row + 1)];
    if (offset < 0 || len < 0 || len > width) refuse_row(row, "offset >= 0 and 0 <= len <= width");
    int32_t* const out_row = out.data() + row * width;
    write(row, offset, len, out_row);
    write_constant(out_row + len, width - len, -1);
  }
}

}  // namespace

int64_t dense_index_width(int64_t max_model_len, int64_t ratio) {
  constexpr int64_t kAlignment = 128;
  return std::max<int64_t>(1, ceil_div(max_model_len / ratio, kAlignment)) * kAlignment;
}

void expand_pivots(std::span<const int32_t> pivots, int64_t width, std::span<int32_t> out) {
  const auto rows = static_cast<int64_t>(pivots.size() / 4);
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t* const pivot = pivots.data() + 4 * row;
    if (pivot[1] < 0 || pivot[3] < 0 || int64_t{pivot[1]} + pivot[3] > width) {
      refuse_row(row, "P1 >= 0, P3 >= 0 and P1 + P3 <= W");
    }
    if (!run_fits(pivot[0], pivot[1]) || !run_fits(pivot[2], pivot[3])) refuse_row(row, "both runs fit in int32");
  }
  write_pivot_rows(pivots.data(), rows, width, out.data());
}

void expand_ring(std::span<const int32_t> offset_len, int64_t ring, int64_t width, std::span<int32_t> out) {
  for_each_range(offset_len, width, out, [ring](int64_t row, int32_t offset, int32_t len, int32_t* out_row) {
    if (len > ring) refuse_row(row, "len <= swa_block_size");
    const int64_t slot = offset % ring;
    const int64_t before_wrap = std::min<int64_t>(len, ring - slot);
    if (!run_fits(offset, before_wrap)) refuse_row(row, "the window fits in int32");
    write_ring(out_row, len, offset - slot, slot, ring);
  });
}

void expand_offsets(std::span<const int32_t> offset_len, int64_t width, std::span<int32_t> out) {
  for_each_range(offset_len, width, out, [](int64_t row, int32_t offset, int32_t len, int32_t* out_row) {
    if (!run_fits(offset, len)) refuse_row(row, "the range fits in int32");
    write_ramp(out_row, len, offset);
  });
}

void expand_blocks(std::span<const int32_t> offset_len, std::span<const int32_t> block_tables, int64_t tokens_per_block,
                   int64_t width, std::span<int32_t> out) {
  const auto blocks = static_cast<int64_t>(block_tables.size());
  for_each_range(offset_len, width, out, [&](int64_t row, int32_t offset, int32_t len, int32_t* out_row) {
    if (len > 0 && (int64_t{offset} + len - 1) / tokens_per_block >= blocks) {
      refuse_row(row, "the range ends inside the flattened block tables");
    }
    int64_t block = offset / tokens_per_block;
    int64_t within = offset % tokens_per_block;
    for (int64_t k = 0; k < len; ++block, within = 0) {
      const int64_t run = std::min(len - k, tokens_per_block - within);
      const Wide first = Wide{block_tables[static_cast<size_t>(block)]} * tokens_per_block + within;
      if (first < 0 || !fits_int32(first + run - 1)) refuse_row(row, "every slot fits in int32");
      write_ramp(out_row + k, run, static_cast<int32_t>(first));
      k += run;
    }
  });
}

}  // namespace inputmeta
