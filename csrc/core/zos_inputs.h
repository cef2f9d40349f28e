// ZOS decode, stage one (section 10): what a step says once a sequence, taken out of the sequences in one pass and laid
// end to end in one pack of bytes, so that one copy brings it to a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/batch.h"
#include "core/plan.h"

namespace inputmeta {

/// Sizes of one step, all known on the host.
struct ZosPlan {
  Plan plan;                 ///< of the decode path; max_num_blocks is what the batch needs, at least 1
  int64_t max_seqlen_q = 0;  ///< rows of the longest chunk
  int64_t table_cells = 0;   ///< blocks of all sequences (F-BLOCKS), blocks
};

/// Checks every precondition of decode but P-OUT, in the order of plan_decode, and counts the sizes. P-INT32 differs in
/// one point: this path has no cu_seqlens_k, so the sum of seqlen_k is not bounded.
ZosPlan plan_zos(const Config& config, std::span<const Sequence> sequences);

/// One array of the pack. `columns` is -1 for an array of one dimension.
struct ZosArray {
  std::string_view name;
  DType type;
  int64_t rows;
  int64_t columns;
  int64_t offset;  ///< bytes from the pack's begin, a multiple of 16

  int64_t bytes() const;
  bool operator==(const ZosArray&) const = default;
};

/// Of a pack; the last only with look-back.
inline constexpr size_t kZosArrays = 9;

/// Where each array lies: seqlens_q, seqlens_k, cu_seqlens_q [n] (inclusive), state_ids, is_placeholder,
/// block_tables_offsets [n + 1] (int64: int32 does not bound the sum of blocks), block_tables (flat, one cell when no
/// sequence has a block), input_ids [total_q] and, with look-back, ngram_token_ids [total_q, G].
struct ZosLayout {
  std::vector<ZosArray> arrays;
  int64_t bytes = 0;

  explicit ZosLayout(const ZosPlan& zos, const Config& config);
  const ZosArray* find(std::string_view name) const;  ///< null for an array that the pack has not
  const ZosArray& operator[](std::string_view name) const;
  bool operator==(const ZosLayout&) const = default;
};

/// Writes the arrays; `pack` has layout.bytes bytes, aligned to 8.
void fill_zos_inputs(const Config& config, std::span<const Sequence> sequences, const ZosPlan& zos,
                     const ZosLayout& layout, std::span<std::byte> pack);

/// The tensors of a ZOS decode step, in the order of the declarations: those of eager decode, with cu_seqlens_q
/// inclusive, [n], and without cu_seqlens_k. `plan.max_num_blocks` are the columns in use (I-4).
std::vector<FieldSpec> zos_fields(const Plan& plan, const Config& config);

/// A plan for `columns` block-table columns, from the sizes alone. Throws PreconditionError: P-RATIO, or P-INT32 when
/// these columns break the product bound of F-LIMIT.
Plan plan_zos_outputs(const Config& config, int64_t num_reqs, int64_t total_q, int64_t columns);

}  // namespace inputmeta
