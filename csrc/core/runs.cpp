#include "core/runs.h"

#include <algorithm>
#include <bit>
#include <cstring>

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
  for (int64_t k = 0; k < count; ++k) out[k] = first + static_cast<int32_t>(k) * step;
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

void write_quads(int32_t* out, int64_t count, const Quad& first, const Quad& step) {
  // Unsigned: the step after the last row is taken too, and may pass the int32 bound there.
  std::array<uint32_t, 4> row, increment;
  std::memcpy(row.data(), first.data(), sizeof row);
  std::memcpy(increment.data(), step.data(), sizeof increment);
  for (int64_t k = 0; k < count; ++k) {
    std::memcpy(out + 4 * k, row.data(), sizeof row);
    for (size_t cell = 0; cell < row.size(); ++cell) row[cell] += increment[cell];
  }
}

void write_ring(int32_t* out, int64_t count, int64_t base, int64_t first, int64_t ring) {
  int64_t offset = first % ring;
  for (int64_t written = 0; written < count; offset = 0) {
    const int64_t run = std::min(count - written, ring - offset);
    write_ramp(out + written, run, static_cast<int32_t>(base + offset));
    written += run;
  }
}

}  // namespace inputmeta
