// The tensors of one step: which there are, and where they are written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/batch.h"
#include "core/field_table.h"

namespace inputmeta {

/// One tensor to allocate: `columns` is -1 for a field of one dimension.
struct FieldSpec {
  const FieldDeclaration* declaration;
  int64_t ratio;  ///< the bucket; 0 without buckets
  Rows row_kind;  ///< what a row stands for in this step
  int64_t rows;
  int64_t columns;

  int64_t cells() const { return columns < 0 ? rows : rows * columns; }
  /// The name in a flat dictionary: "positions", "klen.4".
  std::string key() const;
};

/// Where the fields of one step are written: addresses that the caller has checked against the specs.
class Outputs {
 public:
  void bind(const FieldSpec& spec, void* address) { bound_.push_back({spec, address}); }

  /// Cells of an int32 field, rows laid end to end; empty when the path does not have the field.
  std::span<int32_t> int32s(Field field, int64_t ratio = 0) const;
  /// Cells of a bool field.
  std::span<bool> flags(Field field) const;
  /// Writes the neutral row into every query-aligned field: for a batch without query rows.
  void write_neutral_rows(int32_t pad_token) const;

 private:
  struct Binding {
    FieldSpec spec;
    void* address;
  };
  const Binding* find(Field field, int64_t ratio) const;

  std::vector<Binding> bound_;
};

}  // namespace inputmeta
