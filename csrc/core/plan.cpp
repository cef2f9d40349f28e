#include "core/plan.h"

#include <algorithm>

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

bool is_filled(const FieldDeclaration& declaration, Path path, const Config& config) {
  const bool is_prompt = path == Path::prompt;
  const bool is_compact = is_prompt && config.yoco_mode == YocoMode::compact;
  switch (declaration.paths) {
    case Paths::prompt: return is_prompt;
    case Paths::decode: return !is_prompt;
    case Paths::both: return true;
    case Paths::mask: return is_prompt && config.yoco_mode == YocoMode::mask;
    case Paths::compact: return is_compact;
    case Paths::compact_cp: return is_compact && config.cp_size > 1;
  }
  return false;
}

int64_t row_count(const FieldDeclaration& declaration, int64_t ratio, const Plan& plan) {
  const auto sizes = std::find_if(plan.compressed.begin(), plan.compressed.end(),
                                  [&](const CompressedSizes& candidate) { return candidate.ratio == ratio; });
  switch (declaration.rows) {
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
  const auto values = [](const std::vector<Ratio>& list) {
    std::vector<int64_t> result;
    for (const Ratio& ratio : list) result.push_back(ratio.value());
    return result;
  };
  switch (bucket) {
    case Bucket::plain: return {0};
    case Bucket::ca: return values(ratios.ca);
    case Bucket::dense: return values(ratios.dense);
    case Bucket::sparse: return values(ratios.sparse);
  }
  return {};
}

}  // namespace

std::vector<const char*> Plan::empty_buckets(const Config& config) const {
  std::vector<const char*> names;
  for (const FieldDeclaration& declaration : field_declarations()) {
    if (is_filled(declaration, path, config) && bucket_ratios(declaration.bucket, ratios).empty()) {
      names.push_back(declaration.name);
    }
  }
  return names;
}

std::vector<FieldSpec> Plan::fields(const Config& config) const {
  std::vector<FieldSpec> specs;
  specs.reserve(field_declarations().size() + 8 * ratios.ca.size());
  for (const FieldDeclaration& declaration : field_declarations()) {
    if (!is_filled(declaration, path, config)) continue;
    if (declaration.columns == Columns::ngram && config.max_ngram_size <= 0) continue;
    for (const int64_t ratio : bucket_ratios(declaration.bucket, ratios)) {
      specs.push_back({&declaration, ratio, row_count(declaration, ratio, *this),
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
