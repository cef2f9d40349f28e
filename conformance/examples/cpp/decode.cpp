#include "decode.hpp"

#include <algorithm>
#include <limits>

namespace {

using Int = std::int64_t;
using Ints = std::vector<Int>;

constexpr Int int32_max = std::numeric_limits<std::int32_t>::max();
constexpr Int int32_min = std::numeric_limits<std::int32_t>::min();
constexpr Int no_slot = -1;
constexpr Int no_sequence = 998244353;

Int ceiling_division(Int a, Int b) { return (a + b - 1) / b; }
Int length(const Ints& values) { return static_cast<Int>(values.size()); }
Int& cell(Ints& values, Int index) { return values[static_cast<std::size_t>(index)]; }
Int cell(const Ints& values, Int index) { return values[static_cast<std::size_t>(index)]; }

[[noreturn]] void refuse(const char* condition, std::optional<Int> sequence, const std::string& field,
                         const std::string& rule) {
    throw Refusal{condition, sequence, field, std::string(condition) + ": " + field + "; rule: " + rule};
}

Ints sorted_union(const Ints& a, const Ints& b) {
    std::set<Int> all(a.begin(), a.end());
    all.insert(b.begin(), b.end());
    return {all.begin(), all.end()};
}

// F-BLOCKS: m is the smallest ratio of all.
Int block_count(const Config& config, Int seqlen_k, Int m) {
    return ceiling_division(seqlen_k / m, config.block_size / m);
}

// F-CSLOT.
Int slot(const Sequence& sequence, Int compressed_token, Int per_block) {
    return cell(sequence.block_table, compressed_token / per_block) * per_block + compressed_token % per_block;
}

// F-RING.
Int ring_slot(const Config& config, const Sequence& sequence, Int pos) {
    return sequence.state_id * config.swa_block_size + pos % config.swa_block_size;
}

// ---- Preconditions ----

void check_config(const Config& config) {
    if (config.block_size < 1) refuse("P-RATIO", {}, "block_size", "block_size >= 1");
    for (const auto& [name, ratios] : {std::pair{"dense_ratios", &config.dense_ratios},
                                       std::pair{"sparse_ratios", &config.sparse_ratios}})
        for (const Int ratio : *ratios)
            if (ratio < 1 || config.block_size % ratio != 0) refuse("P-RATIO", {}, name, "divides block_size");
    if (config.dense_ratios.empty() && config.sparse_ratios.empty())
        refuse("P-RATIO", {}, "sparse_ratios", "at least one ratio");
    if (config.window_size < 1) refuse("P-RATIO", {}, "window_size", "W >= 1");
    if (config.swa_block_size < config.window_size) refuse("P-RATIO", {}, "swa_block_size", "B >= W");
    if (config.cp_size < 1) refuse("P-RATIO", {}, "cp_size", "p >= 1");
    if (config.cp_rank < 0 || config.cp_rank >= config.cp_size) refuse("P-RATIO", {}, "cp_rank", "0 <= rank < p");
}

void check_sequence(const Config& config, const Sequence& s, Int index, Int smallest_ratio) {
    if (s.seqlen_q < 0 || s.seqlen_q > s.seqlen_k) refuse("P-LEN", index, "seqlen_q", "0 <= seqlen_q <= seqlen_k");
    if (s.seqlen_k > config.max_model_len) refuse("P-LEN", index, "seqlen_k", "seqlen_k <= max_model_len");
    if (s.seqlen_q != 1 + length(s.draft_tokens)) refuse("P-LEN", index, "seqlen_q", "1 + len(draft_tokens)");
    if (s.seqlen_k != length(s.token_ids) - 1 + s.seqlen_q)
        refuse("P-LEN", index, "seqlen_k", "len(token_ids) - 1 + seqlen_q");
    if (length(s.block_table) < block_count(config, s.seqlen_k, smallest_ratio))
        refuse("P-TABLE", index, "block_table", "covers cdiv(seqlen_k // m, block_size // m) blocks");
    for (const Int block : s.block_table)
        if (block < 0) refuse("P-TABLE", index, "block_table", "entries >= 0");
    if (s.state_id < 0) refuse("P-STATE", index, "state_id", "state_id >= 0");
    if (s.swa_valid_start < 0) refuse("P-STATE", index, "swa_valid_start", "swa_valid_start >= 0");
    if (s.data_len < 0) refuse("P-STATE", index, "data_len", "data_len >= 0");
    if (config.max_ngram_size <= 0) return;
    if (length(s.compressed_tokens) + length(s.recent_tokens) < s.seqlen_k)
        refuse("P-NGRAM", index, "recent_tokens", "the look-back is known up to seqlen_k");
    for (const Int token : s.recent_tokens)
        if (token < 0 || token >= length(config.lookup_table))
            refuse("P-NGRAM", index, "recent_tokens", "0 <= recent token < len(lookup_table)");
}

bool outside_int32(Int value) { return value < int32_min || value > int32_max; }
bool outside_int32(const Ints& values) {
    return std::any_of(values.begin(), values.end(), [](Int value) { return outside_int32(value); });
}

// P-INT32 on what comes in (I-10).
void check_inputs(const Config& config, const std::vector<Sequence>& sequences) {
    if (outside_int32(config.lookup_table)) refuse("P-INT32", {}, "lookup_table", "fits in int32");
    if (outside_int32(config.pad_token)) refuse("P-INT32", {}, "pad_token", "fits in int32");
    if (config.image_sentinel && outside_int32(*config.image_sentinel))
        refuse("P-INT32", {}, "image_sentinel", "fits in int32");
    for (Int i = 0; const Sequence& s : sequences) {
        for (const auto& [name, values] : {std::pair{"block_table", &s.block_table}, {"token_ids", &s.token_ids},
                                           {"draft_tokens", &s.draft_tokens},
                                           {"compressed_tokens", &s.compressed_tokens},
                                           {"recent_tokens", &s.recent_tokens}})
            if (outside_int32(*values)) refuse("P-INT32", i, name, "fits in int32");
        ++i;
    }
}

// F-LIMIT: what the step writes, its expansions included, whether or not they are asked for.
void check_limits(const Config& config, const std::vector<Sequence>& sequences, Int width) {
    const Ints dense = sorted_union(config.dense_ratios, {});
    const Ints ratios = sorted_union(config.dense_ratios, config.sparse_ratios);
    Int total_q = 0, total_k = 0;
    for (Int i = 0; const Sequence& s : sequences) {
        total_q += s.seqlen_q;
        total_k += s.seqlen_k;
        if (s.state_id > int32_max) refuse("P-INT32", i, "state_block_idx", "fits in int32");
        for (Int pos = std::max(Int{0}, s.query_start() - config.window_size + 1); pos < s.seqlen_k; ++pos)
            if (ring_slot(config, s, pos) > int32_max) refuse("P-INT32", i, "kv_swa_index", "fits in int32");
        for (const Int ratio : ratios) {
            const bool read = std::binary_search(dense.begin(), dense.end(), ratio);
            if (s.is_placeholder && !read) continue;
            const Int per_block = config.block_size / ratio;
            for (Int c = read ? 0 : s.query_start() / ratio; c < s.seqlen_k / ratio; ++c)
                if (slot(s, c, per_block) > int32_max)
                    refuse("P-INT32", i, (read ? "kv_ca_index." : "slot_mapping_store_ca.") + std::to_string(ratio),
                           "fits in int32");
        }
        ++i;
    }
    if (total_q > int32_max || total_k > int32_max) refuse("P-INT32", {}, "cu_seqlens_k", "fits in int32");
    if (width > int32_max) refuse("P-INT32", {}, "max_num_blocks", "fits in int32");
    if (!dense.empty() && total_q * width > int32_max / (config.block_size / dense.front()))
        refuse("P-INT32", {}, "kv_ca_index_offset_len", "fits in int32");
}

// ---- Formulas ----

// F-NGRAM, one row.
Ints ngram_row(const Config& config, const Sequence& s, Int pos) {
    Ints row(static_cast<std::size_t>(config.max_ngram_size), config.pad_token);
    const Int history = length(s.compressed_tokens);
    for (Int back = 0; back < config.max_ngram_size; ++back) {
        const Int at = pos - back;
        const Int value = at < 0          ? config.pad_token
                          : at < history ? cell(s.compressed_tokens, at)
                                         : cell(config.lookup_table, cell(s.recent_tokens, at - history));
        if (config.image_sentinel && value == *config.image_sentinel) break;
        cell(row, back) = value;
    }
    return row;
}

// Collects the columns of a batch. A field is made at its first cell.
class Sheet {
  public:
    std::vector<Field> fields;

