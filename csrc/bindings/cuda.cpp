// The Python module inputmeta.engine._cuda: launches. Tensors cross as (address, shape, dtype), as in engine._core, but in a
// device's memory; Python has checked that they lie there. Nothing here waits for the device; a launch may wait for room
// in its queue, so it is made without the GIL.
#include <pybind11/pybind11.h>

#include <cstdint>

#include "bindings/cuda_zos.h"
#include "bindings/sealed.h"
#include "bindings/tensor_pairs.h"
#include "bindings/tensor_view.h"
#include "core/zos_decode.h"
#include "cuda/launch.h"

namespace py = pybind11;

namespace inputmeta::bindings {
namespace {

using cuda::Queue;

Queue queue_of(int device, uintptr_t stream) { return {device, reinterpret_cast<void*>(stream)}; }

/// Dense ranges, with the lengths if there is a tensor for them.
cuda::DenseRanges dense_ranges(const Expansion& expansion, const py::object& lens) {
  if (lens.is_none()) return {expansion.ranges.data(), nullptr};
  const auto cells = TensorView(lens.cast<py::tuple>()).int32_cells("the lengths");
  if (static_cast<int64_t>(cells.size()) != expansion.rows) throw py::value_error("the lengths need a cell a row");
  return {expansion.ranges.data(), cells.data()};
}

uint32_t divisor_from(int64_t value, const char* rule) {
  if (value < 1) throw py::value_error(rule);
  return zos_cut(value);
}

void expand_pivots(int device, uintptr_t stream, const py::tuple& pivots, const py::tuple& out) {
  const Expansion expansion(pivots, 4, out);
  const py::gil_scoped_release release;
  cuda::launch_expand_pivots(queue_of(device, stream), expansion.ranges.data(), expansion.rows, expansion.width,
                             expansion.out.data());
}

void expand_ring(int device, uintptr_t stream, const py::tuple& offset_len, int64_t ring, const py::tuple& out) {
  const Expansion expansion(offset_len, 2, out);
  const uint32_t divisor = divisor_from(ring, "swa_block_size >= 1");
  const py::gil_scoped_release release;
  cuda::launch_expand_ring(queue_of(device, stream), expansion.ranges.data(), divisor, expansion.rows, expansion.width,
                           expansion.out.data());
}

void expand_offsets(int device, uintptr_t stream, const py::tuple& offset_len, const py::tuple& out,
                    const py::object& lens) {
  const Expansion expansion(offset_len, 2, out);
  const cuda::DenseRanges ranges = dense_ranges(expansion, lens);
  const py::gil_scoped_release release;
  cuda::launch_expand_offsets(queue_of(device, stream), ranges, expansion.rows, expansion.width, expansion.out.data());
}

void expand_blocks(int device, uintptr_t stream, const py::tuple& offset_len, const py::tuple& block_tables,
                   int64_t tokens_per_block, const py::tuple& out, const py::object& lens) {
  const Expansion expansion(offset_len, 2, out);
  const TensorView tables(block_tables);
  const auto cells = tables.int32_rows("block_tables", tables.shape.size() == 2 ? tables.shape[1] : 0);
  const cuda::DenseRanges ranges = dense_ranges(expansion, lens);
  const uint32_t divisor = divisor_from(tokens_per_block, "tokens_per_block >= 1");
  const py::gil_scoped_release release;
  cuda::launch_expand_blocks(queue_of(device, stream), ranges, cells.data(), static_cast<int64_t>(cells.size()),
                             divisor, expansion.rows, expansion.width, expansion.out.data());
}

void gather_rows(int device, uintptr_t stream, const py::tuple& source, const py::tuple& rows, int32_t padding,
                 const py::tuple& out) {
  const Gathering gathering(source, rows, out);
  const Queue queue = queue_of(device, stream);
  const auto launch = [&]<class Cell>(Cell fill) {
    cuda::launch_gather_rows(queue, gathering.source_as<Cell>(), gathering.source.shape[0], gathering.columns,
                             gathering.rows.data(), gathering.out.shape[0], fill, gathering.out_as<Cell>());
  };
  const py::gil_scoped_release release;
  if (gathering.is_bool()) {
    launch(padding != 0);
  } else {
    launch(padding);
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
  seal_types(module);
}
