// MetadataConfig and SequenceMetadata as Python sees them: they own or borrow their arrays and lend views to a plan.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>

#include "core/batch.h"
#include "bindings/host_array.h"

namespace inputmeta::bindings {

/// Immutable: an engine has one for its life.
struct BoundConfig {
  Config config;
  HostArray lookup_table;

  /// The configuration with its view of lookup_table; valid while this object lives.
  Config view() const;
};

/// Mutable between steps: a scheduler keeps it and updates it. While a plan holds it (from the plan to the end of the
/// fill, which runs without the GIL), changing it is a RuntimeError.
struct BoundSequence {
  SequenceScalars scalars;
  int64_t borrowers = 0;
  HostArray block_table;
  HostArray token_ids;
  HostArray draft_tokens;
  HostArray compressed_tokens;
  HostArray recent_tokens;

  /// The sequence with views of its arrays; valid until one of them changes.
  Sequence view() const;
  void require_unborrowed() const;
};

void bind_metadata(pybind11::module_& module);

}  // namespace inputmeta::bindings
