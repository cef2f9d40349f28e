// Runs a kernel's threads on the host, one after the other, over the grid that the launch would have. Arrays of a test
// have a heap block each, so that the sanitizer sees an access outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.h"

namespace inputmeta::test {

inline constexpr int32_t kPoison = -77777777;

/// Calls body(block, thread) for a grid; blocks in reverse, so that no order is relied on.
template <class Body>
void for_each_thread(uint32_t blocks, uint32_t threads, Body body) {
  for (uint32_t block = blocks; block-- > 0;) {
    for (uint32_t thread = 0; thread < threads; ++thread) body(block, thread);
  }
}

/// Numbers of a test, the same in every run.
class Draws {
 public:
  explicit Draws(unsigned seed) : engine_(seed) {}
  int64_t operator()(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }

 private:
  std::mt19937 engine_;
};

/// Cells whose first lies `shift` cells past an address that vectors may be loaded from; poisoned.
class Buffer {
 public:
  explicit Buffer(int64_t cells, int64_t shift = 0)
      : cells_(cells), shift_(shift), memory_(new(std::align_val_t{16}) int32_t[static_cast<size_t>(cells + shift)]) {
    std::fill_n(memory_, cells + shift, kPoison);
  }
  ~Buffer() { ::operator delete[](memory_, std::align_val_t{16}); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  int32_t* data() { return memory_ + shift_; }
  std::vector<int32_t> values() const { return {memory_ + shift_, memory_ + shift_ + cells_}; }
  void assign(const std::vector<int32_t>& values) { std::copy(values.begin(), values.end(), data()); }

 private:
  int64_t cells_;
  int64_t shift_;
  int32_t* memory_;
};

inline void check_same(const std::vector<int32_t>& actual, const std::vector<int32_t>& expected, const std::string& what,
                       std::source_location where = std::source_location::current()) {
  if (actual == expected) return;
  size_t k = 0;
  while (k < actual.size() && k < expected.size() && actual[k] == expected[k]) ++k;
  report_failure(what + " differs from cell " + std::to_string(k) + " on: " +
                     (k < actual.size() ? std::to_string(actual[k]) : "end") + ", expected " +
                     (k < expected.size() ? std::to_string(expected[k]) : "end"),
                 where);
}

}  // namespace inputmeta::test
