#include "bindings/step.h"

#include <pybind11/stl.h>

#include <string>
#include <utility>

#include "core/fill.h"
#include "bindings/sealed.h"
#include "bindings/tensor_view.h"

namespace py = pybind11;

namespace inputmeta::bindings {
namespace {

/// The allocation is Python's; a tensor that is not the planned one would be written past its end.
void require_planned(const FieldSpec& spec, const TensorView& tensor) {
  const bool has_shape = spec.columns < 0 ? tensor.shape == std::vector<int64_t>{spec.rows}
                                          : tensor.shape == std::vector<int64_t>{spec.rows, spec.columns};
  if (!has_shape || tensor.dtype != dtype_name(spec.declaration->dtype) || tensor.address == nullptr) {
    throw py::value_error(spec.key() + " is not the tensor that was planned");
  }
}

}  // namespace

Step::Step(Path path, std::shared_ptr<BoundConfig> config, const py::sequence& sequences,
           std::optional<int64_t> table_columns)
    : owner_(std::move(config)), config_(owner_->view()), sequences_(sequences) {
  plan_ = path == Path::prompt ? plan_prompt(config_, sequences_.views())
                               : plan_decode(config_, sequences_.views(), table_columns);
  specs_ = plan_.fields(config_);
  sequences_.hold();
}

py::list Step::fields() const {
  py::list list(specs_.size());
  for (size_t k = 0; k < specs_.size(); ++k) {
    const FieldSpec& spec = specs_[k];
    list[k] = py::make_tuple(spec.key(), dtype_name(spec.declaration->dtype), shape_of(spec.rows, spec.columns));
  }
  return list;
}

py::list Step::empty_buckets() const {
  py::list names;
  for (const char* const name : plan_.empty_buckets(config_)) names.append(name);
  return names;
}

py::dict Step::scalars() const {
  py::dict scalars;
  scalars["num_reqs"] = plan_.num_reqs;
  scalars["total_q"] = plan_.total_q;
  scalars["is_prompt"] = plan_.path == Path::prompt;
  if (plan_.path == Path::decode) {
    scalars["max_num_blocks"] = plan_.max_num_blocks;
    return scalars;
  }
  scalars["total_k_swa"] = plan_.total_k_swa;
  scalars["cp_mirror_len"] = plan_.cp_mirror_len;
  py::dict total_k_compressed;
  for (const CompressedSizes& sizes : plan_.compressed) {
    total_k_compressed[py::str(std::to_string(sizes.ratio))] = sizes.total_k;
  }
  scalars["total_k_compressed"] = total_k_compressed;
  if (config_.yoco_mode != YocoMode::compact) return scalars;
  scalars["yoco_consumer_total_q"] = plan_.consumer.total_q;
  if (config_.cp_size == 1) return scalars;
  scalars["yoco_consumer_cp_mirror_len"] = plan_.consumer.cp_mirror_len;
  scalars["yoco_consumer_cp_contrib_pad_len"] = plan_.consumer.contrib_pad_len;
  return scalars;
}

void Step::fill(const py::list& tensors) const {
  if (tensors.size() != specs_.size()) throw py::value_error("one tensor for each planned field is needed");
  Outputs outputs;
  for (size_t k = 0; k < specs_.size(); ++k) {
    const TensorView tensor(tensors[k].cast<py::tuple>());
    require_planned(specs_[k], tensor);
    outputs.bind(specs_[k], tensor.address);
  }
  const py::gil_scoped_release release;
  inputmeta::fill({config_, sequences_.views(), plan_}, outputs);
}

void bind_step(py::module_& module) {
  py::class_<Step>(module, "Step", "A planned step: every precondition but P-OUT holds, and the sizes are known.")
      .def("fields", &Step::fields)
      .def("empty_buckets", &Step::empty_buckets)
      .def("scalars", &Step::scalars)
      .def("fill", &Step::fill, py::arg("tensors"));
  leave_nothing_dangling<Step>();
  module.def(
      "plan_prompt",
      [](const py::sequence& sequences, std::shared_ptr<BoundConfig> config) {
        return std::make_unique<Step>(Path::prompt, std::move(config), sequences, std::nullopt);
      },
      py::arg("sequences"), py::arg("config").none(false));
  module.def(
      "plan_decode",
      [](const py::sequence& sequences, std::shared_ptr<BoundConfig> config, std::optional<int64_t> table_columns) {
        return std::make_unique<Step>(Path::decode, std::move(config), sequences, table_columns);
      },
      py::arg("sequences"), py::arg("config").none(false), py::arg("table_columns") = py::none());
}

}  // namespace inputmeta::bindings
