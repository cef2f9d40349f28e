// ZOS decode for Python: extraction, the kernels on the host, and the gather of token ids.
#pragma once

#include <pybind11/pybind11.h>

namespace inputmeta::bindings {

void bind_zos(pybind11::module_& module);

}  // namespace inputmeta::bindings
