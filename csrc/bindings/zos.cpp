#include "bindings/zos.h"

#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/borrowed.h"
#include "bindings/sealed.h"
#include "bindings/tensor_view.h"
#include "core/zos_decode.h"
#include "core/zos_gather.h"
#include "core/zos_inputs.h"

namespace py = pybind11;

namespace inputmeta::bindings {
namespace {

using Shape = std::vector<int64_t>;

/// (dtype, shape, offset in the pack) of an array; None for the one that a step may lack.
py::object array_of(const ZosLayout& layout, const std::string& name) {
  const ZosArray* const found = layout.find(name);
  if (found == nullptr) return py::none();
  return py::make_tuple(dtype_name(found->type), shape_of(found->rows, found->columns), found->offset);
}

/// Where the arrays are in a pack at `base`, in their order; 0 for the last if the step lacks it.
py::tuple addresses_in(const ZosLayout& layout, uintptr_t base) {
  py::tuple addresses(kZosArrays);
  for (size_t k = 0; k < kZosArrays; ++k) {
    const bool is_there = k < layout.arrays.size();
    addresses[k] = py::int_(is_there ? base + static_cast<uintptr_t>(layout.arrays[k].offset) : 0);
  }
  return addresses;
}

/// A planned step, as Step is for the eager paths.
class ZosStep {
 public:
  ZosStep(const py::sequence& sequences, std::shared_ptr<BoundConfig> config)
      : owner_(std::move(config)),
        config_(owner_->view()),
        sequences_(sequences),
        zos_(plan_zos(config_, sequences_.views())),
        layout_(zos_, config_) {
    sequences_.hold();
  }

  const ZosLayout& layout() const { return layout_; }

  py::dict scalars() const {
    py::dict scalars;
    scalars["num_reqs"] = zos_.plan.num_reqs;
    scalars["total_q"] = zos_.plan.total_q;
    scalars["max_seqlen_q"] = zos_.max_seqlen_q;
    scalars["max_num_blocks"] = zos_.plan.max_num_blocks;
    return scalars;
  }

  void fill(const py::tuple& pack) const {
    const auto bytes = std::as_writable_bytes(TensorView(pack).int32_cells("the pack"));
    if (static_cast<int64_t>(bytes.size()) != layout_.bytes) throw py::value_error("the pack is not as planned");
    const py::gil_scoped_release release;
    fill_zos_inputs(config_, sequences_.views(), zos_, layout_, bytes);
  }

 private:
  std::shared_ptr<BoundConfig> owner_;
  Config config_;
  BorrowedSequences sequences_;
  ZosPlan zos_;
  ZosLayout layout_;
};

/// ([(key, dtype, shape)] of plain fields, [(name, buckets, shape of one bucket)] of stacked ones).
py::tuple outputs_of(const BoundConfig& config, int64_t num_reqs, int64_t total_q, int64_t columns) {
  const Config view = config.view();
  const Plan plan = plan_zos_outputs(view, num_reqs, total_q, columns);
  py::list plain;
  std::map<std::string, std::pair<py::list, py::tuple>> stacked;
  for (const FieldSpec& spec : zos_fields(plan, view)) {
    const py::tuple shape = shape_of(spec.rows, spec.columns);
    if (spec.ratio == 0) {
      plain.append(py::make_tuple(spec.key(), dtype_name(spec.declaration->dtype), shape));
      continue;
    }
    auto& [buckets, size] = stacked[spec.declaration->name];
    buckets.append(std::to_string(spec.ratio));
    size = shape;
  }
  py::list stacks;
  for (const auto& [name, stack] : stacked) stacks.append(py::make_tuple(name, stack.first, stack.second));
  for (const char* const name : plan.empty_buckets(view)) {
    stacks.append(py::make_tuple(name, py::list(), shape_of(total_q, -1)));
  }
  return py::make_tuple(plain, stacks);
}

/// Tensors by name, each checked for dtype and shape before its address is taken.
class Tensors {
 public:
  explicit Tensors(const py::dict& tensors) {
    for (const auto& [name, tensor] : tensors) views_.emplace(name.cast<std::string>(), tensor.cast<py::tuple>());
  }

