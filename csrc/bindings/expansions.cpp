#include "bindings/expansions.h"

#include <string>

#include "core/expand.h"
#include "bindings/tensor_pairs.h"
#include "bindings/tensor_view.h"

namespace py = pybind11;

namespace inputmeta::bindings {
namespace {

void expand_decode_blocks(const py::tuple& offset_len, const py::tuple& block_tables, int64_t tokens_per_block,
                          const py::tuple& out) {
  if (tokens_per_block < 1) throw py::value_error("tokens_per_block >= 1");
  const Expansion expansion(offset_len, 2, out);
  const TensorView tables(block_tables);
  const auto blocks = tables.int32_rows("block_tables", tables.shape.size() == 2 ? tables.shape[1] : 0);
  const py::gil_scoped_release release;
  expand_blocks(expansion.ranges, blocks, tokens_per_block, expansion.width, expansion.out);
}

}  // namespace

void bind_expansions(py::module_& module) {
  module.def("dense_index_width", [](int64_t max_model_len, int64_t ratio) {
    if (ratio < 1 || max_model_len < 0) throw py::value_error("ratio >= 1 and max_model_len >= 0");
    return dense_index_width(max_model_len, ratio);
  }, py::arg("max_model_len"), py::arg("ratio"));
  module.def("expand_pivots", [](const py::tuple& pivots, const py::tuple& out) {
    const Expansion expansion(pivots, 4, out);
    const py::gil_scoped_release release;
    expand_pivots(expansion.ranges, expansion.width, expansion.out);
  }, py::arg("pivots"), py::arg("out"));
  module.def("expand_ring", [](const py::tuple& offset_len, int64_t ring, const py::tuple& out) {
    if (ring < 1) throw py::value_error("swa_block_size >= 1");
    const Expansion expansion(offset_len, 2, out);
    const py::gil_scoped_release release;
    expand_ring(expansion.ranges, ring, expansion.width, expansion.out);
  }, py::arg("offset_len"), py::arg("ring"), py::arg("out"));
  module.def("expand_offsets", [](const py::tuple& offset_len, const py::tuple& out) {
    const Expansion expansion(offset_len, 2, out);
    const py::gil_scoped_release release;
    expand_offsets(expansion.ranges, expansion.width, expansion.out);
  }, py::arg("offset_len"), py::arg("out"));
  module.def("expand_blocks", &expand_decode_blocks, py::arg("offset_len"), py::arg("block_tables"),
             py::arg("tokens_per_block"), py::arg("out"));
}

}  // namespace inputmeta::bindings
