#include "step.h"

#include <memory>
#include <numeric>
#include <utility>

#include "core/fill.h"

namespace inputmeta::test {
namespace {

std::vector<int32_t> counted(int64_t count, int32_t first) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

FilledStep filled(Plan plan, const Config& config, std::span<const Sequence> sequences) {
  FilledStep step{.plan = std::move(plan), .fields = {}};
  Outputs outputs;
  std::map<std::string, std::unique_ptr<bool[]>> flags;
  const std::vector<FieldSpec> specs = step.plan.fields(config);
  for (const FieldSpec& spec : specs) {
    const auto cells = static_cast<size_t>(spec.cells());
    std::vector<int32_t>& field = step.fields[spec.key()];
    field.assign(cells, FilledStep::kUnwritten);
    if (spec.declaration->dtype == DType::boolean) {
      flags[spec.key()] = std::make_unique<bool[]>(cells);
      outputs.bind(spec, flags[spec.key()].get());
    } else {
      outputs.bind(spec, field.data());
    }
  }
  fill({config, sequences, step.plan}, outputs);
  for (const auto& [key, cells] : flags) {
    std::vector<int32_t>& field = step.fields[key];
    for (size_t k = 0; k < field.size(); ++k) field[k] = cells[k] ? 1 : 0;
  }
  return step;
}

}  // namespace

Config small_config() {
  Config config;
  config.block_size = 8;
  config.dense_ratios = {1};
  config.sparse_ratios = {4};
  config.window_size = 4;
  config.swa_block_size = 6;
  config.max_model_len = 1000;
  return config;
}

Sequence OwnedSequence::view() const {
  Sequence sequence = scalars;
  sequence.block_table.values = block_table;
  sequence.token_ids.values = token_ids;
  sequence.draft_tokens.values = draft_tokens;
  sequence.compressed_tokens.values = compressed_tokens;
  sequence.recent_tokens.values = recent_tokens;
  return sequence;
}

OwnedSequence prompt_chunk(int64_t seqlen_q, int64_t seqlen_k, std::vector<int32_t> block_table, int64_t state_id) {
  OwnedSequence sequence;
  sequence.scalars.seqlen_q = seqlen_q;
  sequence.scalars.seqlen_k = seqlen_k;
  sequence.scalars.state_id = state_id;
  sequence.block_table = std::move(block_table);
  sequence.token_ids = counted(seqlen_k, 1000);
  return sequence;
}

OwnedSequence decode_rows(int64_t drafts, int64_t seqlen_k, std::vector<int32_t> block_table, int64_t state_id) {
  OwnedSequence sequence = prompt_chunk(1 + drafts, seqlen_k, std::move(block_table), state_id);
  sequence.token_ids.resize(static_cast<size_t>(seqlen_k - drafts));
  sequence.draft_tokens = counted(drafts, 2000);
  return sequence;
}

std::vector<Sequence> views(const std::vector<OwnedSequence>& sequences) {
  std::vector<Sequence> result;
  for (const OwnedSequence& sequence : sequences) result.push_back(sequence.view());
  return result;
}

FilledStep fill_prompt(const Config& config, const std::vector<OwnedSequence>& sequences) {
  const std::vector<Sequence> lent = views(sequences);
  return filled(plan_prompt(config, lent), config, lent);
}

FilledStep fill_decode(const Config& config, const std::vector<OwnedSequence>& sequences,
                       std::optional<int64_t> table_columns) {
  const std::vector<Sequence> lent = views(sequences);
  return filled(plan_decode(config, lent, table_columns), config, lent);
}

}  // namespace inputmeta::test
