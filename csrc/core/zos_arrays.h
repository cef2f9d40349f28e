// ZOS decode: where a step's arrays lie, in host memory or a device's. Plain addresses, for kernels to take by value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/exact_divisor.h"
#include "core/field_table.h"

namespace inputmeta {

/// Per-sequence arrays of a step: n cells each but where said.
struct ZosInputs {
  int64_t num_reqs = 0;
  const int32_t* seqlens_q = nullptr;
  const int32_t* seqlens_k = nullptr;
  const int32_t* cu_seqlens_q = nullptr;  ///< inclusive: cell i is the query row past sequence i's last
  const int32_t* state_ids = nullptr;
  const bool* is_placeholder = nullptr;
  const int64_t* block_tables_offsets = nullptr;  ///< [n + 1], into block_tables
  const int32_t* block_tables = nullptr;          ///< flat, the blocks of F-BLOCKS of each sequence

  int64_t first_row(int64_t index) const { return index == 0 ? 0 : cu_seqlens_q[index - 1]; }
};

// --- The fields that the metadata kernel writes: those of field_table.h that say so --------------------------------

constexpr size_t count_zos_fields() {
  size_t count = 0;
  for (const FieldDeclaration& declaration : kFields) count += declaration.zos == Zos::kernel ? 1 : 0;
  return count;
}

inline constexpr size_t kZosFieldCount = count_zos_fields();

struct ZosFields {
  Field at[kZosFieldCount];
};

constexpr ZosFields list_zos_fields() {
  ZosFields fields{};
  size_t count = 0;
  for (const FieldDeclaration& declaration : kFields) {
    if (declaration.zos == Zos::kernel) fields.at[count++] = declaration.field;
  }
  return fields;
}

inline constexpr ZosFields kZosFields = list_zos_fields();

constexpr size_t place_of_zos_field(Field field) {
  size_t place = 0;
  while (place < kZosFieldCount && kZosFields.at[place] != field) ++place;
  return place;
}

/// Cells of a row; what the kernel writes has one or two.
constexpr int32_t zos_columns(const FieldDeclaration& declaration) { return declaration.columns == Columns::pair ? 2 : 1; }

/// What a kernel has to know of a field when it is compiled.
template <Field field>
struct ZosField {
  static constexpr FieldDeclaration kDeclaration = declaration_of(field);
  static constexpr size_t kPlace = place_of_zos_field(field);
  static constexpr Bucket kBucket = kDeclaration.bucket;
  static constexpr int32_t kColumns = zos_columns(kDeclaration);
  static constexpr int32_t kNeutral = neutral_value(kDeclaration.neutral, 0);
  using Cell = std::conditional_t<kDeclaration.dtype == DType::boolean, bool, int32_t>;

  static_assert(kPlace < kZosFieldCount, "the table says that the metadata kernel writes this field");
  static_assert(kDeclaration.decode_rows == Rows::query && kDeclaration.neutral != Neutral::pad_token);
  static_assert(kDeclaration.columns == Columns::single || kDeclaration.columns == Columns::pair);
};

/// A pair of cells: an offset and a length, or a position and a slot.
struct ZosPair {
  int32_t first;
  int32_t second;
};

/// Where a field lies. With buckets it is one buffer [n_ratio, q_stride, cells of a row], contiguous, and bucket k is the
/// prefix of its row k (F-STACK).
struct ZosPlace {
  void* address = nullptr;
  int64_t bucket_stride = 0;  ///< cells from one bucket to the next; 0 without buckets
};

struct ZosOutputs {
  ZosPlace places[kZosFieldCount];  ///< in the order of kZosFields

  template <Field field>
  INPUTMETA_ANYWHERE ZosPlace& place() {
    return places[ZosField<field>::kPlace];
  }

  template <Field field>
  INPUTMETA_ANYWHERE auto* cells(int32_t bucket = 0) const {
    const ZosPlace& place = places[ZosField<field>::kPlace];
    return static_cast<typename ZosField<field>::Cell*>(place.address) + bucket * place.bucket_stride;
  }

  template <Field field>
  INPUTMETA_ANYWHERE void put(int64_t row, typename ZosField<field>::Cell cell, int32_t bucket = 0) const {
    static_assert(ZosField<field>::kColumns == 1);
    cells<field>(bucket)[row] = cell;
  }

  template <Field field>
  INPUTMETA_ANYWHERE void put(int64_t row, ZosPair pair, int32_t bucket = 0) const {
    static_assert(ZosField<field>::kColumns == 2);
    auto* const out = cells<field>(bucket) + 2 * row;
    out[0] = pair.first;
    out[1] = pair.second;
  }
};

template <class Visit, size_t... K>
INPUTMETA_ANYWHERE inline void visit_zos_fields(Visit visit, std::index_sequence<K...>) {
  (visit(ZosField<kZosFields.at[K]>()), ...);
}

/// Calls visit(ZosField<field>()) for each field that the metadata kernel writes.
template <class Visit>
INPUTMETA_ANYWHERE inline void for_each_zos_field(Visit visit) {
  visit_zos_fields(visit, std::make_index_sequence<kZosFieldCount>());
}

}  // namespace inputmeta
