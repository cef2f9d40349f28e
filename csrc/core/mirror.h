// Context parallel mirror (section 7): a chunk's rows are cut in 2p blocks and rank r owns blocks r and 2p - 1 - r, so
// that early rows, which see few keys, and late ones are shared out evenly.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "core/arithmetic.h"

namespace inputmeta {

/// The p ranks of a context parallel group, seen from one of them; 0 <= rank < size. Ranks beyond the most rows that a
/// chunk can have own nothing and are not counted, so that no product of a block and its rows wraps.
class MirrorGroup {
 public:
  MirrorGroup(int64_t size, int64_t rank) : size_(std::min(size, kMostRanks)), rank_(std::min(rank, size_ - 1)) {}

  int64_t size() const { return size_; }
  int64_t block_count() const { return 2 * size_; }
  /// The blocks that this rank owns, in the order of its mirror.
  std::array<int64_t, 2> own_blocks() const { return {rank_, mirrored(rank_)}; }
  int64_t owner_of(int64_t block) const { return is_late(block) ? mirrored(block) : block; }
  /// Whether a block is the second one in its owner's mirror.
  bool is_late(int64_t block) const { return block >= size_; }

 private:
  static constexpr int64_t kMostRanks = kInt32Max + 1;
  int64_t mirrored(int64_t block) const { return block_count() - 1 - block; }

  int64_t size_;
  int64_t rank_;
};

/// One chunk's cut: block k holds the rows [begin(k), end(k)) of the chunk; the last blocks have fewer rows, or none.
struct MirrorBlocks {
  int64_t rows;        ///< of the chunk
  int64_t block_rows;  ///< b = cdiv(rows, 2p)

  MirrorBlocks(int64_t chunk_rows, const MirrorGroup& group)
      : rows(chunk_rows), block_rows(ceil_div(chunk_rows, group.block_count())) {}

  int64_t begin(int64_t block) const { return std::min(block * block_rows, rows); }
  int64_t end(int64_t block) const { return std::min((block + 1) * block_rows, rows); }
  /// Rows that each rank's mirror has for this chunk, padding included.
  int64_t mirror_rows() const { return 2 * block_rows; }
  /// Place of a block's first row in its owner's mirror of the chunk.
  int64_t place_of(int64_t block, const MirrorGroup& group) const { return group.is_late(block) ? block_rows : 0; }
};

/// Where the chunks of a batch begin and end: prefix sums with the leading 0, as cu_seqlens_q and cu_seqlens_k hold
/// them. Keys are those of the whole sequences even where the queries are only the rows that a truncation keeps.
struct Boundaries {
  std::span<const int32_t> queries;
  std::span<const int32_t> keys;

  int64_t count() const { return static_cast<int64_t>(queries.size()) - 1; }
  int64_t first_row(int64_t index) const { return queries[static_cast<size_t>(index)]; }
  int64_t rows(int64_t index) const { return queries[static_cast<size_t>(index) + 1] - first_row(index); }
  int64_t key_count(int64_t index) const {
    return int64_t{keys[static_cast<size_t>(index) + 1]} - keys[static_cast<size_t>(index)];
  }
};

/// One ratio's key ranges, a cell a mirrored row.
struct MirrorRanges {
  int64_t ratio;
  int32_t* ks;
  int32_t* ke;
  int64_t base = 0;  ///< scratch: first loaded row of the sequence at hand
};

/// Boundaries that are not those of one plan: nothing may be written by them.
class MirrorError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Throws MirrorError unless these are prefix sums from 0 on of one batch, every sequence has the keys of its rows, and
/// everything that a mirror of them holds fits in int32. Others may have written the tensors they come from.
void check_mirror(const Boundaries& boundaries, const MirrorGroup& group, std::span<const MirrorRanges> ratios);

/// Rows of a rank's mirror, the same on every rank. Only the query boundaries are read.
int64_t cp_mirror_len(const Boundaries& boundaries, const MirrorGroup& group);

/// F-ZIGZAG: the global row of each row of this rank's mirror, -1 past a chunk's end. `out` has cp_mirror_len cells.
void write_mirror_index(const Boundaries& boundaries, const MirrorGroup& group, int32_t* out);

/// F-REVERSE: where each global row lies in the mirrors of all ranks laid end to end. `out` has a cell a global row.
void write_mirror_reverse_index(const Boundaries& boundaries, const MirrorGroup& group, int32_t* out);

/// F-MIRRORKS: the key ranges of this rank's mirrored rows for all ratios in one pass, 0 and 0 for padding. Without
/// ratios there is nothing to do: the pass over (1,) that a kernel needs for its grid has its result dropped.
void write_mirror_ranges(const Boundaries& boundaries, const MirrorGroup& group, std::span<MirrorRanges> ratios);

/// Largest cell of F-REVERSE over one chunk; 0 without rows. `offset` is the chunk's first row in a mirror of
/// `mirror_len` rows.
Wide largest_reverse_index(int64_t chunk_rows, int64_t offset, int64_t mirror_len, const MirrorGroup& group);

/// Whether every row is one of `source_rows` rows, or negative for padding.
bool are_rows_of(std::span<const int32_t> rows, int64_t source_rows);

/// Row k of `out` is row rows[k] of the source, `columns` cells each, and `fill` in all columns where rows[k] is
/// negative. The rows are rows of the source.
template <class Cell>
void gather_rows(const Cell* source, int64_t columns, std::span<const int32_t> rows, Cell fill, Cell* out) {
  if (columns == 1) {
    for (const int32_t row : rows) *out++ = row < 0 ? fill : source[row];
    return;
  }
  for (const int32_t row : rows) {
    if (row < 0) {
      std::fill_n(out, columns, fill);
    } else {
      std::copy_n(source + row * columns, columns, out);
    }
    out += columns;
  }
}

}  // namespace inputmeta
