// One step's plan, held for Python between planning and filling.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <vector>

#include "bindings/borrowed.h"
#include "bindings/metadata.h"
#include "core/plan.h"

namespace inputmeta::bindings {

/// Borrows the sequences from the plan on, so that what was checked is what is filled; gives them back when dropped.
class Step {
 public:
  Step(Path path, std::shared_ptr<BoundConfig> config, const pybind11::sequence& sequences,
       std::optional<int64_t> table_columns);

  /// (key, dtype, shape) of every tensor to bring to fill(), in this order.
  pybind11::list fields() const;
  /// Names of the bucketed fields of the path that have no ratio: empty dictionaries, which is information.
  pybind11::list empty_buckets() const;
  /// The plain scalars of the path, by field name.
  pybind11::dict scalars() const;
  /// Writes all fields; `tensors` are (address, shape, dtype) in the order of fields(). Releases the GIL.
  void fill(const pybind11::list& tensors) const;

 private:
  std::shared_ptr<BoundConfig> owner_;
  Config config_;
  BorrowedSequences sequences_;
  Plan plan_;
  std::vector<FieldSpec> specs_;
};

void bind_step(pybind11::module_& module);

}  // namespace inputmeta::bindings
