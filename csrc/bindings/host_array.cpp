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

/// A tensor in host memory as a numpy array of the same memory, which torch then no longer resizes. Of a new tensor: the
/// caller's may be given another storage. Null for all else.
py::object array_over(py::handle source) {
  const auto torch = py::reinterpret_steal<py::object>(PyImport_GetModule(py::str("torch").ptr()));
  if (!torch || !py::hasattr(torch, "Tensor") || !py::isinstance(source, torch.attr("Tensor"))) return {};
  if (!source.attr("is_cpu").cast<bool>()) return {};
  try {
    return source.attr("detach")().attr("numpy")();
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_RuntimeError)) throw;
    return {};  // a dtype or layout that numpy does not have: item by item
  }
}

/// What exports the memory of an array; null when nothing does.
py::object exporter_of(py::handle source) {
  if (PyList_CheckExact(source.ptr()) || PyTuple_CheckExact(source.ptr())) return {};
  if (PyObject_CheckBuffer(source.ptr())) return py::reinterpret_borrow<py::object>(source);
  return array_over(source);
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
  const py::object exporter = exporter_of(source);
  if (!exporter) return false;
  py::buffer_info info = py::reinterpret_borrow<py::buffer>(exporter).request();
  if (info.ndim != 1) throw py::type_error("a one-dimensional array of integers is needed");
  const auto* const data = static_cast<const char*>(info.ptr);
  const int64_t count = info.shape[0];
  const int64_t stride = info.strides[0];
  const bool is_aligned = reinterpret_cast<uintptr_t>(data) % alignof(int32_t) == 0;
  if (info.item_type_is_equivalent_to<int32_t>() && stride == sizeof(int32_t) && is_aligned) {
    lent_ = {static_cast<const int32_t*>(info.ptr), static_cast<size_t>(count)};
    lender_ = std::make_unique<py::buffer_info>(std::move(info));
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
  IntArray array = view();
  if (lender_) {
    array.known_largest = largest_unsigned(lent_);
    return array;
  }
  if (!largest_) largest_ = largest_unsigned(values_);
  array.known_largest = largest_;
  return array;
}

void HostArray::own() {
  if (!lender_) return;
  values_.assign(lent_.begin(), lent_.end());
  // Last, and with this array whole: what the exporter does when it is released is Python code.
  const std::unique_ptr<py::buffer_info> lender = std::move(lender_);
}

void HostArray::append(const HostArray& added) {
  own();
  const size_t offset = values_.size();
  const std::span<const int32_t> more = added.values();
  outside_.reserve(outside_.size() + added.outside_.size());
  values_.insert(values_.end(), more.begin(), more.end());
  if (largest_) largest_ = std::max(*largest_, largest_unsigned(more));
  for (const auto& [index, text] : added.outside_) outside_.emplace_back(offset + index, text);
}

void HostArray::assign(py::handle source) {
  HostArray replacement;
  if (!replacement.append_buffer(source)) replacement.append_sequence(source);
  std::swap(*this, replacement);  // what is released then, is released with this array whole
}

py::list HostArray::to_list() const {
  const std::span<const int32_t> all = values();
  py::list list(all.size());
  for (size_t k = 0; k < all.size(); ++k) list[k] = py::int_(all[k]);
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
