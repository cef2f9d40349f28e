// Section 7, worked by hand.
#include <algorithm>

#include "check.h"
#include "core/mirror.h"

namespace inputmeta::test {
namespace {

using Row = std::vector<int32_t>;

/// Chunks as lengths: queries of this step and keys after it.
struct Chunks {
  Row queries = {0};
  Row keys = {0};

  Chunks(const std::vector<std::pair<int32_t, int32_t>>& lengths) {
    for (const auto& [seqlen_q, seqlen_k] : lengths) {
      queries.push_back(queries.back() + seqlen_q);
      keys.push_back(keys.back() + seqlen_k);
    }
  }
  Boundaries view() const { return {queries, keys}; }
};

Chunks fresh(const Row& lengths) {
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (const int32_t length : lengths) pairs.emplace_back(length, length);
  return pairs;
}

Row mirror(const Chunks& chunks, int64_t size, int64_t rank) {
  const MirrorGroup group(size, rank);
  Row out(static_cast<size_t>(cp_mirror_len(chunks.view(), group)), -77);
  write_mirror_index(chunks.view(), group, out.data());
  return out;
}

Row reverse(const Chunks& chunks, int64_t size) {
  Row out(static_cast<size_t>(chunks.queries.back()), -77);
  write_mirror_reverse_index(chunks.view(), MirrorGroup(size, 0), out.data());
  return out;
}

// --- F-ZIGZAG and F-REVERSE ------------------------------------------------------------------------------------------

TEST(seven_rows_on_two_ranks) {
  CHECK_EQ(mirror(fresh({7}), 2, 0), Row{0, 1, 6, -1});
  CHECK_EQ(mirror(fresh({7}), 2, 1), Row{2, 3, 4, 5});
  CHECK_EQ(reverse(fresh({7}), 2), Row{0, 1, 4, 5, 6, 7, 2});
}

TEST(one_row_on_four_ranks) {
  CHECK_EQ(mirror(fresh({1}), 4, 0), Row{0, -1});
  for (const int64_t rank : {1, 2, 3}) CHECK_EQ(mirror(fresh({1}), 4, rank), Row{-1, -1});
  CHECK_EQ(reverse(fresh({1}), 4), Row{0});
}

TEST(blocks_are_cut_by_the_ceiling) {
  CHECK_EQ(mirror(fresh({9}), 2, 0), Row{0, 1, 2, -1, -1, -1});  // the last block is empty
  CHECK_EQ(mirror(fresh({9}), 2, 1), Row{3, 4, 5, 6, 7, 8});
  CHECK_EQ(reverse(fresh({9}), 2), Row{0, 1, 2, 6, 7, 8, 9, 10, 11});
  CHECK_EQ(mirror(fresh({8}), 2, 0), Row{0, 1, 6, 7});
}

TEST(a_group_of_one_has_all_rows_in_order) {
  CHECK_EQ(mirror(fresh({3, 2}), 1, 0), Row{0, 1, 2, -1, 3, 4});
  CHECK_EQ(reverse(fresh({3, 2}), 1), Row{0, 1, 2, 4, 5});
}

TEST(each_sequence_is_cut_by_itself) {
  const Chunks chunks = fresh({7, 0, 1});
  CHECK_EQ(mirror(chunks, 2, 0), Row{0, 1, 6, -1, 7, -1});
  CHECK_EQ(mirror(chunks, 2, 1), Row{2, 3, 4, 5, -1, -1});
  CHECK_EQ(reverse(chunks, 2), Row{0, 1, 6, 7, 8, 9, 2, 4});
  CHECK_EQ(mirror(fresh({0, 0}), 2, 1), Row{});
}

TEST(more_ranks_than_rows) {
  const int64_t huge = int64_t{1} << 62;
  CHECK_EQ(mirror(fresh({3}), huge, 0), Row{0, -1});
  CHECK_EQ(mirror(fresh({3}), huge, 2), Row{2, -1});
  CHECK_EQ(mirror(fresh({3}), huge, 3), Row{-1, -1});
  CHECK_EQ(mirror(fresh({3}), huge, huge - 1), Row{-1, -1});
  CHECK_EQ(reverse(fresh({3}), huge), Row{0, 2, 4});
}

/// All ranks together hold every row once, and the reverse index says where; for all short chunks and small groups.
TEST(the_reverse_index_is_the_inverse_of_all_mirrors) {
  for (int64_t size = 1; size <= 6; ++size) {
    for (int32_t length = 0; length <= 26; ++length) {
      const Chunks chunks = fresh({3, length, 1});
      Row all;
      for (int64_t rank = 0; rank < size; ++rank) {
        const Row own = mirror(chunks, size, rank);
        all.insert(all.end(), own.begin(), own.end());
      }
      const Row where = reverse(chunks, size);
      for (size_t row = 0; row < where.size(); ++row) {
        CHECK_EQ(all.at(static_cast<size_t>(where[row])), static_cast<int32_t>(row));
      }
      CHECK_EQ(all.size() - static_cast<size_t>(std::ranges::count(all, -1)), where.size());
    }
  }
}

TEST(the_largest_reverse_index_without_visiting_rows) {
  for (int64_t size = 1; size <= 6; ++size) {
    for (int32_t length = 1; length <= 30; ++length) {
      const Chunks chunks = fresh({length});
      const Row where = reverse(chunks, size);
      const int64_t mirror_len = cp_mirror_len(chunks.view(), MirrorGroup(size, 0));
      const Wide largest = largest_reverse_index(length, 0, mirror_len, MirrorGroup(size, 0));
      CHECK_EQ(largest, Wide{*std::ranges::max_element(where)});
    }
  }
  CHECK_EQ(largest_reverse_index(0, 9, 100, MirrorGroup(4, 0)), Wide{0});
  CHECK_EQ(largest_reverse_index(5, 10, 100, MirrorGroup(int64_t{1} << 62, 0)), Wide{410});
}

/// So P-INT32 on the mirror of all rows covers that of kept ones: the last owner is no later, its last row no further.
TEST(fewer_rows_reach_no_further) {
  for (int64_t size = 2; size <= 12; ++size) {
    const MirrorGroup group(size, 0);
    for (int64_t rows = 1; rows <= 60; ++rows) {
      const int64_t mirror_len = MirrorBlocks(rows, group).mirror_rows();
      const int64_t fewer = MirrorBlocks(rows - 1, group).mirror_rows();
      CHECK(fewer <= mirror_len);
      // A mirror far longer than the chunk's part of it tells owner and place apart.
      CHECK(largest_reverse_index(rows - 1, 0, 1000, group) <= largest_reverse_index(rows, 0, 1000, group));
    }
  }
}

// --- F-MIRRORKS ------------------------------------------------------------------------------------------------------

using Ranges = std::vector<Row>;

/// ks and ke of each ratio, in turn.
Ranges key_ranges(const Chunks& chunks, int64_t size, int64_t rank, const std::vector<int64_t>& ratios) {
  const MirrorGroup group(size, rank);
  const auto rows = static_cast<size_t>(cp_mirror_len(chunks.view(), group));
  Ranges cells(2 * ratios.size(), Row(rows, -77));
  std::vector<MirrorRanges> targets;
  for (size_t k = 0; k < ratios.size(); ++k) {
    targets.push_back({.ratio = ratios[k], .ks = cells[2 * k].data(), .ke = cells[2 * k + 1].data()});
  }
  write_mirror_ranges(chunks.view(), group, targets);
  write_mirror_ranges(chunks.view(), group, targets);  // nothing is left over from the first time
  return cells;
}

TEST(key_ranges_follow_their_rows) {
  // Positions 5 … 11 of a sequence of 12, and position 1 of one of 2, which has no full group of 4 but takes a row.
  const Chunks chunks({{7, 12}, {1, 2}});
  CHECK_EQ(key_ranges(chunks, 2, 0, {1, 4}),
           Ranges{{0, 0, 0, 0, 12, 0}, {6, 7, 12, 0, 14, 0}, {0, 0, 0, 0, 3, 0}, {1, 1, 3, 0, 3, 0}});
  CHECK_EQ(key_ranges(chunks, 2, 1, {4, 1}),
           Ranges{{0, 0, 0, 0, 0, 0}, {2, 2, 2, 2, 0, 0}, {0, 0, 0, 0, 0, 0}, {8, 9, 10, 11, 0, 0}});
}

TEST(a_ratio_that_is_no_power_of_two) {
  CHECK_EQ(key_ranges({{{7, 12}, {2, 5}}}, 1, 0, {3}),
           Ranges{{0, 0, 0, 0, 0, 0, 0, 0, 4, 4}, {2, 2, 2, 3, 3, 3, 4, 0, 5, 5}});
}

TEST(kept_rows_stand_at_the_end_of_the_keys) {
  // Two of seven queries are kept: the keys are still those of the whole sequence.
  CHECK_EQ(key_ranges({{{2, 12}}}, 1, 0, {1}), Ranges{{0, 0}, {11, 12}});
}

TEST(a_chunk_without_rows_still_has_keys) {
  CHECK_EQ(key_ranges({{{0, 9}, {0, 0}, {1, 1}}}, 2, 0, {4}), Ranges{{3, 0}, {3, 0}});
}

TEST(without_ratios_nothing_is_done) { CHECK_EQ(key_ranges(fresh({5}), 2, 0, {}), Ranges{}); }

// --- boundaries of no plan -------------------------------------------------------------------------------------------

std::string why_refused(const Row& queries, const Row& keys, int64_t ranks = 2, int64_t ratio = 4) {
  const MirrorRanges ranges = {.ratio = ratio, .ks = nullptr, .ke = nullptr};
  try {
    check_mirror({queries, keys}, MirrorGroup(ranks, 0), {&ranges, 1});
  } catch (const MirrorError& error) {
    return error.what();
  }
  return "";
}

TEST(boundaries_are_checked_before_they_are_followed) {
  constexpr int32_t kMax = static_cast<int32_t>(kInt32Max);
  CHECK_EQ(why_refused({0, 7, 7}, {0, 9, 9}), std::string());
  CHECK_EQ(why_refused({0}, {0}),
           std::string("cu_seqlens_q and cu_seqlens_k hold n + 1 boundaries of n >= 1 sequences"));
  CHECK_EQ(why_refused({0, 1}, {0, 1, 2}), why_refused({}, {}));
  CHECK_EQ(why_refused({1, 7}, {0, 9}), std::string("cu_seqlens_q and cu_seqlens_k begin with 0"));
  CHECK_EQ(why_refused({0, 7, 6}, {0, 9, 9}), std::string("0 <= seqlen_q <= seqlen_k"));
  CHECK_EQ(why_refused({0, 7}, {0, 6}), std::string("0 <= seqlen_q <= seqlen_k"));
  CHECK_EQ(why_refused({0, 0}, {0, -1}), std::string("0 <= seqlen_q <= seqlen_k"));
  constexpr int32_t kMin = static_cast<int32_t>(kInt32Min);
  CHECK_EQ(why_refused({0, kMin, 0}, {0, kMin, 0}), std::string("0 <= seqlen_q <= seqlen_k"));
  CHECK_EQ(why_refused({0, 0, 0}, {0, kMax, kMax}, 2, 1), std::string("every key range fits in int32"));
  CHECK_EQ(why_refused({0, 0, 0}, {0, kMax, kMax}, 2, 2), std::string());
  CHECK_EQ(why_refused({0, 1}, {0, 1}, 2, 0), std::string("every ratio >= 1"));
  CHECK_EQ(why_refused({0, kMax}, {0, kMax}, 1), std::string("cp_mirror_len fits in int32"));
  Row many(32769, 0);
  for (size_t k = 0; k < many.size(); ++k) many[k] = static_cast<int32_t>(k);
  many.push_back(many.back() + 65536);
  CHECK_EQ(why_refused(many, many, 32768), std::string("every reverse index fits in int32"));
}

// --- gathering -------------------------------------------------------------------------------------------------------

TEST(rows_are_gathered_and_padding_filled) {
  const Row source = {10, 11, 20, 21, 30, 31};
  const Row rows = {2, -1, 0};
  Row out(6, -77);
  CHECK(are_rows_of(rows, 3));
  CHECK(!are_rows_of(rows, 2));
  gather_rows<int32_t>(source.data(), 2, rows, 7, out.data());
  CHECK_EQ(out, Row{30, 31, 7, 7, 10, 11});
  const bool flags[] = {true, false};
  bool gathered[] = {false, true, true};
  const Row order = {0, -1, 1};
  gather_rows<bool>(flags, 1, order, false, gathered);
  CHECK(gathered[0] && !gathered[1] && !gathered[2]);
}

}  // namespace
}  // namespace inputmeta::test