  const TensorView& at(const std::string& name) const {
    const auto found = views_.find(name);
    if (found == views_.end()) throw py::value_error(name + " is missing");
    return found->second;
  }

  template <class Cell>
  Cell* cells(const std::string& name, const char* dtype, const Shape& shape) const {
    const TensorView& view = at(name);
    if (view.dtype != dtype || view.shape != shape) throw py::value_error(name + " is not the tensor that was planned");
    return static_cast<Cell*>(view.address);
  }

  /// Where a field of the metadata kernel lies: [rows], [rows, 2], or with buckets the stack of one of these for each,
  /// [buckets, q_stride >= rows, …].
  ZosPlace place(const FieldDeclaration& field, const Ratios& ratios, int64_t rows) const {
    const Shape row = zos_columns(field) == 1 ? Shape{} : Shape{zos_columns(field)};
    const size_t before = field.bucket == Bucket::plain ? 0 : 1;
    if (before == 1 && ratios.of(field.bucket).empty()) return {};
    const TensorView& view = at(field.name);
    const Shape& shape = view.shape;
    bool is_planned = view.dtype == dtype_name(field.dtype) && shape.size() == before + 1 + row.size() &&
                      std::equal(row.begin(), row.end(), shape.end() - static_cast<ptrdiff_t>(row.size()));
    if (is_planned && before == 0) is_planned = shape[0] == rows;
    if (is_planned && before == 1) {
      is_planned = shape[0] == static_cast<int64_t>(ratios.of(field.bucket).size()) && shape[1] >= rows;
    }
    if (!is_planned) throw py::value_error(std::string(field.name) + " is not the tensor that was planned");
    return {view.address, before == 0 ? 0 : shape[1] * zos_columns(field)};
  }

