#include "reference.h"

#include <algorithm>

namespace inputmeta::test {
namespace {

Wide clamp(Wide value, Wide low, Wide high) { return std::max(low, std::min(value, high)); }

Wide cdiv(Wide a, Wide b) { return (a + b - 1) / b; }

std::string key(const char* name, int64_t ratio) { return std::string(name) + "." + std::to_string(ratio); }

std::vector<int64_t> ascending(std::vector<int64_t> ratios) {
  std::sort(ratios.begin(), ratios.end());
  ratios.erase(std::unique(ratios.begin(), ratios.end()), ratios.end());
  return ratios;
}

/// Collects the cells of one step.
class Writer {
 public:
  Writer(const Config& config, const std::vector<Sequence>& sequences)
      : config_(config), sequences_(sequences), dense_(ascending(config.dense_ratios)),
        sparse_(ascending(config.sparse_ratios)),
        ca_(dense_) {
    ca_.insert(ca_.end(), sparse_.begin(), sparse_.end());
    ca_ = ascending(ca_);
  }

  Reference prompt();
  Reference decode(int64_t table_columns);

 private:
  void put(const std::string& name, Wide value) { reference_.fields[name].emplace_back(value); }
  void put_row(const std::string& name, const std::vector<Wide>& row) {
    for (const Wide value : row) put(name, value);
  }
  void bound(Wide value) { reference_.bounded.push_back(value); }

  Wide slot(const Sequence& s, Wide c, int64_t ratio) const {
    const Wide per_block = config_.block_size / ratio;
    return Wide{s.block_table[static_cast<int64_t>(c / per_block)]} * per_block + c % per_block;
  }
  Wide ring(const Sequence& s, Wide pos) const {
    return Wide{s.state_id} * config_.swa_block_size + pos % config_.swa_block_size;
  }
  int32_t ngram_source(const Sequence& s, int64_t t) const {
    if (t < 0) return static_cast<int32_t>(config_.pad_token);
    const int64_t length = s.compressed_tokens.size();
    return t < length ? s.compressed_tokens[t] : config_.lookup_table[s.recent_tokens[t - length]];
  }

  void common(bool is_prompt);
  void ngram(const Sequence& s, int64_t pos);
  void history_segments(const Sequence& s, Wide dst);
  void pivots(const Sequence& s, Wide i, Wide first_row);
  void compressed_prompt(int64_t n);
  void ranges_prompt();
  void neutral();
  void decode_row(const Sequence& s, Wide i_q, int64_t pos, Wide columns);

