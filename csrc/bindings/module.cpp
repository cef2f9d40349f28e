// The Python module inputmeta.engine._core.
#include <pybind11/pybind11.h>

#include <exception>
#include <new>

#include "core/error.h"
#include "bindings/expansions.h"
#include "bindings/metadata.h"
#include "bindings/mirror.h"
#include "bindings/sealed.h"
#include "bindings/step.h"
#include "bindings/zos.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

/// Sets the exception of the class of engine.errors that belongs to the condition.
void set_error(const inputmeta::PreconditionError& error) {
  const py::object make = py::module_::import("inputmeta.engine.errors").attr("precondition_error");
  const py::object sequence = error.sequence ? py::object(py::int_(*error.sequence)) : py::object(py::none());
  const auto value = py::reinterpret_steal<py::object>(PyLong_FromString(error.value.c_str(), nullptr, 10));
  const py::object exception =
      make("condition"_a = inputmeta::name_of(error.condition), "sequence"_a = sequence, "field"_a = error.field,
           "value"_a = value, "rule"_a = error.rule, "unit"_a = error.unit);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

/// A refusal that cannot be made for want of memory is a MemoryError: pybind11 would make a RuntimeError of it.
void translate(std::exception_ptr pending) {
  try {
    if (pending) std::rethrow_exception(pending);
  } catch (const inputmeta::PreconditionError& error) {
    try {
      set_error(error);
    } catch (const std::bad_alloc&) {
      PyErr_NoMemory();
    } catch (py::error_already_set& python) {
      python.restore();
    }
  }
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "The core of the engine: plans and fills input metadata. Tensors cross as (address, shape, dtype).";
  py::register_local_exception_translator(&translate);
  inputmeta::bindings::bind_metadata(module);
  inputmeta::bindings::bind_step(module);
  inputmeta::bindings::bind_expansions(module);
  inputmeta::bindings::bind_mirror(module);
  inputmeta::bindings::bind_zos(module);
  inputmeta::bindings::seal_types(module);
}