 private:
  std::map<std::string, TensorView> views_;
};

ZosInputs inputs_from(const Tensors& arrays) {
  ZosInputs inputs;
  const Shape& shape = arrays.at("seqlens_q").shape;
  inputs.num_reqs = shape.empty() ? 0 : shape[0];
  const Shape each = {inputs.num_reqs};
  inputs.seqlens_q = arrays.cells<int32_t>("seqlens_q", "int32", each);
  inputs.seqlens_k = arrays.cells<int32_t>("seqlens_k", "int32", each);
  inputs.cu_seqlens_q = arrays.cells<int32_t>("cu_seqlens_q", "int32", each);
  inputs.state_ids = arrays.cells<int32_t>("state_ids", "int32", each);
  inputs.is_placeholder = arrays.cells<bool>("is_placeholder", "bool", each);
  inputs.block_tables_offsets = arrays.cells<int64_t>("block_tables_offsets", "int64", {inputs.num_reqs + 1});
  inputs.block_tables = arrays.cells<int32_t>("block_tables", "int32", arrays.at("block_tables").shape);
  return inputs;
}

ZosOutputs outputs_from(const Tensors& fields, const Ratios& ratios, int64_t rows) {
  ZosOutputs outputs;
  for (size_t k = 0; k < kZosFieldCount; ++k) {
    outputs.places[k] = fields.place(declaration_of(kZosFields.at[k]), ratios, rows);
  }
  return outputs;
}

/// Both kernels: every per-row field of the step, then its block tables. Without rows there is one, the neutral one.
void run_kernels(const BoundConfig& config, const py::dict& arrays, const py::dict& fields, int64_t total_q) {
  const Tensors inputs_by_name(arrays);
  const Tensors outputs_by_name(fields);
  const TensorView& tables = outputs_by_name.at("block_tables");
  if (tables.shape.size() != 2 || tables.dtype != "int32") throw py::value_error("block_tables is not as planned");
  const int64_t rows = tables.shape[0];
  if (rows != std::max<int64_t>(1, total_q)) throw py::value_error("block_tables has a row for each of total_q");
  const int64_t columns = tables.shape[1];
  const Config view = config.view();
  const Plan plan = plan_zos_outputs(view, 0, total_q, columns);
  const ZosConstants constants(view, plan.ratios, columns);
  const ZosInputs inputs = inputs_from(inputs_by_name);
  const ZosOutputs outputs = outputs_from(outputs_by_name, plan.ratios, rows);
  check_zos_arrays(inputs, plan.ratios, total_q, columns, inputs_by_name.at("block_tables").cells());
  const py::gil_scoped_release release;
  zos_decode_kernel(inputs, total_q, constants, outputs);
  zos_block_tables_kernel(inputs, columns, static_cast<int32_t*>(tables.address));
}

/// cu_seqlens_q is an input, or with `sums` an output.
void run_gather(const py::dict& arrays, const py::tuple& out, const std::optional<py::tuple>& sums) {
  const Tensors tensors(arrays);
  const TensorView& predict = tensors.at("prev_predict");
  const int64_t columns = predict.shape.size() == 2 ? predict.shape[1] : 0;
  const auto cells = [&](const char* name) { return tensors.at(name).int32_cells(name); };
  const ZosTokens tokens = {.fresh_input_ids = cells("fresh_input_ids"),
                            .prev_sampled = cells("prev_sampled"),
                            .prev_predict = predict.int32_rows("prev_predict", columns),
                            .predict_columns = columns,
                            .remap = cells("remap"),
                            .seqlens_q = cells("seqlens_q"),
                            .cu_seqlens_q = sums ? std::span<int32_t>() : cells("cu_seqlens_q")};
  const auto ends = sums ? TensorView(*sums).int32_cells("cu_seqlens_q") : std::span<int32_t>();
  const auto rows = TensorView(out).int32_cells("out");
  const bool shapes_agree = predict.shape[0] == static_cast<int64_t>(tokens.prev_sampled.size()) &&
                            tokens.seqlens_q.size() == tokens.remap.size() &&
                            (sums ? ends.size() : tokens.cu_seqlens_q.size()) == tokens.remap.size() &&
                            rows.size() == tokens.fresh_input_ids.size();
  if (!shapes_agree) throw py::value_error("the arrays of the gather do not have the same sequences or rows");
  check_gather(tokens);
  const py::gil_scoped_release release;
  gather_input_ids(tokens, rows);
  if (!ends.empty()) sum_seqlens(tokens.seqlens_q, ends);
}

}  // namespace

void bind_zos(py::module_& module) {
  py::class_<ZosLayout>(module, "ZosLayout", "Where the arrays of a ZOS decode step lie in its pack.")
      .def_readonly("bytes", &ZosLayout::bytes)
      .def_property_readonly("table_cells", [](const ZosLayout& layout) { return layout["block_tables"].rows; })
      .def("array", &array_of, py::arg("name"))
      .def("addresses", &addresses_in, py::arg("base"))
      .def(py::self == py::self);
  py::class_<ZosStep>(module, "ZosStep", "A planned ZOS decode step: every precondition but P-OUT holds.")
      .def("layout", &ZosStep::layout)
      .def("scalars", &ZosStep::scalars)
      .def("fill", &ZosStep::fill, py::arg("pack"));
  leave_nothing_dangling<ZosStep>();
  module.def(
      "plan_zos",
      [](const py::sequence& sequences, std::shared_ptr<BoundConfig> config) {
        return std::make_unique<ZosStep>(sequences, std::move(config));
      },
      py::arg("sequences"), py::arg("config").none(false));
  module.def("zos_outputs", &outputs_of, py::arg("config").none(false), py::arg("num_reqs"), py::arg("total_q"),
             py::arg("columns"));
  module.def("zos_decode", &run_kernels, py::arg("config").none(false), py::arg("arrays"), py::arg("fields"),
             py::arg("total_q"));
  module.def("zos_gather", &run_gather, py::arg("arrays"), py::arg("out"), py::arg("sums") = py::none());
}

}  // namespace inputmeta::bindings
