// The context parallel mirror of core/mirror.h for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace inputmeta::bindings {

void bind_mirror(pybind11::module_& module);

}  // namespace inputmeta::bindings
