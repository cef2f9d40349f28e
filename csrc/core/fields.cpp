#include "core/fields.h"

#include <algorithm>

namespace inputmeta {
namespace {

/// Rows that come from query rows: without these they have none either.
bool is_query_aligned(Rows rows) {
  return rows == Rows::query || rows == Rows::consumer || rows == Rows::mirrored || rows == Rows::contributed;
}

}  // namespace

std::string FieldSpec::key() const {
  return ratio == 0 ? declaration->name : std::string(declaration->name) + "." + std::to_string(ratio);
}

const Outputs::Binding* Outputs::find(Field field, int64_t ratio) const {
  for (const Binding& binding : bound_) {
    if (binding.spec.declaration->field == field && binding.spec.ratio == ratio) return &binding;
  }
  return nullptr;
}

std::span<int32_t> Outputs::int32s(Field field, int64_t ratio) const {
  const Binding* binding = find(field, ratio);
  if (binding == nullptr) return {};
  return {static_cast<int32_t*>(binding->address), static_cast<size_t>(binding->spec.cells())};
}

std::span<bool> Outputs::flags(Field field) const {
  const Binding* binding = find(field, 0);
  if (binding == nullptr) return {};
  return {static_cast<bool*>(binding->address), static_cast<size_t>(binding->spec.cells())};
}

void Outputs::write_neutral_rows(int32_t pad_token) const {
  for (const Binding& binding : bound_) {
    const FieldDeclaration& declaration = *binding.spec.declaration;
    if (!is_query_aligned(binding.spec.row_kind)) continue;
    const auto cells = static_cast<size_t>(binding.spec.cells());
    if (declaration.dtype == DType::boolean) {
      std::fill_n(static_cast<bool*>(binding.address), cells, false);
    } else {
      std::fill_n(static_cast<int32_t*>(binding.address), cells, neutral_value(declaration.neutral, pad_token));
    }
  }
}

}  // namespace inputmeta
