// Gather by mirror index (section 7) as a source of row tiles: row k is row rows[k] of the source, padding where that
// is negative. A row that is none of the source's, which the host did not see, is padding too.
#pragma once

#include <cstdint>

#include "cuda/cells.h"

namespace inputmeta::cuda {

/// `Unit` is a bool, an int32 or four of these.
template <class Unit>
struct GatherSource {
  const Unit* source;
  int64_t source_rows;
  int64_t units;  ///< of a row
  const int32_t* rows;
  Unit padding;

  INPUTMETA_ANYWHERE int64_t row(int64_t row) const { return rows[row]; }
  INPUTMETA_ANYWHERE Unit fetch(int64_t row, int64_t unit) const {
    return row >= 0 && row < source_rows ? source[flat_cell(row, units) + unit] : padding;
  }
  INPUTMETA_ANYWHERE bool keeps(int64_t, int64_t) const { return false; }
  INPUTMETA_ANYWHERE Unit value(int64_t, const Unit& fetched, int64_t) const { return fetched; }
  INPUTMETA_ANYWHERE void finish(int64_t, int64_t, int64_t) const {}
};

}  // namespace inputmeta::cuda
