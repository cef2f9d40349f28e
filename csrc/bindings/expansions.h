// The expansions of core/expand.h for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace inputmeta::bindings {

void bind_expansions(pybind11::module_& module);

}  // namespace inputmeta::bindings
