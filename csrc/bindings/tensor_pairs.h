// Tensors that go together as they cross the binding, on the host or a device: their shapes are checked against each
// other, what they hold is not looked at.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>
#include <vector>

#include "bindings/tensor_view.h"

namespace inputmeta::bindings {

/// Ranges [rows, range_columns] and their expansion [rows, width].
struct Expansion {
  std::span<const int32_t> ranges;
  std::span<int32_t> out;
  int64_t rows;
  int64_t width;

  Expansion(const pybind11::tuple& ranges_tuple, int64_t range_columns, const pybind11::tuple& out_tuple) {
    const TensorView range_view(ranges_tuple);
    const TensorView out_view(out_tuple);
    if (range_view.shape.empty() || out_view.shape.size() != 2 || range_view.shape[0] != out_view.shape[0]) {
      throw pybind11::value_error("the expansion needs as many rows as its ranges have");
    }
    rows = out_view.shape[0];
    width = out_view.shape[1];
    ranges = range_view.int32_rows("the ranges", range_columns);
    out = out_view.int32_rows("the expansion", width);
  }
};

/// A source [source_rows, …], row numbers [n], and what is gathered [n, …], of the source's dtype.
struct Gathering {
  TensorView source;
  TensorView out;
  std::span<const int32_t> rows;
  int64_t columns;  ///< cells of a row

  Gathering(const pybind11::tuple& source_tuple, const pybind11::tuple& rows_tuple, const pybind11::tuple& out_tuple)
      : source(source_tuple), out(out_tuple), rows(TensorView(rows_tuple).int32_cells("the rows")) {
    std::vector<int64_t> expected = source.shape;
    if (expected.empty() || expected[0] == 0) throw pybind11::value_error("a source with rows is needed");
    expected[0] = static_cast<int64_t>(rows.size());
    if (out.shape != expected || out.dtype != source.dtype) {
      throw pybind11::value_error("the gathered tensor has the source's dtype and columns and a row for each index");
    }
    columns = source.cells() / source.shape[0];
  }

  bool is_bool() const { return source.dtype == "bool"; }
  template <class Cell>
  const Cell* source_as() const {
    return static_cast<const Cell*>(source.address);
  }
  template <class Cell>
  Cell* out_as() const {
    return static_cast<Cell*>(out.address);
  }
};

}  // namespace inputmeta::bindings
