#pragma once

#include <pybind11/pybind11.h>

namespace inputmeta::bindings {

/// ZosTarget and zos_gather of inputmeta.engine._cuda.
void bind_cuda_zos(pybind11::module_& module);

}  // namespace inputmeta::bindings
