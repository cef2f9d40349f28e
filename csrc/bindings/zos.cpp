#include "bindings/zos.h"

#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/borrowed.h"
#include "bindings/sealed.h"
#include "bindings/tensor_view.h"
#include "core/zos_decode.h"
#include "core/zos_gather.h"
#include "core/zos_inputs.h"
#include "core/zos_varlen.h"

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

  bool has(const std::string& name) const { return views_.contains(name); }

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

  /// Cells of an int32 tensor of one dimension, or null where there is none.
  const int32_t* optional_cells(const std::string& name, const Shape& shape) const {
    return has(name) ? cells<int32_t>(name, "int32", shape) : nullptr;
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

/// The last step's sequences, by the first array that has a cell for each of them.
int64_t rows_of(const Tensors& arrays, const char* name) {
  const Shape& shape = arrays.at(name).shape;
  return shape.empty() ? 0 : shape[0];
}

/// F-GATHER's arrays: `rows` in the extracted layout of `num_reqs` sequences. Without remap every sequence is new.
ZosTokenSources sources_from(const Tensors& arrays, const std::string& fresh_name, int64_t num_reqs, int64_t rows) {
  ZosTokenSources sources;
  sources.fresh_input_ids = arrays.cells<int32_t>(fresh_name, "int32", {rows});
  sources.fresh_rows = rows;
  sources.fresh_cu_seqlens_q = arrays.optional_cells("fresh_cu_seqlens_q", {num_reqs});
  sources.remap = arrays.optional_cells("remap", {num_reqs});
  if (sources.remap == nullptr) return sources;
  sources.previous = rows_of(arrays, "prev_sampled_token_ids");
  sources.prev_sampled_token_ids = arrays.cells<int32_t>("prev_sampled_token_ids", "int32", {sources.previous});
  const Shape& predict = arrays.at("prev_predict_token_ids").shape;
  sources.predict_columns = predict.size() == 2 ? predict[1] : 0;
  sources.prev_predict_token_ids =
      arrays.cells<int32_t>("prev_predict_token_ids", "int32", {sources.previous, sources.predict_columns});
  return sources;
}

ZosTokens tokens_of(const ZosTokenSources& sources, const ZosInputs& inputs, int64_t max_seqlen_q) {
  const auto count = static_cast<size_t>(inputs.num_reqs);
  return {sources, {inputs.seqlens_q, count}, {inputs.cu_seqlens_q, count}, max_seqlen_q};
}

ZosCopies copies_from(const Tensors& arrays, const Tensors& fields, const BoundConfig& config, int64_t num_reqs,
                      int64_t total_q) {
  const int64_t rows = std::max<int64_t>(1, total_q);
  ZosCopies copies;
  copies.tokens = sources_from(arrays, "input_ids", num_reqs, total_q);
  copies.out_cu_seqlens_q = fields.cells<int32_t>("cu_seqlens_q", "int32", {num_reqs});
  copies.out_input_ids = fields.cells<int32_t>("input_ids", "int32", {rows});
  copies.ngram_columns = std::max<int64_t>(0, config.config.max_ngram_size);
  copies.pad_token = static_cast<int32_t>(config.config.pad_token);
  if (copies.ngram_columns == 0) return copies;
  copies.ngram_token_ids = arrays.cells<int32_t>("ngram_token_ids", "int32", {total_q, copies.ngram_columns});
  copies.out_ngram_token_ids = fields.cells<int32_t>("ngram_token_ids", "int32", {rows, copies.ngram_columns});
  return copies;
}

/// All kernels: every per-row field of the step, what is copied, its block tables. Without rows there is one, the
/// neutral one.
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
  const ZosCopies copies = copies_from(inputs_by_name, outputs_by_name, config, inputs.num_reqs, total_q);
  check_zos_arrays(inputs, plan.ratios, total_q, columns, inputs_by_name.at("block_tables").cells(),
                   copies.tokens.fresh_cu_seqlens_q != nullptr);
  check_gather(tokens_of(copies.tokens, inputs, total_q));
  const py::gil_scoped_release release;
  zos_decode_kernel(inputs, total_q, constants, outputs);
  zos_copies_kernel(inputs, total_q, copies);
  zos_block_tables_kernel(inputs, columns, static_cast<int32_t*>(tables.address));
}

