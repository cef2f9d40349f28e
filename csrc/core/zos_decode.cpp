#include "core/zos_decode.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "core/arithmetic.h"
#include "core/fields.h"

namespace inputmeta {
namespace {

uint32_t cut(int64_t value) {
  return static_cast<uint32_t>(std::min<int64_t>(value, std::numeric_limits<uint32_t>::max()));
}

std::vector<ZosRatio> cut(const std::vector<Ratio>& ratios) {
  std::vector<ZosRatio> result;
  result.reserve(ratios.size());
  for (const Ratio& ratio : ratios) result.push_back({cut(ratio.value()), cut(ratio.tokens_per_block())});
  return result;
}

ZosSequence sequence_at(const ZosInputs& inputs, int64_t index) {
  const auto seqlen_q = static_cast<uint32_t>(inputs.seqlens_q[index]);
  return {.q_start = static_cast<uint32_t>(inputs.seqlens_k[index]) - seqlen_q,
          .seqlen_q = seqlen_q,
          .state_id = static_cast<uint32_t>(inputs.state_ids[index]),
          .is_placeholder = inputs.is_placeholder[index],
          .block_table = inputs.block_tables + inputs.block_tables_offsets[index]};
}

void write_pair(int32_t* out, int64_t row, ZosPair pair) {
  out[2 * row] = pair.first;
  out[2 * row + 1] = pair.second;
}

/// Fields without buckets of row j, the step's row `row`.
void write_row(const ZosSequence& sequence, int64_t index, uint32_t j, int64_t row, const ZosParams& params,
               const ZosOutputs& outputs) {
  const uint32_t position = sequence.q_start + j;
  outputs.positions[row] = static_cast<int32_t>(position);
  outputs.gate_force_random[row] = params.force_load_balance;
  outputs.valid_token_mask[row] = !sequence.is_placeholder;
  outputs.query_indices[row] = sequence.is_placeholder ? kNoQuery : narrow(index);
  outputs.context_lens[row] = static_cast<int32_t>(position + 1);
  outputs.state_block_idx[row] = static_cast<int32_t>(sequence.state_id);
  outputs.slot_mapping_store_swa[row] = zos_ring_slot(sequence, j, params.ring);
  write_pair(outputs.kv_swa_index_offset_len, row, zos_window(sequence, position, params));
}

/// The buckets of row `row` at `position`.
void write_buckets(const ZosSequence& sequence, uint32_t position, int64_t row, const ZosConstants& constants,
                   const ZosOutputs& outputs) {
  for (size_t k = 0; k < constants.ca.size(); ++k) {
    const ZosPair stored = zos_compressed(sequence, position, constants.ca[k]);
    outputs.positions_c.bucket(k)[row] = stored.first;
    outputs.slot_mapping_store_ca.bucket(k)[row] = stored.second;
  }
  for (size_t k = 0; k < constants.sparse.size(); ++k) {
    outputs.klen.bucket(k)[row] = zos_key_len(position, constants.sparse[k]);
  }
  for (size_t k = 0; k < constants.dense.size(); ++k) {
    const ZosPair range = zos_dense_range(static_cast<uint32_t>(row), position, constants.dense[k], constants.params);
    write_pair(outputs.kv_ca_index_offset_len.bucket(k), row, range);
  }
}

[[noreturn]] void refuse_array(int64_t index, const char* rule) {
  throw std::invalid_argument("sequence " + std::to_string(index) + ": " + rule);
}

}  // namespace

ZosConstants::ZosConstants(const Config& config, const Ratios& ratios, int64_t max_num_blocks)
    : params{.window_size = cut(config.window_size),
             .ring = cut(config.swa_block_size),
             .max_num_blocks = cut(max_num_blocks),
             .force_load_balance = config.force_load_balance},
      ca(cut(ratios.ca)),
      sparse(cut(ratios.sparse)),
      dense(cut(ratios.dense)) {}

void check_zos_arrays(const ZosInputs& inputs, const Ratios& ratios, int64_t total_q, int64_t columns,
                      int64_t table_cells) {
  const Ratio& smallest = ratios.smallest();
  int64_t row = 0;
  int64_t cell = 0;
  for (int64_t index = 0; index < inputs.num_reqs; ++index) {
    const int64_t seqlen_q = inputs.seqlens_q[index];
    const int64_t seqlen_k = inputs.seqlens_k[index];
    if (seqlen_q < 0 || seqlen_q > seqlen_k) refuse_array(index, "0 <= seqlens_q <= seqlens_k");
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
  if (row != total_q) throw std::invalid_argument("cu_seqlens_q ends with total_q");
}

void zos_decode_kernel(const ZosInputs& inputs, const ZosConstants& constants, const ZosOutputs& outputs) {
  for (int64_t index = 0; index < inputs.num_reqs; ++index) {
    const ZosSequence sequence = sequence_at(inputs, index);
    const int64_t first_row = inputs.first_row(index);
    for (uint32_t j = 0; j < sequence.seqlen_q; ++j) {
      write_row(sequence, index, j, first_row + j, constants.params, outputs);
      write_buckets(sequence, sequence.q_start + j, first_row + j, constants, outputs);
    }
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