    void put(const std::string& key, const Ints& cells, Int neutral, bool is_bool = false) {
        Field& field = named(key, neutral, is_bool, true);
        if (cells.size() > 1 || is_matrix(key)) {
            field.shape.resize(2);
            field.shape[1] = length(cells);
        }
        field.shape[0] += 1;
        for (const Int value : cells) field.cells.push_back(static_cast<std::int32_t>(value));
    }

    void boundary(const std::string& key, const Ints& cells) {
        Field& field = named(key, 0, false, false);
        field.shape = {length(cells)};
        for (const Int value : cells) field.cells.push_back(static_cast<std::int32_t>(value));
    }

  private:
    // Fields of two dimensions, however narrow the second is.
    static bool is_matrix(const std::string& key) {
        const std::string name = key.substr(0, key.find('.'));
        return name == "block_tables" || name == "ngram_token_ids" || name == "kv_swa_index" || name == "kv_ca_index";
    }

    Field& named(const std::string& key, Int neutral, bool is_bool, bool row_a_query) {
        for (Field& field : fields)
            if (field.key == key) return field;
        fields.push_back({key, is_bool, {0}, {}, row_a_query, static_cast<std::int32_t>(neutral)});
        return fields.back();
    }
};

void add_row(Sheet& sheet, const Config& config, const Sequence& s, Int index, Int offset) {
    const Int pos = s.query_start() + offset;
    const Int token = offset == 0 ? cell(s.token_ids, s.query_start()) : cell(s.draft_tokens, offset - 1);
    const Int window = std::min(pos + 1, config.window_size);
    const bool stores = !s.is_placeholder && s.seqlen_q - offset <= config.swa_block_size;
    sheet.put("positions", {pos}, 0);
    sheet.put("input_ids", {token}, 0);
    sheet.put("gate_force_random", {config.force_load_balance}, 0, true);
    sheet.put("valid_token_mask", {!s.is_placeholder}, 0, true);
    sheet.put("query_indices", {s.is_placeholder ? no_sequence : index}, no_sequence);
    if (config.max_ngram_size > 0) sheet.put("ngram_token_ids", ngram_row(config, s, pos), config.pad_token);
    sheet.put("slot_mapping_store_swa", {stores ? ring_slot(config, s, pos) : no_slot}, no_slot);
    sheet.put("state_block_idx", {s.state_id}, 0);
    sheet.put("context_lens", {pos + 1}, 0);
    sheet.put("kv_swa_index_offset_len", {ring_slot(config, s, pos - window + 1), window}, 0);
}

void add_compressed(Sheet& sheet, const Config& config, const Sequence& s, Int pos, Int ratio) {
    const bool completes = (pos + 1) % ratio == 0 && !s.is_placeholder;
    const Int token = pos / ratio;
    const std::string bucket = "." + std::to_string(ratio);
    sheet.put("positions_c" + bucket, {completes ? token * ratio : 0}, 0);
    sheet.put("slot_mapping_store_ca" + bucket, {completes ? slot(s, token, config.block_size / ratio) : no_slot},
              no_slot);
}

void add_dense(Sheet& sheet, const Config& config, const Sequence& s, Int pos, Int row, Int width, Int ratio,
               bool expanded) {
    const Int per_block = config.block_size / ratio;
    const Int visible = (pos + 1) / ratio;
    const std::string bucket = "." + std::to_string(ratio);
    sheet.put("kv_ca_index_offset_len" + bucket, {row * width * per_block, visible}, 0);
    if (!expanded) return;
    const Int columns = std::max(Int{128}, ceiling_division(config.max_model_len / ratio, 128) * 128);
    Ints keys(static_cast<std::size_t>(columns), -1);
    for (Int k = 0; k < visible; ++k) cell(keys, k) = slot(s, k, per_block);
    sheet.put("kv_ca_index" + bucket, keys, -1);
    sheet.put("kv_ca_index_len" + bucket, {visible}, 0);
}

}  // namespace

