// The runs that fields are made of, at their edges.
#include "check.h"
#include "core/runs.h"

namespace inputmeta::test {
namespace {

using Row = std::vector<int32_t>;

constexpr int32_t kMax = static_cast<int32_t>(kInt32Max);

/// `count` cells, written by `write`.
template <class Write>
Row written(size_t count, Write write) {
  Row out(count, -77);
  write(out.data());
  return out;
}

TEST(stairs_of_every_kind_of_divisor) {
  const auto stairs = [](int64_t count, int64_t numerator, int64_t divisor) {
    return written(static_cast<size_t>(count),
                   [=](int32_t* out) { write_stairs(out, count, 100, numerator, divisor); });
  };
  CHECK_EQ(stairs(5, 3, 1), Row{103, 104, 105, 106, 107});
  CHECK_EQ(stairs(6, 3, 4), Row{100, 101, 101, 101, 101, 102});
  CHECK_EQ(stairs(6, 5, 3), Row{101, 102, 102, 102, 103, 103});
  CHECK_EQ(stairs(3, 0, 7), Row{100, 100, 100});
  CHECK_EQ(stairs(0, 5, 3), Row{});
  // Divisors that no int32 numerator reaches, and the last one that some do.
  for (const int64_t huge : {int64_t{1} << 31, int64_t{1} << 62, (int64_t{1} << 62) - 1}) {
    CHECK_EQ(stairs(2, kInt32Max - 1, huge), Row{100, 100});
  }
  CHECK_EQ(stairs(2, (int64_t{1} << 30) - 1, int64_t{1} << 30), Row{100, 101});
  CHECK_EQ(stairs(2, kInt32Max - 1, kInt32Max), Row{100, 101});
}

TEST(offsets_step_and_lengths_climb) {
  const auto rows = [](int64_t divisor) {
    return written(8, [=](int32_t* out) { write_offset_len(out, 4, 7, 10, 5, divisor); });
  };
  CHECK_EQ(rows(2), Row{7, 2, 17, 3, 27, 3, 37, 4});
  CHECK_EQ(rows(3), Row{7, 1, 17, 2, 27, 2, 37, 2});
}

TEST(ramps_and_quads_end_at_the_bound) {
  CHECK_EQ(written(3, [](int32_t* out) { write_ramp(out, 3, kMax - 2); }), Row{kMax - 2, kMax - 1, kMax});
  CHECK_EQ(written(3, [](int32_t* out) { write_ramp(out, 3, 0, 128); }), Row{0, 128, 256});
  const Quad first = {kMax - 1, 5, 0, -1};
  const Quad step = {1, -1, 2, 0};
  CHECK_EQ(written(8, [&](int32_t* out) { write_quads(out, 2, first, step); }),
           Row{kMax - 1, 5, 0, -1, kMax, 4, 2, -1});
}

TEST(a_ring_wraps_as_often_as_it_must) {
  CHECK_EQ(written(7, [](int32_t* out) { write_ring(out, 7, 30, 4, 3); }), Row{31, 32, 30, 31, 32, 30, 31});
  CHECK_EQ(written(2, [](int32_t* out) { write_ring(out, 2, 0, 5, int64_t{1} << 62); }), Row{5, 6});
}

TEST(a_negative_value_is_the_largest) {
  CHECK_EQ(Wide(largest_unsigned({})), Wide(0));
  CHECK_EQ(Wide(largest_unsigned(Row{3, kMax, 5})), Wide(kInt32Max));
  Row values(100, 1);
  values[63] = -2;
  CHECK_EQ(Wide(largest_unsigned(values)), (Wide{1} << 32) - 2);
}

TEST(streamed_cells_are_copied_wherever_they_begin_and_end) {
  Row cells(40);
  for (size_t k = 0; k < cells.size(); ++k) cells[k] = static_cast<int32_t>(k);
  for (size_t begin = 0; begin < 6; ++begin) {
    for (size_t count = 0; count < 20; ++count) {
      Row out(32, -77);
      Row expected = out;
      stream_cells(out.data() + begin, cells.data() + 3, static_cast<int64_t>(count));
      fence_streams();
      std::copy_n(cells.data() + 3, count, expected.data() + begin);
      CHECK_EQ(out, expected);
    }
  }
}

TEST(whole_segments_count_their_destinations) {
  const Row blocks = {7, -1, 9};
  const auto segments = [&](int64_t count, int32_t dst) {
    return written(12, [&](int32_t* out) { write_whole_segments(out, count, blocks.data(), 16, dst); });
  };
  CHECK_EQ(segments(3, 5), Row{7, 0, 16, 5, -1, 0, 16, 21, 9, 0, 16, 37});
  CHECK_EQ(segments(1, kMax), Row{7, 0, 16, kMax, -77, -77, -77, -77, -77, -77, -77, -77});
}

}  // namespace
}  // namespace inputmeta::test
