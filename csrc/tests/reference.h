// The specification's formulas once more, row by row, in 128 bits: slow and plain, to hold the core against.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/arithmetic.h"
#include "core/batch.h"

namespace inputmeta::test {

/// Block tables with more columns than this are left out of the fields: no test has the memory for them.
inline constexpr int64_t kWidestTable = 100;

struct Reference {
  /// Cells by flat key, rows laid end to end; none: not defined.
  std::map<std::string, std::vector<std::optional<Wide>>> fields;
  /// What int32 must hold beside the fields: totals, the product bound of F-LIMIT, the ends of expanded runs.
  std::vector<Wide> bounded;

  /// P-INT32 as I-11 reads it.
  bool fits() const;
};

/// `sequences` keep every precondition but P-INT32. Decode: block tables have `table_columns` columns if that is more
/// than the batch needs.
Reference prompt_reference(const Config& config, const std::vector<Sequence>& sequences);
Reference decode_reference(const Config& config, const std::vector<Sequence>& sequences, int64_t table_columns);

/// What context parallelism and truncation add to a prompt (sections 7 and 8); `reference` has the full layout.
void add_prompt_modes(const Config& config, const std::vector<Sequence>& sequences, Reference& reference);

}  // namespace inputmeta::test
