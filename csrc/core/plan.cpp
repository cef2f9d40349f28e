#include "core/plan.h"

#include <algorithm>
#include <iterator>

#include "core/blocks.h"
#include "core/compressed.h"
#include "core/key_ranges.h"
#include "core/int32_limits.h"
#include "core/mirror.h"
#include "core/preconditions.h"
#include "core/sliding_window.h"
#include "core/truncation.h"

namespace inputmeta {
namespace {

/// Checks what does not depend on the sizes, then counts what both paths have.
Plan plan_common(Path path, const Config& config, std::span<const Sequence> sequences) {
  Plan plan;
  plan.path = path;
  check_ratios(config);
  plan.ratios = Ratios(config);
  check_sequences(path, config, plan.ratios, sequences);
  check_totals_int32(sequences);
  plan.num_reqs = static_cast<int64_t>(sequences.size());
  for (const Sequence& sequence : sequences) plan.total_q += sequence.seqlen_q;
  return plan;
}

CompressedSizes compressed_sizes(const Ratio& ratio, std::span<const Sequence> sequences) {
  CompressedSizes sizes{.ratio = ratio.value()};
  for (const Sequence& sequence : sequences) {
    sizes.rows += compressed_range(sequence, ratio).rows();
    sizes.total_k += compressed_key_rows(sequence, ratio);
    sizes.load_segments += compressed_load_segments(sequence, ratio);
  }
  return sizes;
}

/// What a row of the field stands for in a step; none when the step does not have the field.
Rows rows_in(const FieldDeclaration& declaration, Path path, const Config& config) {
  if (path == Path::decode) return declaration.decode_rows;
  const bool is_compact = config.yoco_mode == YocoMode::compact;
  switch (declaration.when) {
    case When::always: break;
    case When::mask:
      if (config.yoco_mode != YocoMode::mask) return Rows::none;
      break;
    case When::compact:
      if (!is_compact) return Rows::none;
      break;
    case When::compact_cp:
      if (!is_compact || config.cp_size == 1) return Rows::none;
      break;
  }
  return declaration.prompt_rows;
}

int64_t row_count(Rows rows, int64_t ratio, const Plan& plan) {
  const auto sizes = std::find_if(plan.compressed.begin(), plan.compressed.end(),
                                  [&](const CompressedSizes& candidate) { return candidate.ratio == ratio; });
  switch (rows) {
    case Rows::none: return 0;
    case Rows::query: return std::max<int64_t>(1, plan.total_q);  // I-3: no tensor has zero rows
    case Rows::sequence: return plan.num_reqs;
    case Rows::boundary: return plan.num_reqs + 1;
    case Rows::segment_swa: return plan.load_segments_swa;
    case Rows::compressed: return sizes->rows;
    case Rows::segment_ca: return sizes->load_segments;
    case Rows::consumer: return std::max<int64_t>(1, plan.consumer.total_q);
    case Rows::mirrored: return std::max<int64_t>(1, plan.consumer.cp_mirror_len);
    case Rows::contributed: return std::max<int64_t>(1, plan.consumer.contrib_pad_len);
  }
  return 0;
}

int64_t column_count(Columns columns, const Config& config, const Plan& plan) {
  switch (columns) {
    case Columns::single: return -1;
    case Columns::pair: return 2;
    case Columns::quad: return 4;
    case Columns::ngram: return config.max_ngram_size;
    case Columns::blocks: return plan.max_num_blocks;
  }
  return -1;
}

/// Buckets of a field; a field without ratios has the one bucket 0.
std::vector<int64_t> bucket_ratios(Bucket bucket, const Ratios& ratios) {
  if (bucket == Bucket::plain) return {0};
  std::vector<int64_t> values;
  for (const Ratio& ratio : ratios.of(bucket)) values.push_back(ratio.value());
  return values;
}

}  // namespace

std::vector<const char*> Plan::empty_buckets(const Config& config) const {
  std::vector<const char*> names;
  for (const FieldDeclaration& declaration : kFields) {
    const bool is_there = rows_in(declaration, path, config) != Rows::none;
    if (is_there && bucket_ratios(declaration.bucket, ratios).empty()) names.push_back(declaration.name);
  }
  return names;
}

std::vector<FieldSpec> Plan::fields(const Config& config) const {
  std::vector<FieldSpec> specs;
  specs.reserve(std::size(kFields) + 8 * ratios.ca.size());
  for (const FieldDeclaration& declaration : kFields) {
    const Rows rows = rows_in(declaration, path, config);
    if (rows == Rows::none) continue;
    if (declaration.columns == Columns::ngram && config.max_ngram_size <= 0) continue;
    for (const int64_t ratio : bucket_ratios(declaration.bucket, ratios)) {
      specs.push_back({&declaration, ratio, rows, row_count(rows, ratio, *this),
                       column_count(declaration.columns, config, *this)});
    }
  }
  return specs;
}

Plan plan_prompt(const Config& config, std::span<const Sequence> sequences) {
  Plan plan = plan_common(Path::prompt, config, sequences);
  for (const Ratio& ratio : plan.ratios.ca) plan.compressed.push_back(compressed_sizes(ratio, sequences));
  const MirrorGroup group(config.cp_size, config.cp_rank);
  for (const Sequence& sequence : sequences) {
    plan.cp_mirror_len += MirrorBlocks(sequence.seqlen_q, group).mirror_rows();
  }
  if (config.yoco_mode == YocoMode::compact) plan.consumer = plan_consumer(config, sequences);
  check_outputs_int32({config, sequences, plan});
  plan.total_k_swa = plan.num_reqs * config.window_size;
  for (const Sequence& sequence : sequences) plan.load_segments_swa += window_load_segments(sequence, config);
  return plan;
}

Plan plan_decode(const Config& config, std::span<const Sequence> sequences, std::optional<int64_t> table_columns) {
  Plan plan = plan_common(Path::decode, config, sequences);
  for (const Sequence& sequence : sequences) {
    plan.max_num_blocks = std::max(plan.max_num_blocks, num_blocks(sequence, plan.ratios));
  }
  plan.max_num_blocks = std::max({int64_t{1}, plan.max_num_blocks, table_columns.value_or(0)});
  check_outputs_int32({config, sequences, plan});
  return plan;
}

}  // namespace inputmeta
