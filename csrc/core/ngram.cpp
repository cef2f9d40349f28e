#include "core/ngram.h"

#include <algorithm>
#include <type_traits>

#include "core/arithmetic.h"

namespace inputmeta {
namespace {

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
    return position < compressed ? compressed_[position] : lookup_[recent_[position - compressed]];
  }

  /// I-9: compared after the look-up.
  bool cuts(int32_t token) const { return has_sentinel_ && token == sentinel_; }

  int32_t pad_token() const { return pad_token_; }

 private:
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
/// earlier. `Columns` is a number or, for the small sizes in use, a constant: the row then needs no loop.
template <class Columns>
void write_next_rows(int32_t* row, int64_t count, Columns columns, const History& history, int64_t position) {
  for (int64_t j = 1; j < count; ++j) {
    row += columns;
    const int32_t token = history.at(position + j);
    if (history.cuts(token)) {
      std::fill_n(row, int64_t{columns}, history.pad_token());
      continue;
    }
    row[0] = token;
    for (int64_t back = 1; back < columns; ++back) row[back] = row[back - 1 - columns];
  }
}

void write_rows(int32_t* rows, const Sequence& sequence, int64_t columns, const History& history) {
  const int64_t count = sequence.seqlen_q;
  const int64_t position = sequence.q_start();
  if (count == 0) return;
  write_first_row(rows, columns, history, position);
  const auto write = [&](auto width) { write_next_rows(rows, count, width, history, position); };
  switch (columns) {
    case 1: return write(std::integral_constant<int64_t, 1>{});
    case 2: return write(std::integral_constant<int64_t, 2>{});
    case 3: return write(std::integral_constant<int64_t, 3>{});
    case 4: return write(std::integral_constant<int64_t, 4>{});
    case 5: return write(std::integral_constant<int64_t, 5>{});
    case 6: return write(std::integral_constant<int64_t, 6>{});
    case 7: return write(std::integral_constant<int64_t, 7>{});
    case 8: return write(std::integral_constant<int64_t, 8>{});
    default: return write(columns);
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
