// The metadata kernel for one thread: every per-row field of every ratio of a ZOS decode step, and the fields that the
// host has made already, which came with the pack. A warp takes one item of its group's rows: the fields without
// buckets, or the buckets of one ratio; so its lanes take the same path and write neighbouring cells.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/zos_arrays.h"
#include "core/zos_row.h"
#include "cuda/cells.h"
#include "cuda/plant.h"
#include "cuda/sequence_tiles.h"

namespace inputmeta::cuda {

/// Ratios of one launch: a step with more of them takes several.
inline constexpr uint32_t kRatiosAtOnce = 16;
/// Warps of a block of threads that copy what the host has made.
inline constexpr uint32_t kCopyWarps = 2;

struct ZosMetadataArgs {
  ZosInputs inputs;
  int64_t table_cells = 0;  ///< of inputs.block_tables
  ZosOutputs outputs;
  ZosCopies copies;
  ZosParams params;
  uint32_t total_q = 0;
  SequenceTiles tiles;
  bool has_rows_item = true;  ///< the first launch of a step: fields without buckets, and copies
  uint32_t buckets_count = 0;
  ZosBucket buckets[kRatiosAtOnce];

  INPUTMETA_ANYWHERE uint32_t items() const { return buckets_count + (has_rows_item ? 1 : 0); }
  uint32_t threads() const { return kWarp * (items() + (has_rows_item ? kCopyWarps : 0)); }
  /// A step without sequences still has a neutral row.
  uint32_t blocks() const { return std::max<uint32_t>(1, tiles.groups); }
};

INPUTMETA_ANYWHERE inline ZosSequence zos_load_sequence(const ZosMetadataArgs& args, uint32_t index) {
  const ZosInputs& inputs = args.inputs;
  const auto seqlen_q = static_cast<uint32_t>(inputs.seqlens_q[index]);
  const int64_t begin = inputs.block_tables_offsets[index];
  const int64_t end = inputs.block_tables_offsets[index + 1];
  const bool is_inside = begin >= 0 && begin <= end && end <= args.table_cells;
  return {static_cast<uint32_t>(inputs.seqlens_k[index]) - seqlen_q,
          seqlen_q,
          static_cast<uint32_t>(inputs.state_ids[index]),
          inputs.is_placeholder[index],
          inputs.block_tables + (is_inside ? begin : 0),
          is_inside ? static_cast<uint32_t>(end - begin) : 0};
}

/// Bucket k of a stack.
INPUTMETA_ANYWHERE inline ZosOutputs zos_outputs_of(const ZosMetadataArgs& args) {
#if INPUTMETA_PLANTED(stack_stride)
  ZosOutputs outputs = args.outputs;
  outputs.place<Field::klen>().bucket_stride = outputs.place<Field::positions_c>().bucket_stride = args.total_q;
  return outputs;
#else
  return args.outputs;
#endif
}

/// What the host has made, and where it lies.
INPUTMETA_ANYWHERE inline ZosCopies zos_copies_of(const ZosMetadataArgs& args) {
#if INPUTMETA_PLANTED(moved_rows)
  ZosCopies copies = args.copies;
  copies.tokens.fresh_cu_seqlens_q = args.inputs.cu_seqlens_q;
  return copies;
#else
  return args.copies;
#endif
}

/// A lane's rows of one item: `bucket` is null for the fields without buckets.
INPUTMETA_ANYWHERE inline void zos_write_item(const ZosMetadataArgs& args, const ZosBucket* bucket, uint32_t group,
                                              uint32_t lane) {
  args.tiles.visit(group, lane, [&](uint32_t index, uint32_t first, uint32_t step) {
    const ZosSequence sequence = zos_load_sequence(args, index);
    const uint32_t first_row = static_cast<uint32_t>(args.inputs.cu_seqlens_q[index]) - sequence.seqlen_q;
    for (uint32_t j = first; j < sequence.seqlen_q; j += step) {
      const uint32_t row = first_row + j;
      if (row >= args.total_q) return;
      if (bucket == nullptr) {
        zos_write_row(sequence, index, j, row, args.params, args.outputs);
        if (args.copies.is_by_row()) zos_copy_row(zos_copies_of(args), index, j, row);
      } else {
        const ZosBucketCells cells = zos_bucket_cells(sequence, sequence.q_start + j, row, *bucket, args.params);
        zos_write_bucket(cells, row, *bucket, zos_outputs_of(args));
      }
    }
  });
}

/// A lane's part of F-TAIL: rows past the last sum of a step that the device has made shorter, or the one row of a step
/// without rows (I-3).
INPUTMETA_ANYWHERE inline void zos_write_tail(const ZosMetadataArgs& args, const ZosBucket* bucket, int64_t lane,
                                              int64_t lanes) {
  const uint32_t end =
      args.inputs.num_reqs == 0 ? 0 : static_cast<uint32_t>(args.inputs.cu_seqlens_q[args.inputs.num_reqs - 1]);
  const int64_t rows = args.total_q > 0 ? args.total_q : 1;
#if INPUTMETA_PLANTED(stale_rows)
  if (args.total_q > 0) return;
#endif
  for (int64_t row = end + lane; row < rows; row += lanes) {
    zos_write_neutral_row(bucket, row, zos_outputs_of(args));
    if (bucket == nullptr && (args.copies.is_by_row() || args.total_q == 0)) zos_copy_neutral_row(args.copies, row);
  }
}

/// The part of one of `threads` threads in what is copied as it is.
INPUTMETA_ANYWHERE inline void zos_copy_fields(const ZosMetadataArgs& args, int64_t thread, int64_t threads) {
  const ZosCopies& copies = args.copies;
  copy_cells(args.inputs.cu_seqlens_q, copies.out_cu_seqlens_q, args.inputs.num_reqs, thread, threads);
  if (copies.is_by_row()) return;
  copy_cells(copies.tokens.fresh_input_ids, copies.out_input_ids, args.total_q, thread, threads);
  if (copies.ngram_token_ids == nullptr) return;
  copy_cells(copies.ngram_token_ids, copies.out_ngram_token_ids, args.total_q * copies.ngram_columns, thread, threads);
}

INPUTMETA_ANYWHERE inline void zos_metadata_thread(const ZosMetadataArgs& args, uint32_t block, uint32_t thread,
                                                   uint32_t blocks) {
  const uint32_t item = thread / kWarp;
  const uint32_t lane = thread % kWarp;
  if (item >= args.items()) {
    const uint32_t copier = thread - args.items() * kWarp;
    zos_copy_fields(args, int64_t{block} * (kCopyWarps * kWarp) + copier, int64_t{blocks} * (kCopyWarps * kWarp));
    return;
  }
  const uint32_t before = args.has_rows_item ? 1 : 0;
  const ZosBucket* const bucket = item < before ? nullptr : &args.buckets[item - before];
  if (args.total_q > 0) zos_write_item(args, bucket, block, lane);
  zos_write_tail(args, bucket, int64_t{block} * kWarp + lane, int64_t{blocks} * kWarp);
}

}  // namespace inputmeta::cuda
