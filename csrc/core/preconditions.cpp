#include "core/preconditions.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/blocks.h"
#include "core/error.h"

namespace inputmeta {
namespace {

void check_bounds_of_lengths(const Config& config, int64_t index, const Sequence& sequence) {
  if (sequence.seqlen_q < 0) refuse(Condition::length, index, "seqlen_q", sequence.seqlen_q, "seqlen_q >= 0");
  if (sequence.seqlen_q > sequence.seqlen_k) {
    refuse(Condition::length, index, "seqlen_q", sequence.seqlen_q,
           "seqlen_q <= seqlen_k = " + std::to_string(sequence.seqlen_k));
  }
  if (sequence.seqlen_k > config.max_model_len) {
    refuse(Condition::length, index, "seqlen_k", sequence.seqlen_k,
           "seqlen_k <= max_model_len = " + std::to_string(config.max_model_len));
  }
}

void check_prompt_length(int64_t index, const Sequence& sequence) {
  if (sequence.token_ids.size() < sequence.seqlen_k) {
    refuse_count(Condition::length, index, "token_ids", sequence.token_ids.size(), "tokens",
                 "len(token_ids) >= seqlen_k = " + std::to_string(sequence.seqlen_k));
  }
}

void check_decode_length(int64_t index, const Sequence& sequence) {
  const int64_t queries = 1 + sequence.draft_tokens.size();
  if (sequence.seqlen_q != queries) {
    refuse(Condition::length, index, "seqlen_q", sequence.seqlen_q,
           "seqlen_q = 1 + len(draft_tokens) = " + std::to_string(queries));
  }
  const int64_t keys = sequence.token_ids.size() - 1 + sequence.seqlen_q;
  if (sequence.seqlen_k != keys) {
    refuse(Condition::length, index, "seqlen_k", sequence.seqlen_k,
           "seqlen_k = len(token_ids) - 1 + seqlen_q = " + std::to_string(keys));
  }
}

void check_length(Path path, const Config& config, int64_t index, const Sequence& sequence) {
  check_bounds_of_lengths(config, index, sequence);
  if (path == Path::prompt) {
    check_prompt_length(index, sequence);
  } else {
    check_decode_length(index, sequence);
  }
}

void check_table(const Ratios& ratios, int64_t index, const Sequence& sequence) {
  const int64_t needed = num_blocks(sequence, ratios);
  if (sequence.block_table.size() < needed) {
    refuse_count(Condition::table, index, "block_table", sequence.block_table.size(), "blocks",
                 "covers cdiv(seqlen_k // m, block_size // m) = " + std::to_string(needed) + " blocks");
  }
  if (sequence.block_table.largest() <= kInt32Max) return;
  const auto blocks = sequence.block_table.values;
  const auto negative = std::find_if(blocks.begin(), blocks.end(), [](int32_t block) { return block < 0; });
  if (negative == blocks.end()) return;  // changed by its owner since it was read first
  refuse(Condition::table, index, "block_table", *negative,
         "entries >= 0 (entry " + std::to_string(negative - blocks.begin()) + ")");
}

void check_state(int64_t index, const Sequence& sequence) {
  const auto require = [&](const char* field, int64_t value) {
    if (value < 0) refuse(Condition::state, index, field, value, std::string(field) + " >= 0");
  };
  require("state_id", sequence.state_id);
  require("swa_valid_start", sequence.swa_valid_start);
  require("data_len", sequence.data_len);
}

void check_ngram(const Config& config, int64_t index, const Sequence& sequence) {
  if (config.max_ngram_size <= 0) return;
  const int64_t vocabulary = config.lookup_table.size();
  const int64_t known = sequence.compressed_tokens.size() + sequence.recent_tokens.size();
  if (known < sequence.seqlen_k) {
    refuse_count(Condition::ngram, index, "recent_tokens", known, "tokens with compressed_tokens",
                 "len(compressed_tokens) + len(recent_tokens) >= seqlen_k = " + std::to_string(sequence.seqlen_k));
  }
  const auto rule = [&] { return "0 <= token < len(lookup_table) = " + std::to_string(vocabulary); };
  const IntArray& recent = sequence.recent_tokens;
  if (!recent.outside.empty()) {  // its cell holds 0: the token itself is named
    throw PreconditionError(Condition::ngram, index, "recent_tokens", std::string(recent.outside), "", rule());
  }
  const uint32_t largest = recent.largest();
  if (largest >= vocabulary && recent.size() > 0) {
    refuse(Condition::ngram, index, "recent_tokens", static_cast<int32_t>(largest), rule());
  }
}

void check_array(int64_t index, const IntArray& array, const char* field) {
  if (array.outside.empty()) return;
  throw PreconditionError(Condition::int32, index, field, std::string(array.outside), "", "every value fits in int32");
}

/// P-INT32 of what comes in (I-10), read by this step or not.
void check_inputs_int32(const Config& config) {
  const auto require = [](int64_t value, const char* field) {
    if (!fits_int32(value)) refuse(Condition::int32, kNoSequence, field, value, "every value fits in int32");
  };
  require(config.pad_token, "pad_token");
  if (config.image_sentinel) require(*config.image_sentinel, "image_sentinel");
  check_array(kNoSequence, config.lookup_table, "lookup_table");
}

void check_inputs_int32(int64_t index, const Sequence& sequence) {
  check_array(index, sequence.block_table, "block_table");
  check_array(index, sequence.token_ids, "token_ids");
  check_array(index, sequence.draft_tokens, "draft_tokens");
  check_array(index, sequence.compressed_tokens, "compressed_tokens");
  check_array(index, sequence.recent_tokens, "recent_tokens");
}

/// Calls each of `checks` with (index, sequence), in one pass for a batch that breaks none of them. Of another, what is
/// thrown is what the first of them to break throws: they are then called one after the other, a pass each.
template <class... Check>
void check_in_order(std::span<const Sequence> sequences, const Check&... checks) {
  const auto each = [&](const auto&... some) {
    for (size_t k = 0; k < sequences.size(); ++k) (some(static_cast<int64_t>(k), sequences[k]), ...);
  };
  try {
    each(checks...);
    return;
  } catch (const PreconditionError&) {  // perhaps not the first in order
  }
  (each(checks), ...);
}

}  // namespace

void check_ratios(const Config& config) {
  const auto require = [](bool holds, const char* field, int64_t value, std::string rule) {
    if (!holds) refuse(Condition::ratio, kNoSequence, field, value, std::move(rule));
  };
  require(config.block_size >= 1, "block_size", config.block_size, "block_size >= 1");
  const auto check_list = [&](const std::vector<int64_t>& list, const char* field) {
    for (const int64_t ratio : list) {
      require(ratio >= 1, field, ratio, "every ratio >= 1");
      require(config.block_size % ratio == 0, field, ratio,
              "every ratio divides block_size = " + std::to_string(config.block_size));
    }
  };
  check_list(config.dense_ratios, "dense_ratios");
  check_list(config.sparse_ratios, "sparse_ratios");
  if (config.dense_ratios.empty() && config.sparse_ratios.empty()) {
    refuse_count(Condition::ratio, kNoSequence, "ca_ratios", 0, "ratios", "at least one ratio");
  }
  require(config.window_size >= 1, "window_size", config.window_size, "window_size >= 1");
  require(config.swa_block_size >= config.window_size, "swa_block_size", config.swa_block_size,
          "swa_block_size >= window_size = " + std::to_string(config.window_size));
  require(config.cp_size >= 1, "cp_size", config.cp_size, "cp_size >= 1");
  require(0 <= config.cp_rank && config.cp_rank < config.cp_size, "cp_rank", config.cp_rank,
          "0 <= cp_rank < cp_size = " + std::to_string(config.cp_size));
}

void check_sequences(Path path, const Config& config, const Ratios& ratios, std::span<const Sequence> sequences) {
  if (sequences.empty()) {
    refuse_count(Condition::length, kNoSequence, "sequences", 0, "sequences", "at least one sequence");
  }
  check_in_order(
      sequences, [&](int64_t index, const Sequence& sequence) { check_length(path, config, index, sequence); },
      [&](int64_t index, const Sequence& sequence) { check_table(ratios, index, sequence); },
      [](int64_t index, const Sequence& sequence) { check_state(index, sequence); },
      [&](int64_t index, const Sequence& sequence) { check_ngram(config, index, sequence); },
      [&](int64_t index, const Sequence& sequence) {
        if (index == 0) check_inputs_int32(config);
        check_inputs_int32(index, sequence);
      });
}

}  // namespace inputmeta
