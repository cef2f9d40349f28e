#include "core/runs.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace inputmeta {
namespace {

/// Calls visit(first, count, quotient) for each maximal run of k in [0, count) with one (numerator + k) // divisor.
template <class Visit>
inline void for_each_stair(int64_t count, int64_t numerator, int64_t divisor, Visit visit) {
  int64_t quotient = numerator / divisor;
  int64_t run = divisor - numerator % divisor;
  for (int64_t first = 0; first < count; first += run, run = divisor, ++quotient) {
    visit(first, std::min(run, count - first), static_cast<int32_t>(quotient));
  }
}

inline bool is_power_of_two(int64_t divisor) { return std::has_single_bit(static_cast<uint64_t>(divisor)); }

INPUTMETA_CLONES
void shift_stairs(int32_t* out, int64_t count, int32_t base, int32_t numerator, int shift) {
  for (int64_t k = 0; k < count; ++k) out[k] = base + ((numerator + static_cast<int32_t>(k)) >> shift);
}

INPUTMETA_CLONES
void shift_offset_len(int32_t* out, int64_t count, int32_t first, int32_t step, int32_t numerator, int shift) {
  for (int64_t k = 0; k < count; ++k) {
    const auto row = static_cast<int32_t>(k);
    out[2 * k] = first + row * step;
    out[2 * k + 1] = (numerator + row) >> shift;
  }
}

/// A power of two that int32 holds divides by a shift; numerators are at most 2^31 - 1, so a larger one never steps.
int shift_of(int64_t divisor) { return std::min(31, std::countr_zero(static_cast<uint64_t>(divisor))); }

}  // namespace

INPUTMETA_CLONES
uint32_t largest_unsigned(std::span<const int32_t> values) {
  uint32_t largest = 0;
  for (const int32_t value : values) {
    const auto candidate = static_cast<uint32_t>(value);
    largest = candidate > largest ? candidate : largest;
  }
  return largest;
}

INPUTMETA_CLONES
void write_constant(int32_t* out, int64_t count, int32_t value) {
  for (int64_t k = 0; k < count; ++k) out[k] = value;
}

INPUTMETA_CLONES
void write_ramp(int32_t* out, int64_t count, int32_t first, int32_t step) {
  // Unsigned: a borrowed cell that changed since it was checked may pass the int32 bound.
  const auto begin = static_cast<uint32_t>(first);
  const auto by = static_cast<uint32_t>(step);
  for (int64_t k = 0; k < count; ++k) out[k] = static_cast<int32_t>(begin + static_cast<uint32_t>(k) * by);
}

void write_stairs(int32_t* out, int64_t count, int32_t base, int64_t numerator, int64_t divisor) {
  if (is_power_of_two(divisor)) {
    shift_stairs(out, count, base, static_cast<int32_t>(numerator), shift_of(divisor));
    return;
  }
  for_each_stair(count, numerator, divisor, [=](int64_t first, int64_t run, int32_t quotient) {
    std::fill_n(out + first, run, base + quotient);
  });
}

void write_offset_len(int32_t* out, int64_t count, int32_t first, int32_t step, int64_t numerator, int64_t divisor) {
  if (is_power_of_two(divisor)) {
    shift_offset_len(out, count, first, step, static_cast<int32_t>(numerator), shift_of(divisor));
    return;
  }
  for_each_stair(count, numerator, divisor, [=](int64_t stair, int64_t run, int32_t quotient) {
    for (int64_t k = stair; k < stair + run; ++k) {
      out[2 * k] = first + static_cast<int32_t>(k) * step;
      out[2 * k + 1] = quotient;
    }
  });
}

INPUTMETA_CLONES
void write_whole_segments(int32_t* __restrict out, int64_t count, const int32_t* __restrict blocks, int32_t end,
                          int32_t dst) {
  // Unsigned: the segment after the last is not written, but its step is taken.
  const auto step = static_cast<uint32_t>(end);
  auto to = static_cast<uint32_t>(dst);
  for (int64_t k = 0; k < count; ++k, to += step) {
    out[4 * k] = blocks[k];
    out[4 * k + 1] = 0;
    out[4 * k + 2] = end;
    out[4 * k + 3] = static_cast<int32_t>(to);
  }
}

INPUTMETA_CLONES
void write_quads(int32_t* out, int64_t count, const Quad& first, const Quad& step) {
  // Unsigned: the step after the last row is taken too, and may pass the int32 bound there.
  constexpr int64_t kCells = 4;
  constexpr int64_t kRows = 4;  // written at once: the widest store
  using Rows = uint32_t __attribute__((vector_size(kRows * sizeof(Quad))));
  Rows rows, increment;
  for (int64_t cell = 0; cell < kRows * kCells; ++cell) {
    const auto by = static_cast<uint32_t>(step[static_cast<size_t>(cell % kCells)]);
    rows[cell] = static_cast<uint32_t>(first[static_cast<size_t>(cell % kCells)]) + static_cast<uint32_t>(cell / kCells) * by;
    increment[cell] = static_cast<uint32_t>(kRows) * by;
  }
  for (; count >= kRows; count -= kRows, out += kRows * kCells, rows += increment) std::memcpy(out, &rows, sizeof rows);
  if (count > 0) std::memcpy(out, &rows, static_cast<size_t>(count) * sizeof(Quad));
}

void write_ring(int32_t* out, int64_t count, int64_t base, int64_t first, int64_t ring) {
  int64_t offset = first % ring;
  for (int64_t written = 0; written < count; offset = 0) {
    const int64_t run = std::min(count - written, ring - offset);
    write_ramp(out + written, run, static_cast<int32_t>(base + offset));
    written += run;
  }
}

#if defined(__SSE2__)

void stream_cells(int32_t* out, const int32_t* cells, int64_t count) {
  constexpr int64_t kCells = sizeof(__m128i) / sizeof(int32_t);
  const auto misplaced = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) / sizeof(int32_t) % kCells);
  const int64_t head = std::min(count, (kCells - misplaced) % kCells);
  std::copy_n(cells, head, out);
  int64_t k = head;
  for (; k + kCells <= count; k += kCells) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + k), _mm_loadu_si128(reinterpret_cast<const __m128i*>(cells + k)));
  }
  std::copy_n(cells + k, count - k, out + k);
}

void fence_streams() { _mm_sfence(); }

#else

void stream_cells(int32_t* out, const int32_t* cells, int64_t count) { std::copy_n(cells, count, out); }

void fence_streams() {}

#endif

}  // namespace inputmeta
