// ZOS decode: the cells of one query row, for one thread of a kernel on the host or on a device. The meaning is that of
// eager decode (sections 2 to 6); there a chunk's rows are written in runs, here each row stands alone.
//
// All is unsigned 32-bit: the plan has shown that every value written fits in int32, and ZosParams says why a divisor
// that does not fit may be cut.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define INPUTMETA_ANYWHERE __host__ __device__
#else
#define INPUTMETA_ANYWHERE
#endif

namespace inputmeta {

/// One ratio n and its b_c = block_size // n.
struct ZosRatio {
  uint32_t value;
  uint32_t tokens_per_block;
};

/// What a step's rows share. Every member is min(value, 2^32 - 1): positions and lengths are below 2^31, so a larger
/// divisor divides them alike, and where one is a factor, int32 holds the product, so that the other factor is 0.
struct ZosParams {
  uint32_t window_size;     ///< W, tokens
  uint32_t ring;            ///< B, slots
  uint32_t max_num_blocks;  ///< columns of block_tables in use
  bool force_load_balance;
};

/// One sequence, as read from the arrays.
struct ZosSequence {
  uint32_t q_start;
  uint32_t seqlen_q;
  uint32_t state_id;
  bool is_placeholder;
  const int32_t* block_table;
};

/// A pair of cells: an offset and a length, or a position and a slot.
struct ZosPair {
  int32_t first;
  int32_t second;
};

/// F-RING for row j: a row that a later one overwrites is not stored, nor is a placeholder's.
INPUTMETA_ANYWHERE inline int32_t zos_ring_slot(const ZosSequence& sequence, uint32_t j, uint32_t ring) {
  if (sequence.is_placeholder || sequence.seqlen_q - j > ring) return -1;
  return static_cast<int32_t>(sequence.state_id * ring + (sequence.q_start + j) % ring);
}

/// F-SWADEC for the row at `position`: first ring slot and keys of its window.
INPUTMETA_ANYWHERE inline ZosPair zos_window(const ZosSequence& sequence, uint32_t position, const ZosParams& params) {
  const uint32_t len = position < params.window_size ? position + 1 : params.window_size;
  const uint32_t first = sequence.state_id * params.ring + (position + 1 - len) % params.ring;
  return {static_cast<int32_t>(first), static_cast<int32_t>(len)};
}

/// F-CDEC and F-CSLOT: position and slot of the compressed token that the row at `position` completes, or 0 and -1.
INPUTMETA_ANYWHERE inline ZosPair zos_compressed(const ZosSequence& sequence, uint32_t position, ZosRatio ratio) {
  if (sequence.is_placeholder || (position + 1) % ratio.value != 0) return {0, -1};
  const uint32_t token = position / ratio.value;
  const auto block = static_cast<uint32_t>(sequence.block_table[token / ratio.tokens_per_block]);
  const uint32_t slot = block * ratio.tokens_per_block + token % ratio.tokens_per_block;
  return {static_cast<int32_t>(token * ratio.value), static_cast<int32_t>(slot)};
}

/// klen: compressed keys that the row at `position` sees.
INPUTMETA_ANYWHERE inline int32_t zos_key_len(uint32_t position, ZosRatio ratio) {
  return static_cast<int32_t>((position + 1) / ratio.value);
}

/// F-CAOFF: where query row `row` begins in the flattened block tables, and its compressed keys.
INPUTMETA_ANYWHERE inline ZosPair zos_dense_range(uint32_t row, uint32_t position, ZosRatio ratio,
                                                  const ZosParams& params) {
  return {static_cast<int32_t>(row * params.max_num_blocks * ratio.tokens_per_block), zos_key_len(position, ratio)};
}

}  // namespace inputmeta
