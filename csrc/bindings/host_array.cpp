#include "bindings/host_array.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace py = pybind11;

namespace inputmeta::bindings {
namespace {

py::object index_of(py::handle value) {
  PyObject* const index = PyNumber_Index(value.ptr());
  if (index == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(index);
}

template <class Integer>
bool in_int32(Integer value) {
  return std::in_range<int32_t>(value);
}

}  // namespace

void HostArray::append_outside(std::string text) {
  outside_.emplace_back(values_.size(), std::move(text));
  values_.push_back(0);
}

template <class Integer>
void HostArray::append_strided(const char* data, int64_t count, int64_t stride) {
  values_.reserve(values_.size() + static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k) {
    Integer value;
    std::memcpy(&value, data + k * stride, sizeof value);
    if (in_int32(value)) {
      values_.push_back(static_cast<int32_t>(value));
    } else {
      append_outside(std::to_string(value));
    }
  }
}

bool HostArray::append_buffer(py::handle source) {
  if (!PyObject_CheckBuffer(source.ptr())) return false;
  const py::buffer_info info = py::reinterpret_borrow<py::buffer>(source).request();
  if (info.ndim != 1) throw py::type_error("a one-dimensional array of integers is needed");
  const auto* const data = static_cast<const char*>(info.ptr);
  const int64_t count = info.shape[0];
  const int64_t stride = info.strides[0];
  if (info.item_type_is_equivalent_to<int32_t>() && stride == sizeof(int32_t)) {
    const auto* const first = static_cast<const int32_t*>(info.ptr);
    values_.insert(values_.end(), first, first + count);
    return true;
  }
  const auto append_as = [&]<class Integer>(Integer) {
    if (!info.item_type_is_equivalent_to<Integer>()) return false;
    append_strided<Integer>(data, count, stride);
    return true;
  };
  // Byte orders and types that are not here (floats among them) go item by item, where Python decides.
  return append_as(int32_t{}) || append_as(int64_t{}) || append_as(uint32_t{}) || append_as(uint64_t{}) ||
         append_as(int16_t{}) || append_as(uint16_t{}) || append_as(int8_t{}) || append_as(uint8_t{});
}

void HostArray::append_sequence(py::handle source) {
  PyObject* const fast = PySequence_Fast(source.ptr(), "a sequence of integers is needed");
  if (fast == nullptr) throw py::error_already_set();
  const auto owner = py::reinterpret_steal<py::object>(fast);
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
  values_.reserve(values_.size() + static_cast<size_t>(count));
  // The size is read again each time round: an item's __index__ may change a list.
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(fast); ++k) {
    const py::object index = index_of(PySequence_Fast_GET_ITEM(fast, k));
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    if (overflow == 0 && in_int32(value)) {
      values_.push_back(static_cast<int32_t>(value));
    } else {
      append_outside(py::str(index));
    }
  }
}

IntArray HostArray::view_with_largest() const {
  if (!largest_) largest_ = largest_unsigned(values_);
  IntArray array = view();
  array.known_largest = largest_;
  return array;
}

void HostArray::append(py::handle source) {
  HostArray added;  // so that a failure half-way leaves this array as it was
  if (!added.append_buffer(source)) added.append_sequence(source);
  const size_t offset = values_.size();
  values_.insert(values_.end(), added.values_.begin(), added.values_.end());
  if (largest_) largest_ = std::max(*largest_, largest_unsigned(added.values_));
  for (auto& [index, text] : added.outside_) outside_.emplace_back(offset + index, std::move(text));
}

void HostArray::assign(py::handle source) {
  HostArray replacement;
  if (!replacement.append_buffer(source)) replacement.append_sequence(source);
  *this = std::move(replacement);
}

py::list HostArray::to_list() const {
  py::list list(values_.size());
  for (size_t k = 0; k < values_.size(); ++k) list[k] = py::int_(values_[k]);
  for (const auto& [index, text] : outside_) {
    list[index] = py::reinterpret_steal<py::object>(PyLong_FromString(text.c_str(), nullptr, 10));
  }
  return list;
}

Scalar scalar_from(py::handle value) {
  constexpr long long kLargest = 1LL << 62;
  const py::object index = index_of(value);
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0 || number < -kLargest || number > kLargest) {
    PyErr_Format(PyExc_OverflowError, "%S does not lie within [-2**62, 2**62]", index.ptr());
    throw py::error_already_set();
  }
  return {number};
}

}  // namespace inputmeta::bindings
