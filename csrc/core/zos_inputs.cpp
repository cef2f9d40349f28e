#include "core/zos_inputs.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/blocks.h"
#include "core/error.h"
#include "core/int32_limits.h"
#include "core/ngram.h"
#include "core/preconditions.h"

namespace inputmeta {
namespace {

/// Regions begin at vector loads' alignment.
constexpr int64_t kAlignment = 16;

int64_t size_of(DType type) {
  switch (type) {
    case DType::int32: return sizeof(int32_t);
    case DType::int64: return sizeof(int64_t);
    case DType::boolean: return sizeof(bool);
  }
  return 0;
}

/// What stands in for the sum of seqlen_k of the other paths: every row's own context must fit.
void check_sizes_int32(Wide total_q, int64_t longest_context, std::span<const Sequence> sequences) {
  require_fits(total_q, kNoSequence, "total_q");
  if (fits_int32(longest_context)) return;
  for_each_chunk(sequences, [](int64_t index, const Sequence& sequence, int64_t) {
    require_fits(sequence.seqlen_k, index, "context_lens");
  });
}

/// The arrays of the pack, as their types.
class Pack {
 public:
  Pack(const ZosLayout& layout, std::span<std::byte> bytes) : layout_(layout), bytes_(bytes) {}

  template <class Cell>
  Cell* cells(std::string_view name) const {
    return reinterpret_cast<Cell*>(bytes_.data() + layout_[name].offset);
  }

 private:
  const ZosLayout& layout_;
  std::span<std::byte> bytes_;
};

/// F-IDS: a chunk is one known token and then the drafts.
void write_input_ids(int32_t* out, const Sequence& sequence) {
  *out = sequence.token_ids[sequence.q_start()];
  std::ranges::copy(sequence.draft_tokens.values, out + 1);
}

void write_scalars(std::span<const Sequence> sequences, const Pack& pack) {
  auto* const seqlens_q = pack.cells<int32_t>("seqlens_q");
  auto* const seqlens_k = pack.cells<int32_t>("seqlens_k");
  auto* const ends = pack.cells<int32_t>("cu_seqlens_q");
  auto* const states = pack.cells<int32_t>("state_ids");
  auto* const placeholders = pack.cells<bool>("is_placeholder");
  auto* const ids = pack.cells<int32_t>("input_ids");
  for_each_chunk(sequences, [&](int64_t index, const Sequence& sequence, int64_t first_row) {
    seqlens_q[index] = narrow(sequence.seqlen_q);
    seqlens_k[index] = narrow(sequence.seqlen_k);
    ends[index] = narrow(first_row + sequence.seqlen_q);
    states[index] = narrow(sequence.state_id);
    placeholders[index] = sequence.is_placeholder;
    write_input_ids(ids + first_row, sequence);
  });
}

void write_tables(std::span<const Sequence> sequences, const Ratios& ratios, const Pack& pack) {
  auto* const tables = pack.cells<int32_t>("block_tables");
  auto* const offsets = pack.cells<int64_t>("block_tables_offsets");
  tables[0] = 0;  // the cell of a step without a block
  offsets[0] = 0;
  for_each_chunk(sequences, [&](int64_t index, const Sequence& sequence, int64_t) {
    const int64_t blocks = num_blocks(sequence, ratios);
    std::copy_n(sequence.block_table.values.data(), blocks, tables + offsets[index]);
    offsets[index + 1] = offsets[index] + blocks;
  });
}

}  // namespace

int64_t ZosArray::bytes() const { return rows * std::max<int64_t>(1, columns) * size_of(type); }

ZosLayout::ZosLayout(const ZosPlan& zos, const Config& config) {
  const auto add = [this](std::string_view name, DType type, int64_t rows, int64_t columns = -1) {
    arrays.push_back({name, type, rows, columns, bytes});
    bytes += ceil_div(arrays.back().bytes(), kAlignment) * kAlignment;
  };
  const int64_t sequences = zos.plan.num_reqs;
  arrays.reserve(kZosArrays);
  add("seqlens_q", DType::int32, sequences);
  add("seqlens_k", DType::int32, sequences);
  add("cu_seqlens_q", DType::int32, sequences);
  add("state_ids", DType::int32, sequences);
  add("is_placeholder", DType::boolean, sequences);
  add("block_tables_offsets", DType::int64, sequences + 1);
  add("block_tables", DType::int32, std::max<int64_t>(1, zos.table_cells));
  add("input_ids", DType::int32, zos.plan.total_q);
  if (config.max_ngram_size > 0) add("ngram_token_ids", DType::int32, zos.plan.total_q, config.max_ngram_size);
}

const ZosArray* ZosLayout::find(std::string_view name) const {
  const auto found = std::ranges::find(arrays, name, &ZosArray::name);
  return found == arrays.end() ? nullptr : &*found;
}

const ZosArray& ZosLayout::operator[](std::string_view name) const {
  const ZosArray* const found = find(name);
  if (found == nullptr) throw std::out_of_range(std::string(name) + " is not in the pack");
  return *found;
}

ZosPlan plan_zos(const Config& config, std::span<const Sequence> sequences) {
  ZosPlan zos;
  Plan& plan = zos.plan;
  plan.path = Path::decode;
  check_ratios(config);
  plan.ratios = Ratios(config);
  check_sequences(Path::decode, config, plan.ratios, sequences);
  plan.num_reqs = static_cast<int64_t>(sequences.size());
  plan.max_num_blocks = 1;
  Wide total_q = 0;
  int64_t longest_context = 0;
  for (const Sequence& sequence : sequences) {
    const int64_t blocks = num_blocks(sequence, plan.ratios);
    total_q += sequence.seqlen_q;
    longest_context = std::max(longest_context, sequence.seqlen_k);
    plan.max_num_blocks = std::max(plan.max_num_blocks, blocks);
    zos.max_seqlen_q = std::max(zos.max_seqlen_q, sequence.seqlen_q);
    zos.table_cells += blocks;
  }
  check_sizes_int32(total_q, longest_context, sequences);
  plan.total_q = static_cast<int64_t>(total_q);
  check_outputs_int32({config, sequences, plan});
  return zos;
}

void fill_zos_inputs(const Config& config, std::span<const Sequence> sequences, const ZosPlan& zos,
                     const ZosLayout& layout, std::span<std::byte> bytes) {
  const Pack pack(layout, bytes);
  write_scalars(sequences, pack);
  write_tables(sequences, zos.plan.ratios, pack);
  if (config.max_ngram_size > 0) write_ngrams(config, sequences, pack.cells<int32_t>("ngram_token_ids"));
}

std::vector<FieldSpec> zos_fields(const Plan& plan, const Config& config) {
  std::vector<FieldSpec> specs = plan.fields(config);
  std::erase_if(specs, [](const FieldSpec& spec) { return spec.declaration->field == Field::cu_seqlens_k; });
  for (FieldSpec& spec : specs) {
    if (spec.declaration->field == Field::cu_seqlens_q) spec.rows = plan.num_reqs;
  }
  return specs;
}

Plan plan_zos_outputs(const Config& config, int64_t num_reqs, int64_t total_q, int64_t columns) {
  Plan plan;
  plan.path = Path::decode;
  check_ratios(config);
  plan.ratios = Ratios(config);
  plan.num_reqs = num_reqs;
  plan.total_q = total_q;
  plan.max_num_blocks = columns;
  check_outputs_int32({config, {}, plan});  // without sequences: the bounds of the totals
  return plan;
}

}  // namespace inputmeta