  const Config& config_;
  const std::vector<Sequence>& sequences_;
  std::vector<int64_t> dense_, sparse_, ca_;
  Reference reference_;
};

void Writer::ngram(const Sequence& s, int64_t pos) {
  bool cut = false;
  for (int64_t r = 0; r < config_.max_ngram_size; ++r) {
    const int32_t value = ngram_source(s, pos - r);
    cut = cut || (config_.image_sentinel && value == *config_.image_sentinel);
    put("ngram_token_ids", cut ? config_.pad_token : value);
  }
}

void Writer::common(bool is_prompt) {
  Wide total_q = 0, total_k = 0;
  put("cu_seqlens_q", 0);
  put("cu_seqlens_k", 0);
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& s = sequences_[i];
    put("cu_seqlens_q", total_q += s.seqlen_q);
    put("cu_seqlens_k", total_k += s.seqlen_k);
    for (int64_t j = 0; j < s.seqlen_q; ++j) {
      const int64_t pos = s.q_start() + j;
      put("positions", pos);
      put("input_ids", is_prompt || j == 0 ? s.token_ids[pos] : s.draft_tokens[j - 1]);
      put("gate_force_random", config_.force_load_balance);
      put("valid_token_mask", !s.is_placeholder);
      put("query_indices", s.is_placeholder ? 998244353 : Wide{static_cast<int64_t>(i)});
      ngram(s, pos);
      const bool stored = s.seqlen_q - j <= config_.swa_block_size && !s.is_placeholder;
      put("slot_mapping_store_swa", stored ? ring(s, pos) : -1);
    }
  }
  bound(total_q);
}

void Writer::history_segments(const Sequence& s, Wide dst) {
  const Wide window = config_.window_size;
  const Wide begin = s.q_start() - window;
  const Wide padding = clamp(s.swa_valid_start - begin, 0, window);
  if (padding > 0) put_row("load_segments_swa", {-1, 0, padding, dst});
  Wide end = begin + padding;  // grows over the positions that lie side by side in the ring
  for (Wide first = end; first < s.q_start(); first = end) {
    do ++end;
    while (end < s.q_start() && end % config_.swa_block_size != 0);
    const Wide slot_begin = first % config_.swa_block_size;
    put_row("load_segments_swa", {s.state_id, slot_begin, slot_begin + (end - first), dst + (first - begin)});
  }
}

void Writer::pivots(const Sequence& s, Wide i, Wide first_row) {
  const Wide window = config_.window_size, q_start = s.q_start(), n_seq = static_cast<int64_t>(sequences_.size());
  for (Wide j = 0; j < s.seqlen_q; ++j) {
    const Wide pos = q_start + j;
    const Wide lo = clamp(std::max(pos - window + 1, Wide{s.swa_valid_start}), 0, pos + 1);
    const Wide start = std::min(lo, q_start) - (q_start - window);
    const Wide k_lo = std::max(lo - q_start, Wide{0});
    const Wide p0 = i * window + start, p1 = window - start, p2 = n_seq * window + first_row + k_lo, p3 = j - k_lo + 1;
    put_row("kv_swa_full_index_pivots", {p0, p1, p2, p3});
    if (p1 > 0) bound(p0 + p1 - 1);
    if (p3 > 0) bound(p2 + p3 - 1);
  }
}

void Writer::compressed_prompt(int64_t n) {
  const Wide per_block = config_.block_size / n;
  Wide boundary = 0, base = 0;
  put(key("cu_compressed_seqlens_q", n), 0);
  for (const Sequence& s : sequences_) {
    const Wide first = s.q_start() / n, end = s.seqlen_k / n;
    put(key("cu_compressed_seqlens_q", n), boundary += std::max(Wide{1}, end - first));
    for (Wide c = first; c < std::max(end, first + 1); ++c) {
      const bool stored = c < end && !s.is_placeholder;
      put(key("positions_c", n), stored ? c * n : 0);
      put(key("slot_mapping_store_ca", n), stored ? slot(s, c, n) : -1);
    }
    if (end == 0) put_row(key("load_segments_ca", n), {-1, 0, 1, base});
    for (Wide b = 0; b * per_block < end; ++b) {
      put_row(key("load_segments_ca", n), {s.block_table[static_cast<int64_t>(b)], 0,
                                           std::min(per_block, end - b * per_block), base + b * per_block});
    }
    base += std::max(Wide{1}, end);
  }
  bound(base);  // total_k_compressed
}

void Writer::ranges_prompt() {
  const auto each_row = [&](int64_t n, auto put_range) {
    Wide base = 0;
    for (const Sequence& s : sequences_) {
      for (Wide pos = s.q_start(); pos < s.seqlen_k; ++pos) put_range(base, (pos + 1) / n);
      base += std::max(Wide{1}, Wide{s.seqlen_k} / n);
    }
  };
  for (const int64_t n : sparse_) {
    each_row(n, [&](Wide base, Wide seen) {
      put(key("ks", n), base);
      put(key("ke", n), base + seen);
    });
  }
  for (const int64_t n : dense_) {
    each_row(n, [&](Wide base, Wide seen) { put_row(key("kv_ca_index_offset_len", n), {base, seen}); });
  }
}

/// I-3, for a step without query rows.
void Writer::neutral() {
  for (const char* const name : {"positions", "input_ids", "gate_force_random", "valid_token_mask"}) put(name, 0);
  put("query_indices", 998244353);
  put("slot_mapping_store_swa", -1);
  put_row("kv_swa_full_index_pivots", {0, 0, 0, 0});
  for (int64_t r = 0; r < config_.max_ngram_size; ++r) put("ngram_token_ids", config_.pad_token);
  for (const int64_t n : sparse_) put(key("ks", n), 0), put(key("ke", n), 0);
  for (const int64_t n : dense_) put_row(key("kv_ca_index_offset_len", n), {0, 0});
}

Reference Writer::prompt() {
  common(true);
  Wide first_row = 0, i = 0, mirror_rows = 0;
  for (const Sequence& s : sequences_) {
    put("state_block_idx", s.state_id);
    history_segments(s, i * config_.window_size);
    pivots(s, i, first_row);
    first_row += s.seqlen_q;
    mirror_rows += 2 * cdiv(s.seqlen_q, 2 * Wide{config_.cp_size});
    ++i;
  }
  bound(i * config_.window_size);  // total_k_swa
  bound(mirror_rows);
  for (const int64_t n : ca_) compressed_prompt(n);
  ranges_prompt();
  if (first_row == 0) neutral();
  return reference_;
}

void Writer::decode_row(const Sequence& s, Wide i_q, int64_t pos, Wide columns) {
  put("state_block_idx", s.state_id);
  put("context_lens", pos + 1);
  const Wide len = std::min(pos + 1, config_.window_size);
  put_row("kv_swa_index_offset_len", {ring(s, pos - len + 1), len});
  for (Wide k = 0; k < len; ++k) bound(ring(s, pos - len + 1 + k));
  for (const int64_t n : ca_) {
    const bool stored = (pos + 1) % n == 0 && !s.is_placeholder;
    put(key("positions_c", n), stored ? Wide{pos / n} * n : 0);
    put(key("slot_mapping_store_ca", n), stored ? slot(s, pos / n, n) : -1);
  }
  for (const int64_t n : sparse_) put(key("klen", n), (pos + 1) / n);
  for (const int64_t n : dense_) {
    put_row(key("kv_ca_index_offset_len", n), {i_q * columns * (config_.block_size / n), (pos + 1) / n});
    for (Wide c = 0; c < (pos + 1) / n; ++c) bound(slot(s, c, n));
  }
}

Reference Writer::decode(int64_t table_columns) {
  common(false);
  const Wide m = ca_.front();
  const auto blocks = [&](const Sequence& s) { return cdiv(s.seqlen_k / m, config_.block_size / m); };
  Wide columns = std::max<Wide>(1, table_columns), i_q = 0;
  for (const Sequence& s : sequences_) columns = std::max(columns, blocks(s));
  for (const Sequence& s : sequences_) {
    for (int64_t pos = s.q_start(); pos < s.seqlen_k; ++pos, ++i_q) {
      decode_row(s, i_q, pos, columns);
      for (Wide b = 0; b < columns && columns <= kWidestTable; ++b) {
        const bool defined = b < blocks(s);
        reference_.fields["block_tables"].push_back(
            defined ? std::optional<Wide>(s.block_table[static_cast<int64_t>(b)]) : std::nullopt);
      }
    }
  }
  if (!dense_.empty()) bound(i_q * columns * (config_.block_size / dense_.front()));
  return reference_;
}

}  // namespace

bool Reference::fits() const {
  const auto cell_fits = [](const std::optional<Wide>& cell) { return !cell || fits_int32(*cell); };
  return std::ranges::all_of(bounded, fits_int32) && std::ranges::all_of(fields, [&](const auto& field) {
           return std::ranges::all_of(field.second, cell_fits);
         });
}

Reference prompt_reference(const Config& config, const std::vector<Sequence>& sequences) {
  Reference reference = Writer(config, sequences).prompt();
  add_prompt_modes(config, sequences, reference);
  return reference;
}

Reference decode_reference(const Config& config, const std::vector<Sequence>& sequences, int64_t table_columns) {
  return Writer(config, sequences).decode(table_columns);
}

}  // namespace inputmeta::test
