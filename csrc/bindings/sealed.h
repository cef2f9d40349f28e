// Bound types that are made by their constructors alone, whatever Python does with the type, and whole or not at all.
#pragma once

#include <pybind11/pybind11.h>

namespace inputmeta::bindings {

/// To be called when all types of a module are bound. A bound object's C++ value is made by __init__, and nothing checks
/// for it later, so an object without one must not come to be: no type is subclassed (a subclass runs before __init__
/// has), __new__ is refused with a TypeError, and no object is given another class.
inline void seal_types(const pybind11::module_& module) {
  namespace py = pybind11;
  for (const auto& [name, value] : module.attr("__dict__").cast<py::dict>()) {
    if (!PyType_Check(value.ptr()) || py::detail::get_type_info(reinterpret_cast<PyTypeObject*>(value.ptr())) == nullptr) {
      continue;
    }
    auto* const type = reinterpret_cast<PyTypeObject*>(value.ptr());
    // Calling the type comes here. T.__new__ is the base's, which Python lets make no object of a type with another one.
    type->tp_new = [](PyTypeObject* made, PyObject* arguments, PyObject* keywords) {
      return made->tp_base->tp_new(made, arguments, keywords);
    };
    type->tp_flags = (type->tp_flags & ~Py_TPFLAGS_BASETYPE) | Py_TPFLAGS_IMMUTABLETYPE;
    PyType_Modified(type);
  }
}

/// To be called for a type whose objects are made from a smart pointer. pybind11 first points the new object at the
/// value, then enters it in a list of objects. Without memory for the entry the smart pointer takes the value with it,
/// and the object would free it once more.
template <class Bound>
void leave_nothing_dangling() {
  auto* const type = pybind11::detail::get_type_info(typeid(Bound));
  static auto* const init_instance = type->init_instance;
  type->init_instance = [](pybind11::detail::instance* object, const void* holder) {
    try {
      init_instance(object, holder);
    } catch (...) {
      if (holder != nullptr) object->get_value_and_holder().value_ptr() = nullptr;
      throw;
    }
  };
}

}  // namespace inputmeta::bindings
