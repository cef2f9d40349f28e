// First plan the sizes, then fill: the plan checks every precondition and counts the rows; nothing is written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/fields.h"
#include "core/ratios.h"

namespace inputmeta {

/// Sizes of one ratio's compressed fields.
struct CompressedSizes {
  int64_t ratio = 0;          ///< the bucket
  int64_t rows = 0;           ///< prompt: compressed rows to store, all sequences (F-NCQ)
  int64_t total_k = 0;        ///< prompt: rows of the loaded compressed history, total_k_compressed (F-CAPLAN)
  int64_t load_segments = 0;  ///< prompt: rows of load_segments_ca (F-CAPLAN)
};

/// A run of yoco_cp_boundary_index: `count` rows of this rank's compact mirror from `row` on, whose contributions lie
/// side by side in those of rank `owner`, from `place` on.
struct BoundaryRun {
  int64_t row = 0;
  int64_t count = 0;
  int64_t owner = 0;
  int64_t place = 0;
};

/// Sizes of the layout of kept rows, compact mode (section 8). The last three are 0 or empty with cp_size = 1.
struct ConsumerPlan {
  int64_t total_q = 0;                     ///< yoco_consumer_total_q, rows
  int64_t cp_mirror_len = 0;               ///< yoco_consumer_cp_mirror_len, rows
  int64_t contrib_pad_len = 0;             ///< yoco_consumer_cp_contrib_pad_len, rows
  std::vector<BoundaryRun> boundary_runs;  ///< ascending, without the padding
};

/// Sizes of one step. Every number fits in int32 where a field or a scalar holds it.
struct Plan {
  Path path = Path::prompt;
  Ratios ratios;
  int64_t num_reqs = 0;
  int64_t total_q = 0;
  int64_t max_num_blocks = 0;      ///< decode: columns of block_tables in use (I-4)
  int64_t total_k_swa = 0;         ///< prompt: n_seq * W
  int64_t load_segments_swa = 0;   ///< prompt: rows of load_segments_swa (F-SWAPLAN)
  int64_t cp_mirror_len = 0;       ///< prompt: rows of a rank's mirror (section 7)
  ConsumerPlan consumer;           ///< prompt, compact mode
  std::vector<CompressedSizes> compressed;  ///< one a ca ratio, ascending

  /// The tensors that a fill of this plan writes, in the order of the declarations.
  std::vector<FieldSpec> fields(const Config& config) const;
  /// Names of the path's bucketed fields without a ratio: no tensor, but not absent either.
  std::vector<const char*> empty_buckets(const Config& config) const;
};

/// What the fill functions read: all of it outlives the fill.
struct Batch {
  const Config& config;
  std::span<const Sequence> sequences;
  const Plan& plan;
};

/// Checks P-RATIO, P-LEN, P-TABLE, P-STATE, P-NGRAM and P-INT32 in this order and counts the sizes of a prompt step.
Plan plan_prompt(const Config& config, std::span<const Sequence> sequences);

/// The same for an eager decode step. `table_columns`: columns of the caller's block_tables; used when it is wider than
/// needed (I-4).
Plan plan_decode(const Config& config, std::span<const Sequence> sequences,
                 std::optional<int64_t> table_columns = std::nullopt);

}  // namespace inputmeta
