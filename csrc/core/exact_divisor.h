// Division of numbers below 2^31 by a divisor that is known before: a multiplication and a shift, for any divisor alike,
// so that neither the host nor a kernel needs a second path for powers of two.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define INPUTMETA_ANYWHERE __host__ __device__
#else
#define INPUTMETA_ANYWHERE
#endif

namespace inputmeta {

/// With 2^(s-1) < value <= 2^s and m = ceil(2^(31+s) / value), m < 2^32 and m * value exceeds 2^(31+s) by less than
/// 2^s, so that number * m >> (31+s) is the quotient of every number below 2^31. A value above 2^31 divides all of them
/// to 0, as m = 0 does.
struct ExactDivisor {
  uint32_t value = 1;
  uint32_t multiplier = uint32_t{1} << 31;
  uint32_t shift = 31;

  ExactDivisor() = default;
  /// `divisor` is 1 or more.
  explicit constexpr ExactDivisor(uint32_t divisor) : value(divisor) {
    const auto bits = static_cast<uint32_t>(std::bit_width(divisor - 1));
    if (bits == 32) {
      multiplier = 0;
      return;
    }
    shift = 31 + bits;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << shift) + divisor - 1) / divisor);
  }

  INPUTMETA_ANYWHERE constexpr uint32_t quotient(uint32_t number) const {
    return static_cast<uint32_t>((uint64_t{number} * multiplier) >> shift);
  }
  INPUTMETA_ANYWHERE constexpr uint32_t remainder(uint32_t number) const { return number - quotient(number) * value; }
};

}  // namespace inputmeta
