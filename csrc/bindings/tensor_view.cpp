#include "bindings/tensor_view.h"

#include <pybind11/stl.h>

namespace py = pybind11;

namespace inputmeta::bindings {

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::int32: return "int32";
    case DType::int64: return "int64";
    case DType::boolean: return "bool";
  }
  return "";
}

py::tuple shape_of(int64_t rows, int64_t columns) {
  if (columns < 0) return py::make_tuple(rows);
  return py::make_tuple(rows, columns);
}

TensorView::TensorView(const py::tuple& tuple)
    : address(reinterpret_cast<void*>(tuple[0].cast<uintptr_t>())),
      shape(tuple[1].cast<std::vector<int64_t>>()),
      dtype(tuple[2].cast<std::string>()) {}

int64_t TensorView::cells() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::span<int32_t> TensorView::int32_rows(const char* name, int64_t columns) const {
  if (dtype != "int32" || shape.size() != 2 || shape[1] != columns) {
    throw py::value_error(std::string(name) + " is not an int32 tensor [rows, " + std::to_string(columns) + "]");
  }
  return {static_cast<int32_t*>(address), static_cast<size_t>(cells())};
}

std::span<int32_t> TensorView::int32_cells(const char* name) const {
  if (dtype != "int32" || shape.size() != 1) {
    throw py::value_error(std::string(name) + " is not an int32 tensor of one dimension");
  }
  return {static_cast<int32_t*>(address), static_cast<size_t>(cells())};
}

}  // namespace inputmeta::bindings
