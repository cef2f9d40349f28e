// ZOS decode: where a step's arrays lie, in host memory or a device's. Plain addresses, for kernels to take by value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/exact_divisor.h"

namespace inputmeta {

/// Per-sequence arrays of a step: n cells each but where said.
struct ZosInputs {
  int64_t num_reqs = 0;
  const int32_t* seqlens_q = nullptr;
  const int32_t* seqlens_k = nullptr;
  const int32_t* cu_seqlens_q = nullptr;  ///< inclusive: cell i is the row past sequence i's last
  const int32_t* state_ids = nullptr;
  const bool* is_placeholder = nullptr;
  const int64_t* block_tables_offsets = nullptr;  ///< [n + 1], into block_tables
  const int32_t* block_tables = nullptr;          ///< flat, the blocks of F-BLOCKS of each sequence

  int64_t first_row(int64_t index) const { return index == 0 ? 0 : cu_seqlens_q[index - 1]; }
};

/// F-STACK: one buffer [n_ratio, q_stride, cells of a row], contiguous; bucket k is the prefix of its row k.
struct ZosStack {
  int32_t* address = nullptr;
  int64_t ratio_stride = 0;  ///< cells from one ratio to the next

  INPUTMETA_ANYWHERE int32_t* bucket(size_t index) const {
    return address + static_cast<int64_t>(index) * ratio_stride;
  }
};

struct ZosOutputs {
  int32_t* positions = nullptr;
  bool* gate_force_random = nullptr;
  bool* valid_token_mask = nullptr;
  int32_t* query_indices = nullptr;
  int32_t* context_lens = nullptr;
  int32_t* state_block_idx = nullptr;
  int32_t* slot_mapping_store_swa = nullptr;
  int32_t* kv_swa_index_offset_len = nullptr;  ///< two cells a row
  ZosStack positions_c;                        ///< a bucket a ca ratio
  ZosStack slot_mapping_store_ca;              ///< a bucket a ca ratio
  ZosStack klen;                               ///< a bucket a sparse ratio
  ZosStack kv_ca_index_offset_len;             ///< a bucket a dense ratio, two cells a row
};

}  // namespace inputmeta
