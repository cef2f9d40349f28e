// The metadata of a ZOS decode step for one thread: every per-row field of every ratio, and the fields that the host has
// made already, which came with the pack. A warp takes one item of its group's rows: the fields without buckets, the
// buckets of one ratio, or a share of one array to copy; so its lanes take the same path and write neighbouring cells,
// and no load waits for another but that of a stored slot's block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/zos_arrays.h"
#include "core/zos_row.h"
#include "cuda/cells.h"
#include "cuda/plant.h"
#include "cuda/sequence_tiles.h"
#include "cuda/zos_sequences.h"

namespace inputmeta::cuda {

/// Ratios of one launch: a step with more of them takes several. What a launch is told costs it time, used or not.
inline constexpr uint32_t kRatiosAtOnce = 4;
/// Arrays that are copied: cu_seqlens_q, input_ids, ngram_token_ids.
inline constexpr uint32_t kCopiedArrays = 3;

struct ZosMetadata {
  SequenceTiles tiles;
  uint32_t buckets_count = 0;
  bool has_rows_item = true;  ///< the first launch of a step: fields without buckets, and copies
  ExactDivisor warps_per_group;
  ZosParams params;
  ZosOutputs outputs;
  ZosCopies copies;
  ZosBucket buckets[kRatiosAtOnce];

  INPUTMETA_ANYWHERE uint32_t items() const { return buckets_count + (has_rows_item ? 1 : 0); }
  /// A step without sequences still has a neutral row.
  INPUTMETA_ANYWHERE uint32_t groups() const { return tiles.groups > 0 ? tiles.groups : 1; }
  INPUTMETA_ANYWHERE uint32_t warps() const { return groups() * warps_per_group.value; }

