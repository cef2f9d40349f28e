// The Python module engine._cuda: launches. Tensors cross as (address, shape, dtype), as in engine._core, but in a
// device's memory; Python has checked that they lie there. Nothing here waits for the device.
#include <pybind11/pybind11.h>

#include <cstdint>

#include "bindings/cuda_zos.h"
#include "bindings/tensor_view.h"
#include "core/zos_decode.h"
#include "cuda/launch.h"

namespace py = pybind11;

namespace inputmeta::bindings {
namespace {

using cuda::Queue;

Queue queue_of(int device, uintptr_t stream) { return {device, reinterpret_cast<void*>(stream)}; }

/// Ranges [rows, range_columns] and their expansion [rows, width].
struct Expansion {
  const int32_t* ranges;
  int32_t* out;
  int64_t rows;
  int64_t width;

  Expansion(const py::tuple& ranges_tuple, int64_t range_columns, const py::tuple& out_tuple) {
    const TensorView range_view(ranges_tuple);
    const TensorView out_view(out_tuple);
    if (range_view.shape.empty() || out_view.shape.size() != 2 || range_view.shape[0] != out_view.shape[0]) {
      throw py::value_error("the expansion needs as many rows as its ranges have");
    }
    rows = out_view.shape[0];
    width = out_view.shape[1];
    ranges = range_view.int32_rows("the ranges", range_columns).data();
    out = out_view.int32_rows("the expansion", width).data();
  }

  /// Dense ranges, with the lengths if there is a tensor for them.
  cuda::DenseRanges dense(const py::object& lens) const {
    if (lens.is_none()) return {ranges, nullptr};
    const auto cells = TensorView(lens.cast<py::tuple>()).int32_cells("the lengths");
    if (static_cast<int64_t>(cells.size()) != rows) throw py::value_error("the lengths need a cell a row");
    return {ranges, cells.data()};
  }
};

uint32_t divisor_from(int64_t value, const char* rule) {
  if (value < 1) throw py::value_error(rule);
  return zos_cut(value);
}

void expand_pivots(int device, uintptr_t stream, const py::tuple& pivots, const py::tuple& out) {
  const Expansion expansion(pivots, 4, out);
  cuda::launch_expand_pivots(queue_of(device, stream), expansion.ranges, expansion.rows,
                             expansion.width, expansion.out);
}

void expand_ring(int device, uintptr_t stream, const py::tuple& offset_len, int64_t ring, const py::tuple& out) {
  const Expansion expansion(offset_len, 2, out);
  cuda::launch_expand_ring(queue_of(device, stream), expansion.ranges,
                           divisor_from(ring, "swa_block_size >= 1"), expansion.rows, expansion.width, expansion.out);
}

void expand_offsets(int device, uintptr_t stream, const py::tuple& offset_len, const py::tuple& out,
                    const py::object& lens) {
  const Expansion expansion(offset_len, 2, out);
  cuda::launch_expand_offsets(queue_of(device, stream), expansion.dense(lens), expansion.rows,
                              expansion.width, expansion.out);
}

void expand_blocks(int device, uintptr_t stream, const py::tuple& offset_len, const py::tuple& block_tables,
                   int64_t tokens_per_block, const py::tuple& out, const py::object& lens) {
  const Expansion expansion(offset_len, 2, out);
  const TensorView tables(block_tables);
  const auto cells = tables.int32_rows("block_tables", tables.shape.size() == 2 ? tables.shape[1] : 0);
  cuda::launch_expand_blocks(queue_of(device, stream), expansion.dense(lens), cells.data(),
                             static_cast<int64_t>(cells.size()), divisor_from(tokens_per_block, "tokens_per_block >= 1"),
                             expansion.rows, expansion.width, expansion.out);
}

void gather_rows(int device, uintptr_t stream, const py::tuple& source_tuple, const py::tuple& rows_tuple,
                 int32_t padding, const py::tuple& out_tuple) {
  const TensorView source(source_tuple);
  const TensorView out(out_tuple);
  const auto rows = TensorView(rows_tuple).int32_cells("the rows");
  std::vector<int64_t> expected = source.shape;
  if (expected.empty() || expected[0] == 0) throw py::value_error("a source with rows is needed");
  expected[0] = static_cast<int64_t>(rows.size());
  if (out.shape != expected || out.dtype != source.dtype) {
    throw py::value_error("the gathered tensor has the source's dtype and columns and a row for each index");
  }
  const int64_t columns = source.cells() / source.shape[0];
  const Queue queue = queue_of(device, stream);
  if (source.dtype == "bool") {
    cuda::launch_gather_rows(queue, static_cast<const bool*>(source.address), source.shape[0], columns, rows.data(),
                             expected[0], padding != 0, static_cast<bool*>(out.address));
  } else {
    cuda::launch_gather_rows(queue, static_cast<const int32_t*>(source.address), source.shape[0], columns, rows.data(),
                             expected[0], padding, static_cast<int32_t*>(out.address));
  }
}

}  // namespace
}  // namespace inputmeta::bindings

PYBIND11_MODULE(_cuda, module) {
  using namespace inputmeta::bindings;
  module.doc() = "Launches the engine's kernels. Tensors cross as (address, shape, dtype) in a device's memory.";
  bind_cuda_zos(module);
  module.def("expand_pivots", &expand_pivots, py::arg("device"), py::arg("stream"), py::arg("pivots"), py::arg("out"));
  module.def("expand_ring", &expand_ring, py::arg("device"), py::arg("stream"), py::arg("offset_len"), py::arg("ring"),
             py::arg("out"));
  module.def("expand_offsets", &expand_offsets, py::arg("device"), py::arg("stream"), py::arg("offset_len"),
             py::arg("out"), py::arg("lens") = py::none());
  module.def("expand_blocks", &expand_blocks, py::arg("device"), py::arg("stream"), py::arg("offset_len"),
             py::arg("block_tables"), py::arg("tokens_per_block"), py::arg("out"), py::arg("lens") = py::none());
  module.def("gather_rows", &gather_rows, py::arg("device"), py::arg("stream"), py::arg("source"), py::arg("rows"),
             py::arg("padding"), py::arg("out"));
}
