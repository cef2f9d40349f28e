#include "core/ngram.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "core/arithmetic.h"
#include "core/runs.h"

namespace inputmeta {
namespace {

/// Rows whose tokens are looked up at once.
constexpr size_t kStretch = 256;
/// Rows that are sooner written one by one.
constexpr int64_t kFewRows = 8;

/// Entries of `table` at each of `count` <= kStretch cells. P-NGRAM holds of what the plan read; a borrowed cell may have
/// changed since, and must not lead out of the table: each is read once, into the copy that is looked up.
INPUTMETA_CLONES
void look_up(const int32_t* cells, int64_t count, std::span<const int32_t> table, int32_t* out) {
  std::array<int32_t, kStretch> tokens;
  std::memcpy(tokens.data(), cells, static_cast<size_t>(count) * sizeof(int32_t));
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the copy is made: what is checked below is what is looked up
  const int32_t* const entries = table.data();
  const auto last = static_cast<uint32_t>(table.size() - 1);
  for (int64_t k = 0; k < count; ++k) {
    const auto token = static_cast<uint32_t>(tokens[static_cast<size_t>(k)]);
    out[k] = entries[static_cast<int32_t>(token < last ? token : last)];
  }
}

INPUTMETA_CLONES
bool contains(const int32_t* tokens, int64_t count, int32_t token) {
  int32_t found = 0;
  for (int64_t k = 0; k < count; ++k) found |= static_cast<int32_t>(tokens[k] == token);
  return found != 0;
}

/// One sequence's compressed history, the part that is not compressed yet looked up on the way.
class History {
 public:
  History(const Config& config, const Sequence& sequence)
      : compressed_(sequence.compressed_tokens),
        recent_(sequence.recent_tokens),
        lookup_(config.lookup_table),
        pad_token_(narrow(config.pad_token)) {
    has_sentinel_ = config.image_sentinel.has_value();
    sentinel_ = narrow(config.image_sentinel.value_or(0));
  }

  int32_t at(int64_t position) const {
    if (position < 0) return pad_token_;
    const int64_t compressed = compressed_.size();
    return position < compressed ? compressed_[position] : looked_up(recent_.values[static_cast<size_t>(position - compressed)]);
  }

  /// at() of `count` <= kStretch positions from `position` >= 0 on.
  void stretch(int64_t position, int64_t count, int32_t* out) const {
    const int64_t known = std::clamp<int64_t>(compressed_.size() - position, 0, count);
    if (known > 0) std::copy_n(compressed_.values.data() + position, known, out);
    if (known == count) return;
    look_up(recent_.values.data() + (position + known - compressed_.size()), count - known, lookup_.values, out + known);
  }

  /// Whether one of `count` tokens cuts.
  bool cuts_any(const int32_t* tokens, int64_t count) const {
    return has_sentinel_ && contains(tokens, count, sentinel_);
  }

  /// I-9: compared after the look-up.
  bool cuts(int32_t token) const { return has_sentinel_ && token == sentinel_; }

  int32_t pad_token() const { return pad_token_; }

 private:
  /// P-NGRAM holds of what the plan read; a borrowed cell may have changed since, and must not lead out of the table.
  int32_t looked_up(const int32_t& recent) const {
    const auto token = static_cast<uint32_t>(__atomic_load_n(&recent, __ATOMIC_RELAXED));  // read once
    return lookup_[std::min<int64_t>(token, lookup_.size() - 1)];
  }

  IntArray compressed_;
  IntArray recent_;
  IntArray lookup_;
  int32_t pad_token_;
  bool has_sentinel_;
  int32_t sentinel_;
};

void write_first_row(int32_t* row, int64_t columns, const History& history, int64_t position) {
  for (int64_t back = 0; back < columns; ++back) {
    const int32_t token = history.at(position - back);
    if (history.cuts(token)) {
      std::fill_n(row + back, columns - back, history.pad_token());
      return;
    }
    row[back] = token;
  }
}

/// Rows [1, count): a row is its own token and then the row before it, which is cut at the same token one column
/// earlier.
void write_next_rows(int32_t* row, int64_t count, int64_t columns, const History& history, int64_t position) {
  for (int64_t j = 1; j < count; ++j) {
    row += columns;
    const int32_t token = history.at(position + j);
    if (history.cuts(token)) {
      std::fill_n(row, columns, history.pad_token());
      continue;
    }
    row[0] = token;
    for (int64_t back = 1; back < columns; ++back) row[back] = row[back - 1 - columns];
  }
}

/// The same for a number of columns that the compiler knows: a stretch of tokens is looked up first, the rows between
/// two that are cut are then copies of it, and neither loop has a branch.
template <size_t kColumns>
void write_next_rows(int32_t* rows, int64_t count, const History& history, int64_t position) {
  constexpr size_t kBefore = kColumns - 1;  // tokens before the stretch that its first row shows
  std::array<int32_t, kBefore + kStretch> tokens;
  std::reverse_copy(rows, rows + kBefore, tokens.data());
  for (int64_t first = 1; first < count; first += kStretch) {
    const auto length = static_cast<size_t>(std::min<int64_t>(kStretch, count - first));
    int32_t* const own = tokens.data() + kBefore;
    history.stretch(position + first, static_cast<int64_t>(length), own);
    const bool cuts = history.cuts_any(own, static_cast<int64_t>(length));
    for (size_t j = 0; j < length;) {
      size_t cut = cuts ? j : length;
      while (cut < length && !history.cuts(own[cut])) ++cut;
      int32_t* row = rows + static_cast<size_t>(first) * kColumns + j * kColumns;
      for (; j < cut; ++j, row += kColumns) {
        for (size_t back = 0; back < kColumns; ++back) row[back] = tokens[kBefore + j - back];
      }
      if (cut == length) break;
      std::fill_n(row, kColumns, history.pad_token());
      std::fill_n(tokens.data() + cut, kColumns, history.pad_token());  // what later rows show of it and before it
      j = cut + 1;
    }
    std::copy_n(tokens.data() + length, kBefore, tokens.data());
  }
}

void write_rows(int32_t* rows, const Sequence& sequence, int64_t columns, const History& history) {
  const int64_t count = sequence.seqlen_q;
  const int64_t position = sequence.q_start();
  if (count == 0) return;
  write_first_row(rows, columns, history, position);
  if (count <= kFewRows) return write_next_rows(rows, count, columns, history, position);
  switch (columns) {
    case 1: return write_next_rows<1>(rows, count, history, position);
    case 2: return write_next_rows<2>(rows, count, history, position);
    case 3: return write_next_rows<3>(rows, count, history, position);
    case 4: return write_next_rows<4>(rows, count, history, position);
    default: return write_next_rows(rows, count, columns, history, position);
  }
}

}  // namespace

void write_ngrams(const Config& config, std::span<const Sequence> sequences, int32_t* rows) {
  const int64_t columns = config.max_ngram_size;
  for_each_chunk(sequences, [&](int64_t, const Sequence& sequence, int64_t first_row) {
    write_rows(rows + first_row * columns, sequence, columns, History(config, sequence));
  });
}

}  // namespace inputmeta
