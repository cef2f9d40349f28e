// The metadata of an eager decode step, by the formulas of oracle/SPEC.md: what an engine would have of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

struct Config {
    std::int64_t block_size, window_size, swa_block_size, max_model_len, max_ngram_size, pad_token, cp_size, cp_rank;
    std::vector<std::int64_t> dense_ratios, sparse_ratios, lookup_table;
    std::optional<std::int64_t> image_sentinel;
    bool force_load_balance;
};

struct Sequence {
    std::int64_t seqlen_q, seqlen_k, state_id, swa_valid_start, data_len;
    bool is_placeholder;
    std::vector<std::int64_t> block_table, token_ids, draft_tokens, compressed_tokens, recent_tokens;

    [[nodiscard]] std::int64_t query_start() const { return seqlen_k - seqlen_q; }
};

// A batch breaks a precondition; nothing has been written.
struct Refusal {
    std::string condition;
    std::optional<std::int64_t> sequence;
    std::string field, message;
};

// One tensor, cells in C order; a bool is 0 or 1. `neutral` fills the rows past total_q of a caller's larger buffer.
struct Field {
    std::string key;
    bool is_bool;
    std::vector<std::int64_t> shape;
    std::vector<std::int32_t> cells;
    bool row_a_query;
    std::int32_t neutral;
};

struct Metadata {
    std::vector<Field> fields;
    std::int64_t num_reqs, total_q, max_num_blocks;
};

// Throws Refusal. `max_num_blocks`: columns of the caller's block_tables, if there is one.
Metadata build_decode(const Config& config, const std::vector<Sequence>& sequences,
                      std::optional<std::int64_t> max_num_blocks, const std::set<std::string>& expand);

// The names that build_decode gives, without ratios.
const std::vector<std::string>& decode_fields();
