#include "core/zos_decode.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "core/arithmetic.h"

namespace inputmeta {
namespace {

ZosSequence sequence_at(const ZosInputs& inputs, int64_t index) {
  const auto seqlen_q = static_cast<uint32_t>(inputs.seqlens_q[index]);
  return {.q_start = static_cast<uint32_t>(inputs.seqlens_k[index]) - seqlen_q,
          .seqlen_q = seqlen_q,
          .state_id = static_cast<uint32_t>(inputs.state_ids[index]),
          .is_placeholder = inputs.is_placeholder[index],
          .block_table = inputs.block_tables + inputs.block_tables_offsets[index],
          .num_blocks =
              static_cast<uint32_t>(inputs.block_tables_offsets[index + 1] - inputs.block_tables_offsets[index])};
}

/// The place of a value in an ascending list of ratios, -1 when it is not there.
int32_t bucket_of(const Ratio& ratio, const std::vector<Ratio>& list) {
  const auto found = std::ranges::find(list, ratio.value(), &Ratio::value);
  return found == list.end() ? -1 : static_cast<int32_t>(found - list.begin());
}

[[noreturn]] void refuse_array(int64_t index, const char* rule) {
  throw std::invalid_argument("sequence " + std::to_string(index) + ": " + rule);
}

}  // namespace

uint32_t zos_cut(int64_t value) {
  return static_cast<uint32_t>(std::min<int64_t>(value, std::numeric_limits<uint32_t>::max()));
}

ZosConstants::ZosConstants(const Config& config, const Ratios& ratios, int64_t max_num_blocks)
    : params{.window_size = zos_cut(config.window_size),
             .ring = ExactDivisor(zos_cut(config.swa_block_size)),
             .max_num_blocks = zos_cut(max_num_blocks),
             .force_load_balance = config.force_load_balance} {
  for (const Ratio& ratio : ratios.ca) {
    buckets.push_back({.ratio = {.value = ExactDivisor(zos_cut(ratio.value())),
                                 .tokens_per_block = ExactDivisor(zos_cut(ratio.tokens_per_block()))},
                       .ca = static_cast<int32_t>(buckets.size()),
                       .sparse = bucket_of(ratio, ratios.sparse),
                       .dense = bucket_of(ratio, ratios.dense)});
  }
}

void check_zos_arrays(const ZosInputs& inputs, const Ratios& ratios, int64_t total_q, int64_t columns,
                      int64_t table_cells, bool is_shorter) {
  const Ratio& smallest = ratios.smallest();
  int64_t row = 0;
  int64_t cell = 0;
  for (int64_t index = 0; index < inputs.num_reqs; ++index) {
    const int64_t seqlen_q = inputs.seqlens_q[index];
    const int64_t seqlen_k = inputs.seqlens_k[index];
    if (seqlen_q < 0 || seqlen_q > seqlen_k) refuse_array(index, "0 <= seqlens_q <= seqlens_k");
    if (is_shorter && seqlen_q == 0) refuse_array(index, "1 <= seqlens_q");
    row += seqlen_q;
    if (inputs.cu_seqlens_q[index] != row) refuse_array(index, "cu_seqlens_q is the inclusive sum of seqlens_q");
    if (inputs.block_tables_offsets[index] != cell) refuse_array(index, "block_tables_offsets join");
    const int64_t blocks = inputs.block_tables_offsets[index + 1] - cell;
    if (blocks < smallest.blocks_for(smallest.complete_tokens(seqlen_k)) || blocks > columns) {
      refuse_array(index, "block_tables has the sequence's blocks and no more than there are columns");
    }
    cell += blocks;
    if (cell > table_cells) refuse_array(index, "block_tables_offsets end inside block_tables");
  }
  if (is_shorter ? row > total_q : row != total_q) {
    throw std::invalid_argument(is_shorter ? "cu_seqlens_q ends with at most total_q" : "cu_seqlens_q ends with total_q");
  }
}

void zos_decode_kernel(const ZosInputs& inputs, int64_t total_q, const ZosConstants& constants,
                       const ZosOutputs& outputs) {
  for (int64_t index = 0; index < inputs.num_reqs; ++index) {
    const ZosSequence sequence = sequence_at(inputs, index);
    const int64_t first_row = inputs.first_row(index);
    for (uint32_t j = 0; j < sequence.seqlen_q; ++j) {
      const int64_t row = first_row + j;
      zos_write_row(sequence, index, j, row, constants.params, outputs);
      for (const ZosBucket& bucket : constants.buckets) {
        const uint32_t position = sequence.q_start + j;
        const auto cells = zos_bucket_cells(sequence, position, static_cast<uint32_t>(row), bucket, constants.params);
        zos_write_bucket(cells, row, bucket, outputs);
      }
    }
  }
  for (int64_t row = inputs.first_row(inputs.num_reqs); row < std::max<int64_t>(1, total_q); ++row) {
    zos_write_neutral_row(nullptr, row, outputs);
    for (const ZosBucket& bucket : constants.buckets) zos_write_neutral_row(&bucket, row, outputs);
  }
}

void zos_copies_kernel(const ZosInputs& inputs, int64_t total_q, const ZosCopies& given) {
  ZosCopies copies = given;
  if (!copies.is_by_row()) copies.tokens.fresh_cu_seqlens_q = inputs.cu_seqlens_q;
  for (int64_t index = 0; index < inputs.num_reqs; ++index) {
    const int64_t first_row = inputs.first_row(index);
    const auto count = static_cast<uint32_t>(inputs.seqlens_q[index]);
    for (uint32_t j = 0; j < count; ++j) zos_copy_row(copies, index, j, first_row + j);
  }
  for (int64_t row = inputs.first_row(inputs.num_reqs); row < std::max<int64_t>(1, total_q); ++row) {
    zos_copy_neutral_row(copies, row);
  }
  if (copies.out_cu_seqlens_q != inputs.cu_seqlens_q) {
    std::copy_n(inputs.cu_seqlens_q, inputs.num_reqs, copies.out_cu_seqlens_q);
  }
}

void zos_block_tables_kernel(const ZosInputs& inputs, int64_t columns, int32_t* tables) {
  for (int64_t index = 0; index < inputs.num_reqs; ++index) {
    const int32_t* const begin = inputs.block_tables + inputs.block_tables_offsets[index];
    const int32_t* const end = inputs.block_tables + inputs.block_tables_offsets[index + 1];
    for (int64_t row = inputs.first_row(index); row < inputs.cu_seqlens_q[index]; ++row) {
      std::copy(begin, end, tables + row * columns);
    }
  }
}

}  // namespace inputmeta
