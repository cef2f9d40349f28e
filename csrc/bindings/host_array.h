// int32 values owned by a SequenceMetadata or a MetadataConfig, taken from whatever Python brings.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/batch.h"

namespace inputmeta::bindings {

/// Takes list, tuple, array.array, numpy arrays of any integer type and stride, any sequence of integers. A copy: what
/// the caller does to its array afterwards is not seen. A value outside int32 is kept aside and reported by the plan
/// (P-INT32), which knows the sequence's number; anything but integers is a TypeError.
class HostArray {
 public:
  void assign(pybind11::handle source);
  void append(pybind11::handle source);

  IntArray view() const {
    return {values_, outside_.empty() ? std::string_view() : outside_.front().second, std::nullopt};
  }
  /// view() with its largest value, which is looked for once after each assignment.
  IntArray view_with_largest() const;
  pybind11::list to_list() const;
  size_t size() const { return values_.size(); }

 private:
  template <class Integer>
  void append_strided(const char* data, int64_t count, int64_t stride);
  bool append_buffer(pybind11::handle source);
  void append_sequence(pybind11::handle source);
  void append_outside(std::string text);

  std::vector<int32_t> values_;
  std::vector<std::pair<size_t, std::string>> outside_;  ///< index, decimal text
  mutable std::optional<uint32_t> largest_;              ///< of values_, if it is known
};

/// A scalar of the specification: any integer up to 2^62 in size, else OverflowError; no integer, TypeError.
struct Scalar {
  int64_t value = 0;
};

Scalar scalar_from(pybind11::handle value);

}  // namespace inputmeta::bindings

namespace pybind11::detail {

template <>
struct type_caster<inputmeta::bindings::HostArray> {
  PYBIND11_TYPE_CASTER(inputmeta::bindings::HostArray, const_name("collections.abc.Sequence[int]"));

  bool load(handle source, bool) {
    value.assign(source);
    return true;
  }
  static handle cast(const inputmeta::bindings::HostArray& array, return_value_policy, handle) {
    return array.to_list().release();
  }
};

template <>
struct type_caster<inputmeta::bindings::Scalar> {
  PYBIND11_TYPE_CASTER(inputmeta::bindings::Scalar, const_name("int"));

  bool load(handle source, bool) {
    value = inputmeta::bindings::scalar_from(source);
    return true;
  }
  static handle cast(inputmeta::bindings::Scalar scalar, return_value_policy, handle) {
    return PyLong_FromLongLong(scalar.value);
  }
};

}  // namespace pybind11::detail
