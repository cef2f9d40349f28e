#include "core/mirror.h"

#include "core/runs.h"

namespace inputmeta {
namespace {

/// Calls visit(index, blocks, offset) for every chunk in batch order; offset is its first row in a mirror.
template <class Visit>
void for_each_cut(const Boundaries& boundaries, const MirrorGroup& group, Visit visit) {
  int64_t offset = 0;
  for (int64_t index = 0; index < boundaries.count(); ++index) {
    const MirrorBlocks blocks(boundaries.rows(index), group);
    visit(index, blocks, offset);
    offset += blocks.mirror_rows();
  }
}

}  // namespace

void check_mirror(const Boundaries& boundaries, const MirrorGroup& group, std::span<const MirrorRanges> ratios) {
  const auto require = [](bool holds, const char* rule) {
    if (!holds) throw MirrorError(rule);
  };
  require(boundaries.count() >= 1 && boundaries.keys.size() == boundaries.queries.size(),
          "cu_seqlens_q and cu_seqlens_k hold n + 1 boundaries of n >= 1 sequences");
  require(boundaries.queries[0] == 0 && boundaries.keys[0] == 0, "cu_seqlens_q and cu_seqlens_k begin with 0");
  for (int64_t index = 0; index < boundaries.count(); ++index) {
    require(0 <= boundaries.rows(index) && boundaries.rows(index) <= boundaries.key_count(index),
            "0 <= seqlen_q <= seqlen_k");
  }
  for (const MirrorRanges& ranges : ratios) {
    require(ranges.ratio >= 1, "every ratio >= 1");
    Wide loaded = 0;
    for (int64_t index = 0; index < boundaries.count(); ++index) {
      loaded += std::max<int64_t>(1, boundaries.key_count(index) / ranges.ratio);
    }
    require(fits_int32(loaded), "every key range fits in int32");
  }
  const int64_t mirror_len = cp_mirror_len(boundaries, group);
  require(fits_int32(mirror_len), "cp_mirror_len fits in int32");
  for_each_cut(boundaries, group, [&](int64_t, const MirrorBlocks& blocks, int64_t offset) {
    require(fits_int32(largest_reverse_index(blocks.rows, offset, mirror_len, group)),
            "every reverse index fits in int32");
  });
}

int64_t cp_mirror_len(const Boundaries& boundaries, const MirrorGroup& group) {
  int64_t rows = 0;
  for_each_cut(boundaries, group, [&](int64_t, const MirrorBlocks& blocks, int64_t) { rows += blocks.mirror_rows(); });
  return rows;
}

void write_mirror_index(const Boundaries& boundaries, const MirrorGroup& group, int32_t* out) {
  for_each_cut(boundaries, group, [&](int64_t index, const MirrorBlocks& blocks, int64_t) {
    for (const int64_t block : group.own_blocks()) {
      const int64_t begin = blocks.begin(block);
      const int64_t owned = blocks.end(block) - begin;
      write_ramp(out, owned, narrow(boundaries.first_row(index) + begin));
      write_constant(out + owned, blocks.block_rows - owned, -1);
      out += blocks.block_rows;
    }
  });
}

void write_mirror_reverse_index(const Boundaries& boundaries, const MirrorGroup& group, int32_t* out) {
  const int64_t mirror_len = cp_mirror_len(boundaries, group);
  for_each_cut(boundaries, group, [&](int64_t index, const MirrorBlocks& blocks, int64_t offset) {
    int32_t* const chunk = out + boundaries.first_row(index);
    for (int64_t block = 0; blocks.begin(block) < blocks.rows; ++block) {
      const int64_t begin = blocks.begin(block);
      const int64_t first = group.owner_of(block) * mirror_len + offset + blocks.place_of(block, group);
      write_ramp(chunk + begin, blocks.end(block) - begin, narrow(first));
    }
  });
}

void write_mirror_ranges(const Boundaries& boundaries, const MirrorGroup& group, std::span<MirrorRanges> ratios) {
  for (MirrorRanges& ranges : ratios) ranges.base = 0;
  for_each_cut(boundaries, group, [&](int64_t index, const MirrorBlocks& blocks, int64_t offset) {
    const int64_t keys = boundaries.key_count(index);
    const int64_t first_position = keys - blocks.rows;
    for (MirrorRanges& ranges : ratios) {
      int64_t cell = offset;
      for (const int64_t block : group.own_blocks()) {
        const int64_t begin = blocks.begin(block);
        const int64_t owned = blocks.end(block) - begin;
        const int64_t padding = blocks.block_rows - owned;
        write_constant(ranges.ks + cell, owned, narrow(ranges.base));
        write_stairs(ranges.ke + cell, owned, narrow(ranges.base), first_position + begin + 1, ranges.ratio);
        write_constant(ranges.ks + cell + owned, padding, 0);
        write_constant(ranges.ke + cell + owned, padding, 0);
        cell += blocks.block_rows;
      }
      ranges.base += std::max<int64_t>(1, keys / ranges.ratio);
    }
  });
}

bool are_rows_of(std::span<const int32_t> rows, int64_t source_rows) {
  return std::ranges::all_of(rows, [source_rows](int32_t row) { return row < source_rows; });
}

Wide largest_reverse_index(int64_t chunk_rows, int64_t offset, int64_t mirror_len, const MirrorGroup& group) {
  if (chunk_rows == 0) return 0;
  const MirrorBlocks blocks(chunk_rows, group);
  // The last rank that owns a row has the largest cells: all the others end before its mirror begins.
  const int64_t last_block = (chunk_rows - 1) / blocks.block_rows;
  const int64_t block = std::min(last_block, group.size());  // block p is the second block of rank p - 1
  const int64_t place = blocks.place_of(block, group) + blocks.end(block) - blocks.begin(block) - 1;
  return Wide{group.owner_of(block)} * mirror_len + offset + place;
}

}  // namespace inputmeta
