// A tensor as it crosses the binding: address, shape and dtype, checked against what the core expects. No torch here.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/field_table.h"

namespace inputmeta::bindings {

/// The name that a view has for it.
const char* dtype_name(DType dtype);

/// (rows,) or (rows, columns); `columns` is -1 for one dimension.
pybind11::tuple shape_of(int64_t rows, int64_t columns);

/// Read from a tuple (address, shape, dtype) of a contiguous tensor in host memory.
struct TensorView {
  void* address;
  std::vector<int64_t> shape;
  std::string dtype;  ///< as dtype_name says

  explicit TensorView(const pybind11::tuple& tuple);

  /// All cells of an int32 tensor [rows, columns]; ValueError when the tensor is not that.
  std::span<int32_t> int32_rows(const char* name, int64_t columns) const;
  /// All cells of an int32 tensor of one dimension; ValueError when the tensor is not that.
  std::span<int32_t> int32_cells(const char* name) const;
  int64_t cells() const;
};

}  // namespace inputmeta::bindings
