// A tensor as it crosses the binding: address, shape and dtype, checked against what the core expects. No torch here.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace inputmeta::bindings {

/// Read from a tuple (address, shape, dtype) of a contiguous tensor in host memory.
struct TensorView {
  void* address;
  std::vector<int64_t> shape;
  std::string dtype;  ///< "int32" or "bool"

  explicit TensorView(const pybind11::tuple& tuple);

  /// All cells of an int32 tensor [rows, columns]; ValueError when the tensor is not that.
  std::span<int32_t> int32_rows(const char* name, int64_t columns) const;
  /// All cells of an int32 tensor of one dimension; ValueError when the tensor is not that.
  std::span<int32_t> int32_cells(const char* name) const;
  int64_t cells() const;
};

}  // namespace inputmeta::bindings
