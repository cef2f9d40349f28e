// int32 values of a SequenceMetadata or a MetadataConfig, taken from whatever Python brings: borrowed, or copied.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/batch.h"

namespace inputmeta::bindings {

/// Takes list, tuple, array.array, numpy arrays of any integer type and stride, torch tensors in host memory, any
/// sequence of integers; anything but integers is a TypeError.
///
/// A contiguous int32 buffer is borrowed: its memory is read by each plan and fill anew, and stays alive and in place
/// until the array is assigned or appended to. What it holds may change at any time, even while it is read without the
/// GIL; its length may not. Anything else is copied: a value outside int32 is then kept aside and reported by the plan
/// (P-INT32), which knows the sequence's number.
class HostArray {
 public:
  void assign(pybind11::handle source);
  /// Appends the values of another array; a borrowed buffer is copied first.
  void append(const HostArray& added);
  /// Copies what is borrowed: later changes of the buffer are not seen.
  void own();

  IntArray view() const {
    return {values(), outside_.empty() ? std::string_view() : outside_.front().second, std::nullopt};
  }
  /// view() with its largest value. Of values that are owned it is looked for once after each assignment.
  IntArray view_with_largest() const;
  pybind11::list to_list() const;
  size_t size() const { return values().size(); }

 private:
  template <class Integer>
  void append_strided(const char* data, int64_t count, int64_t stride);
  bool append_buffer(pybind11::handle source);
  void append_sequence(pybind11::handle source);
  void append_outside(std::string text);

  std::span<const int32_t> values() const { return lender_ ? lent_ : std::span<const int32_t>(values_); }

  std::vector<int32_t> values_;
  std::unique_ptr<pybind11::buffer_info> lender_;  ///< while it is there, its exporter neither frees nor resizes
  std::span<const int32_t> lent_;                  ///< what `lender_` exports
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
