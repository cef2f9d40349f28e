// Integer arithmetic of the formulas: exact in int64, and in 128 bits where a product of two inputs is bounded.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string>

namespace inputmeta {

/// Wide enough for every product of two scalars, each at most 2^62 in size, plus a third: no bound check can wrap.
__extension__ using Wide = __int128;

inline constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kInt32Min = std::numeric_limits<int32_t>::min();

/// Smallest count of groups of `size` that hold `count` things; count >= 0, size >= 1. Does not form count + size.
constexpr int64_t ceil_div(int64_t count, int64_t size) { return count / size + (count % size != 0 ? 1 : 0); }

constexpr bool fits_int32(Wide value) { return kInt32Min <= value && value <= kInt32Max; }

/// int32 of a value that the plan has shown to fit.
constexpr int32_t narrow(int64_t value) { return static_cast<int32_t>(value); }

/// Decimal text of a wide value, for error reports.
std::string to_text(Wide value);

/// Divides non-negative numbers by one value, 1 or more: by a shift when that is a power of two, as it mostly is.
class Divisor {
 public:
  explicit constexpr Divisor(int64_t value)
      : value_(value), shift_(std::has_single_bit(unsigned_value()) ? std::countr_zero(unsigned_value()) : kNoShift) {}

  constexpr int64_t quotient(int64_t number) const { return shift_ == kNoShift ? number / value_ : number >> shift_; }
  constexpr int64_t remainder(int64_t number) const { return number - quotient(number) * value_; }
  constexpr int64_t ceil_quotient(int64_t number) const { return quotient(number) + (remainder(number) != 0 ? 1 : 0); }

 private:
  static constexpr int kNoShift = -1;
  constexpr uint64_t unsigned_value() const { return static_cast<uint64_t>(value_); }

  int64_t value_;
  int shift_;
};

/// Largest p % ring over the positions p of [begin, end); begin < end.
constexpr int64_t largest_ring_offset(int64_t begin, int64_t end, int64_t ring) {
  const bool reaches_last_slot = end / ring > begin / ring;
  return reaches_last_slot ? ring - 1 : (end - 1) % ring;
}

}  // namespace inputmeta