/// F-GATHER; with `has_tail`, rows past the last sum become 0 (F-TAIL).
void run_gather(const py::dict& arrays, const py::tuple& out, int64_t max_seqlen_q, bool has_tail) {
  const Tensors tensors(arrays);
  ZosInputs lengths;
  lengths.num_reqs = rows_of(tensors, "seqlens_q");
  lengths.seqlens_q = tensors.cells<int32_t>("seqlens_q", "int32", {lengths.num_reqs});
  lengths.cu_seqlens_q = tensors.cells<int32_t>("cu_seqlens_q", "int32", {lengths.num_reqs});
  const int64_t fresh_rows = rows_of(tensors, "fresh_input_ids");
  const ZosTokenSources sources = sources_from(tensors, "fresh_input_ids", lengths.num_reqs, fresh_rows);
  const auto rows = TensorView(out).int32_cells("out");
  if (static_cast<int64_t>(rows.size()) != fresh_rows) throw py::value_error("out has the rows of fresh_input_ids");
  const ZosTokens tokens = tokens_of(sources, lengths, max_seqlen_q);
  check_gather(tokens);
  const py::gil_scoped_release release;
  gather_input_ids(tokens, rows.data(), static_cast<int64_t>(rows.size()), has_tail);
}

/// F-VARLEN into (seqlens_k, cu_seqlens_q).
void run_varlen(const BoundConfig& config, const py::dict& arrays, const py::tuple& seqlens_k,
                const py::tuple& cu_seqlens_q, int64_t total_q) {
  const Tensors tensors(arrays);
  ZosVarlen varlen;
  varlen.num_reqs = rows_of(tensors, "seqlens_q");
  const Shape each = {varlen.num_reqs};
  varlen.seqlens_q = tensors.cells<int32_t>("seqlens_q", "int32", each);
  varlen.seqlens_k = tensors.cells<int32_t>("seqlens_k", "int32", each);
  varlen.fresh_cu_seqlens_q = tensors.cells<int32_t>("fresh_cu_seqlens_q", "int32", each);
  varlen.remap = tensors.optional_cells("remap", each);
  const Ratio smallest = Ratios(config.view()).smallest();
  ZosVarlenBounds bounds = {.total_q = total_q,
                            .tokens_per_block = smallest.tokens_per_block(),
                            .swa_block_size = config.config.swa_block_size};
  if (varlen.remap != nullptr) {
    varlen.previous = rows_of(tensors, "prev_seqlens_q");
    varlen.prev_seqlens_q = tensors.cells<int32_t>("prev_seqlens_q", "int32", {varlen.previous});
    varlen.prev_num_accepted_tokens = tensors.cells<int32_t>("prev_num_accepted_tokens", "int32", {varlen.previous});
    const Shape& predict = tensors.at("prev_predict_token_ids").shape;
    bounds.max_predicted = predict.size() == 2 ? predict[1] : 0;
    bounds.state_ids = tensors.cells<int32_t>("state_ids", "int32", each);
    bounds.block_tables_offsets = tensors.cells<int64_t>("block_tables_offsets", "int64", {varlen.num_reqs + 1});
    bounds.block_tables = tensors.at("block_tables").int32_cells("block_tables");
  }
  const auto keys = TensorView(seqlens_k).int32_cells("seqlens_k");
  const auto ends = TensorView(cu_seqlens_q).int32_cells("cu_seqlens_q");
  if (keys.size() != static_cast<size_t>(varlen.num_reqs) || keys.size() != ends.size()) {
    throw py::value_error("seqlens_k and cu_seqlens_q have a cell a sequence");
  }
  check_varlen(varlen, bounds);
  const py::gil_scoped_release release;
  shorten_step(varlen, keys.data(), ends.data());
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
  module.def("zos_gather", &run_gather, py::arg("arrays"), py::arg("out"), py::arg("max_seqlen_q"), py::arg("has_tail"));
  module.def("zos_varlen", &run_varlen, py::arg("config").none(false), py::arg("arrays"), py::arg("seqlens_k"),
             py::arg("cu_seqlens_q"), py::arg("total_q"));
}

}  // namespace inputmeta::bindings
