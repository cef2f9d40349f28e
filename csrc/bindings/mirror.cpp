#include "bindings/mirror.h"

#include <algorithm>
#include <string>
#include <vector>

#include "bindings/tensor_pairs.h"
#include "bindings/tensor_view.h"
#include "core/mirror.h"

namespace py = pybind11;

namespace inputmeta::bindings {
namespace {

/// ks and ke of each ratio, all with `rows` cells.
std::vector<MirrorRanges> ranges_from(const py::list& ratios, size_t rows) {
  std::vector<MirrorRanges> ranges;
  for (const py::handle item : ratios) {
    const auto tuple = item.cast<py::tuple>();
    const auto ks = TensorView(tuple[1].cast<py::tuple>()).int32_cells("ks");
    const auto ke = TensorView(tuple[2].cast<py::tuple>()).int32_cells("ke");
    if (ks.size() != rows || ke.size() != rows) throw py::value_error("ks and ke need a cell a mirrored row");
    ranges.push_back({.ratio = tuple[0].cast<int64_t>(), .ks = ks.data(), .ke = ke.data()});
  }
  return ranges;
}

/// I-3: what the one row of a mirror without rows holds.
void write_neutral_mirror(std::span<int32_t> index, std::span<int32_t> reverse, std::span<MirrorRanges> ratios) {
  index[0] = reverse[0] = -1;
  for (const MirrorRanges& ranges : ratios) ranges.ks[0] = ranges.ke[0] = 0;
}

/// `index` and `reverse` have as many cells as the boundaries say, at least one.
void require_rows(std::span<const int32_t> cells, int64_t rows, const char* name) {
  if (static_cast<int64_t>(cells.size()) == std::max<int64_t>(1, rows)) return;
  throw py::value_error(std::string(name) + " has " + std::to_string(cells.size()) + " rows, the boundaries make it " +
                        std::to_string(rows));
}

void fill_mirror(const py::tuple& cu_seqlens_q, const py::tuple& cu_seqlens_k, int64_t cp_size, int64_t cp_rank,
                 const py::tuple& index_tuple, const py::tuple& reverse_tuple, const py::list& ratios) {
  if (cp_rank < 0 || cp_rank >= cp_size) throw py::value_error("0 <= cp_rank < cp_size");
  const MirrorGroup group(cp_size, cp_rank);
  const Boundaries boundaries = {.queries = TensorView(cu_seqlens_q).int32_cells("cu_seqlens_q"),
                                 .keys = TensorView(cu_seqlens_k).int32_cells("cu_seqlens_k")};
  const auto index = TensorView(index_tuple).int32_cells("mirror_cp_index");
  const auto reverse = TensorView(reverse_tuple).int32_cells("mirror_cp_reverse_index");
  std::vector<MirrorRanges> ranges = ranges_from(ratios, index.size());
  check_mirror(boundaries, group, ranges);
  const int64_t mirror_len = cp_mirror_len(boundaries, group);
  require_rows(index, mirror_len, "mirror_cp_index");
  require_rows(reverse, boundaries.queries.back(), "mirror_cp_reverse_index");
  const py::gil_scoped_release release;
  if (mirror_len == 0) return write_neutral_mirror(index, reverse, ranges);
  write_mirror_index(boundaries, group, index.data());
  write_mirror_reverse_index(boundaries, group, reverse.data());
  write_mirror_ranges(boundaries, group, ranges);
}

void gather(const py::tuple& source, const py::tuple& rows, int32_t fill, const py::tuple& out) {
  const Gathering gathering(source, rows, out);
  if (!are_rows_of(gathering.rows, gathering.source.shape[0])) {
    throw py::value_error("a row to gather lies past the source");
  }
  const py::gil_scoped_release release;
  const auto copy = [&]<class Cell>(Cell padding) {
    gather_rows(gathering.source_as<Cell>(), gathering.columns, gathering.rows, padding, gathering.out_as<Cell>());
  };
  if (gathering.is_bool()) {
    copy(fill != 0);
  } else {
    copy(fill);
  }
}

}  // namespace

void bind_mirror(py::module_& module) {
  module.def("fill_mirror", &fill_mirror, py::arg("cu_seqlens_q"), py::arg("cu_seqlens_k"), py::arg("cp_size"),
             py::arg("cp_rank"), py::arg("index"), py::arg("reverse_index"), py::arg("ranges"));
  module.def("gather", &gather, py::arg("source"), py::arg("rows"), py::arg("fill"), py::arg("out"));
}

}  // namespace inputmeta::bindings