  /// Completes the rest for `num_reqs` sequences of at most `longest` of `total_q` rows.
  void plan(int64_t num_reqs, int64_t total_q, int64_t longest) {
    tiles = plan_sequence_tiles(num_reqs, total_q, longest);
    warps_per_group = ExactDivisor(std::max<uint32_t>(1, items() + (has_rows_item ? kCopiedArrays : 0)));
  }
};

INPUTMETA_ANYWHERE inline ZosSequence zos_load_sequence(const ZosSequences& sequences, uint32_t index) {
  const ZosInputs& inputs = sequences.inputs;
  const auto seqlen_q = static_cast<uint32_t>(inputs.seqlens_q[index]);
  const ZosTable table = zos_load_table(sequences, index);
  return {static_cast<uint32_t>(inputs.seqlens_k[index]) - seqlen_q,
          seqlen_q,
          static_cast<uint32_t>(inputs.state_ids[index]),
          inputs.is_placeholder[index],
          table.cells,
          table.count};
}

/// Bucket k of a stack.
INPUTMETA_ANYWHERE inline ZosOutputs zos_outputs_of(const ZosMetadata& metadata,
                                                    [[maybe_unused]] const ZosSequences& sequences) {
#if INPUTMETA_PLANTED(stack_stride)
  ZosOutputs outputs = metadata.outputs;
  outputs.place<Field::klen>().bucket_stride = outputs.place<Field::positions_c>().bucket_stride = sequences.total_q;
  return outputs;
#else
  return metadata.outputs;
#endif
}

/// What the host has made, and where it lies.
INPUTMETA_ANYWHERE inline ZosCopies zos_copies_of(const ZosMetadata& metadata,
                                                  [[maybe_unused]] const ZosSequences& sequences) {
#if INPUTMETA_PLANTED(moved_rows)
  ZosCopies copies = metadata.copies;
  copies.tokens.fresh_cu_seqlens_q = sequences.inputs.cu_seqlens_q;
  return copies;
#else
  return metadata.copies;
#endif
}

/// A lane's rows of one item: `bucket` is null for the fields without buckets.
INPUTMETA_ANYWHERE inline void zos_write_item(const ZosMetadata& metadata, const ZosSequences& sequences,
                                              const ZosBucket* bucket, uint32_t group, uint32_t lane) {
  metadata.tiles.visit(group, lane, [&](uint32_t index, uint32_t first, uint32_t step) {
    const ZosSequence sequence = zos_load_sequence(sequences, index);
    const uint32_t first_row = static_cast<uint32_t>(sequences.inputs.cu_seqlens_q[index]) - sequence.seqlen_q;
INPUTMETA_ROLLED
    for (uint32_t j = first; j < sequence.seqlen_q; j += step) {
      const uint32_t row = first_row + j;
      if (row >= sequences.total_q) return;
      if (bucket == nullptr) {
        zos_write_row(sequence, index, j, row, metadata.params, metadata.outputs);
        if (metadata.copies.is_by_row()) zos_copy_row(zos_copies_of(metadata, sequences), index, j, row);
      } else {
        const ZosBucketCells cells = zos_bucket_cells(sequence, sequence.q_start + j, row, *bucket, metadata.params);
        zos_write_bucket(cells, row, *bucket, zos_outputs_of(metadata, sequences));
      }
    }
  });
}

/// Whether there may be rows past the last sum: of a step that the device has made shorter, or one without rows.
INPUTMETA_ANYWHERE inline bool zos_has_tail(const ZosMetadata& metadata, const ZosSequences& sequences) {
#if INPUTMETA_PLANTED(stale_rows)
  return sequences.total_q == 0;
#else
  return metadata.copies.is_by_row() || sequences.total_q == 0;
#endif
}

/// A lane's part of these rows (F-TAIL, I-3).
INPUTMETA_ANYWHERE inline void zos_write_tail(const ZosMetadata& metadata, const ZosSequences& sequences,
                                              const ZosBucket* bucket, int64_t lane, int64_t lanes) {
  const int64_t rows = zos_buffer_rows(sequences);
INPUTMETA_ROLLED
  for (int64_t row = zos_load_end(sequences) + lane; row < rows; row += lanes) {
    zos_write_neutral_row(bucket, row, zos_outputs_of(metadata, sequences));
    if (bucket == nullptr) zos_copy_neutral_row(metadata.copies, row);
  }
}

/// The part of one of `threads` threads in what is copied as it is: one of the kCopiedArrays.
INPUTMETA_ANYWHERE inline void zos_copy_array(const ZosMetadata& metadata, const ZosSequences& sequences,
                                              uint32_t array, int64_t thread, int64_t threads) {
  const ZosCopies& copies = metadata.copies;
  if (array == 0) {
    copy_cells(sequences.inputs.cu_seqlens_q, copies.out_cu_seqlens_q, sequences.inputs.num_reqs, thread, threads);
  } else if (copies.is_by_row()) {
    return;
  } else if (array == 1) {
    copy_cells(copies.tokens.fresh_input_ids, copies.out_input_ids, sequences.total_q, thread, threads);
  } else if (copies.ngram_token_ids != nullptr) {
    copy_cells(copies.ngram_token_ids, copies.out_ngram_token_ids, sequences.total_q * copies.ngram_columns, thread,
               threads);
  }
}

/// One lane of one of metadata.warps() warps.
INPUTMETA_ANYWHERE inline void zos_metadata_lane(const ZosMetadata& metadata, const ZosSequences& sequences,
                                                 uint32_t warp, uint32_t lane) {
  const uint32_t group = metadata.warps_per_group.quotient(warp);
  const uint32_t item = warp - group * metadata.warps_per_group.value;
  const int64_t lanes = int64_t{metadata.groups()} * kWarp;
  const int64_t place = int64_t{group} * kWarp + lane;
  if (item >= metadata.items()) {
    if (metadata.has_rows_item) zos_copy_array(metadata, sequences, item - metadata.items(), place, lanes);
    return;
  }
  const uint32_t before = metadata.has_rows_item ? 1 : 0;
  const ZosBucket* const bucket = item < before ? nullptr : &metadata.buckets[item - before];
  if (sequences.total_q > 0) zos_write_item(metadata, sequences, bucket, group, lane);
  if (zos_has_tail(metadata, sequences)) zos_write_tail(metadata, sequences, bucket, place, lanes);
}

}  // namespace inputmeta::cuda
