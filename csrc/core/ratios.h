// Compression ratios: how original tokens, compressed tokens and physical blocks convert (section 3).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/arithmetic.h"
#include "core/batch.h"
#include "core/field_table.h"

namespace inputmeta {

/// One ratio n of an engine: a compressed token stands for n original tokens, b_c = block_size // n of them fill a
/// physical block. Supposes P-RATIO.
class Ratio {
 public:
  Ratio(int64_t value, int64_t block_size)
      : value_(value), tokens_per_block_(block_size / value), by_value_(value), by_block_(tokens_per_block_) {}

  int64_t value() const { return value_; }
  int64_t tokens_per_block() const { return tokens_per_block_; }

  /// Compressed tokens that `positions` original tokens complete.
  int64_t complete_tokens(int64_t positions) const { return by_value_.quotient(positions); }
  /// Logical block of a compressed token, and its place in it.
  int64_t block_of(int64_t token) const { return by_block_.quotient(token); }
  int64_t place_of(int64_t token) const { return by_block_.remainder(token); }
  /// Blocks that `tokens` compressed tokens take.
  int64_t blocks_for(int64_t tokens) const { return by_block_.ceil_quotient(tokens); }

 private:
  int64_t value_;
  int64_t tokens_per_block_;
  Divisor by_value_;
  Divisor by_block_;
};

/// ca_ratios: the sorted union of the dense and the sparse ratios; valid before P-RATIO is checked.
inline std::vector<int64_t> union_of_ratios(const Config& config) {
  std::vector<int64_t> values = config.dense_ratios;
  values.insert(values.end(), config.sparse_ratios.begin(), config.sparse_ratios.end());
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

/// The ratios of the layers, each list ascending and without repeats; `ca` is the union of the other two.
struct Ratios {
  std::vector<Ratio> dense;
  std::vector<Ratio> sparse;
  std::vector<Ratio> ca;

  Ratios() = default;
  explicit Ratios(const Config& config) {
    const auto has = [](const std::vector<int64_t>& list, int64_t value) {
      return std::find(list.begin(), list.end(), value) != list.end();
    };
    for (const int64_t value : union_of_ratios(config)) {
      ca.emplace_back(value, config.block_size);
      if (has(config.dense_ratios, value)) dense.push_back(ca.back());
      if (has(config.sparse_ratios, value)) sparse.push_back(ca.back());
    }
  }

  /// The ratios that a field of this kind has a bucket of, not for Bucket::plain.
  const std::vector<Ratio>& of(Bucket kind) const {
    return kind == Bucket::dense ? dense : kind == Bucket::sparse ? sparse : ca;
  }
  const Ratio& smallest() const { return ca.front(); }
  bool is_dense(const Ratio& ratio) const {
    return std::any_of(dense.begin(), dense.end(), [&](const Ratio& other) { return other.value() == ratio.value(); });
  }
};

}  // namespace inputmeta