Metadata build_decode(const Config& config, const std::vector<Sequence>& sequences, std::optional<Int> max_num_blocks,
                      const std::set<std::string>& expand) {
    check_config(config);
    if (sequences.empty()) refuse("P-LEN", {}, "sequences", "at least one sequence");
    const Ints ratios = sorted_union(config.dense_ratios, config.sparse_ratios);
    Int needed = 1;
    for (Int i = 0; const Sequence& s : sequences) {
        check_sequence(config, s, i++, ratios.front());
        needed = std::max(needed, block_count(config, s.seqlen_k, ratios.front()));
    }
    check_inputs(config, sequences);
    if (max_num_blocks && *max_num_blocks < needed) refuse("P-OUT", {}, "block_tables", "wide enough");
    const Int width = max_num_blocks.value_or(needed);
    check_limits(config, sequences, width);

    Sheet sheet;
    Ints cu_q{0}, cu_k{0};
    for (Int i = 0; const Sequence& s : sequences) {
        Ints table(static_cast<std::size_t>(width), 0);
        const Int blocks = block_count(config, s.seqlen_k, ratios.front());
        std::copy_n(s.block_table.begin(), blocks, table.begin());
        for (Int offset = 0; offset < s.seqlen_q; ++offset) {
            const Int pos = s.query_start() + offset;
            add_row(sheet, config, s, i, offset);
            sheet.put("block_tables", table, 0);
            for (const Int ratio : ratios) add_compressed(sheet, config, s, pos, ratio);
            for (const Int ratio : std::set<Int>(config.sparse_ratios.begin(), config.sparse_ratios.end()))
                sheet.put("klen." + std::to_string(ratio), {(pos + 1) / ratio}, 0);
            for (const Int ratio : std::set<Int>(config.dense_ratios.begin(), config.dense_ratios.end()))
                add_dense(sheet, config, s, pos, cu_q.back() + offset, width, ratio, expand.contains("kv_ca_index"));
            if (expand.contains("kv_swa_index")) {
                const Int visible = std::min(pos + 1, config.window_size);
                Ints keys(static_cast<std::size_t>(config.window_size), -1);
                for (Int k = 0; k < visible; ++k) cell(keys, k) = ring_slot(config, s, pos - visible + 1 + k);
                sheet.put("kv_swa_index", keys, -1);
            }
        }
        cu_q.push_back(cu_q.back() + s.seqlen_q);
        cu_k.push_back(cu_k.back() + s.seqlen_k);
        ++i;
    }
    sheet.boundary("cu_seqlens_q", cu_q);
    sheet.boundary("cu_seqlens_k", cu_k);
    return {std::move(sheet.fields), static_cast<Int>(sequences.size()), cu_q.back(), width};
}

const std::vector<std::string>& decode_fields() {
    static const std::vector<std::string> names{
        "num_reqs", "total_q", "is_prompt", "max_num_blocks", "positions", "input_ids", "gate_force_random",
        "valid_token_mask", "query_indices", "ngram_token_ids", "cu_seqlens_q", "cu_seqlens_k", "positions_c",
        "slot_mapping_store_ca", "block_tables", "klen", "kv_ca_index_offset_len", "kv_ca_index", "kv_ca_index_len",
        "context_lens", "slot_mapping_store_swa", "state_block_idx", "kv_swa_index_offset_len", "kv_swa_index",
    };
    return names;
}
