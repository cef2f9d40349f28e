#include <algorithm>

#include "reference.h"

namespace inputmeta::test {
namespace {

Wide clamp(Wide value, Wide low, Wide high) { return std::max(low, std::min(value, high)); }

Wide cdiv(Wide a, Wide b) { return (a + b - 1) / b; }

std::string key(const char* name, int64_t ratio) { return std::string(name) + "." + std::to_string(ratio); }

std::vector<int64_t> unique_ratios(std::vector<int64_t> ratios) {
  std::sort(ratios.begin(), ratios.end());
  ratios.erase(std::unique(ratios.begin(), ratios.end()), ratios.end());
  return ratios;
}

/// Sections 7 and 8, a row at a time.
class ModeWriter {
 public:
  ModeWriter(const Config& config, const std::vector<Sequence>& sequences, Reference& reference)
      : config_(config), sequences_(sequences), p_(config.cp_size), reference_(reference) {}

  void write();

 private:
  struct Place {
    Wide owner, local;
  };

  void put(const std::string& name, Wide value) { reference_.fields[name].emplace_back(value); }
  void put_row(const std::string& name, const std::vector<Wide>& row) {
    for (const Wide value : row) put(name, value);
  }

  bool compact() const { return config_.yoco_mode == YocoMode::compact; }
  Wide rect_lo(const Sequence& s) const {
    return std::max<Wide>(0, Wide{s.data_len} - config_.yoco_prefill_keep_tokens);
  }
  Wide clip(const Sequence& s) const {
    if (!compact() || s.seqlen_q == 0) return 0;
    return clamp(Wide{s.data_len} - config_.yoco_prefill_keep_tokens - s.q_start(), 0, s.seqlen_q - 1);
  }
  /// Where row j of a chunk of `length` rows lies in its owner's mirror; the chunk's part of it begins at `offset`.
  Place place(Wide j, Wide length, Wide offset) const {
    const Wide b = cdiv(length, 2 * p_), block = j / b;
    if (block < p_) return {block, offset + j % b};
    return {2 * p_ - 1 - block, offset + b + j % b};
  }

  void pivots(const char* name, Wide i, const Sequence& s, Wide first_row, Wide cut);
  void kept_row(Wide j, Wide base_row, const Sequence& s);
  void kept_ranges(const char* ks, const char* ke, Wide i, Wide row, int64_t n);
  void full_reverse();
  void consumer_mirror();
  void neutral();

  const Config& config_;
  const std::vector<Sequence>& sequences_;
  const Wide p_;
  Reference& reference_;
  std::map<Wide, std::vector<Wide>> contributed_;  ///< by rank: local rows of its full mirror that are kept
  std::map<Wide, std::pair<Wide, Wide>> found_;    ///< by global row: owner, and place among its contributions
};

void ModeWriter::pivots(const char* name, Wide i, const Sequence& s, Wide first_row, Wide cut) {
  const Wide window = config_.window_size, q_start = s.q_start(), n_seq = static_cast<int64_t>(sequences_.size());
  for (Wide j = cut; j < s.seqlen_q; ++j) {
    const Wide pos = q_start + j;
    const Wide lo = clamp(std::max({pos - window + 1, rect_lo(s), Wide{s.swa_valid_start}}), 0, pos + 1);
    const Wide k_lo = std::max(lo - q_start, Wide{0}), start = std::min(lo, q_start) - (q_start - window);
    put_row(name, {i * window + start, window - start, n_seq * window + first_row + k_lo - cut, j - k_lo + 1});
    if (j - k_lo + 1 > 0) reference_.bounded.push_back(n_seq * window + first_row + j - cut);
  }
}

void ModeWriter::kept_row(Wide j, Wide base_row, const Sequence& s) {
  const Wide pos = s.q_start() + j;
  put("yoco_consumer_query_indices", base_row + j);
  put("yoco_consumer_positions", pos);
  const bool inside = rect_lo(s) <= pos && pos < s.data_len;
  const bool stored = inside && s.seqlen_q - j <= config_.swa_block_size && !s.is_placeholder;
  put("yoco_consumer_slot_mapping_store_swa",
      stored ? Wide{s.state_id} * config_.swa_block_size + pos % config_.swa_block_size : -1);
}

/// The key range of row `row` of sequence i; -1: a padding row.
void ModeWriter::kept_ranges(const char* ks, const char* ke, Wide i, Wide row, int64_t n) {
  Wide base = 0;
  for (Wide before = 0; before < i; ++before) {
    base += std::max<Wide>(1, sequences_[static_cast<size_t>(before)].seqlen_k / n);
  }
  const Sequence& s = sequences_[static_cast<size_t>(i)];
  put(key(ks, n), row < 0 ? 0 : base);
  put(key(ke, n), row < 0 ? 0 : base + (s.q_start() + row + 1) / n);
}

void ModeWriter::full_reverse() {
  Wide mirror_len = 0, offset = 0, row = 0;
  for (const Sequence& s : sequences_) mirror_len += 2 * cdiv(s.seqlen_q, 2 * p_);
  for (const Sequence& s : sequences_) {
    for (Wide j = 0; j < s.seqlen_q; ++j, ++row) {
      const auto [owner, local] = place(j, s.seqlen_q, offset);
      reference_.bounded.push_back(owner * mirror_len + local);
      if (j < clip(s)) continue;
      std::vector<Wide>& contributions = contributed_[owner];
      found_[row] = {owner, static_cast<int64_t>(contributions.size())};
      contributions.push_back(local);
    }
    offset += 2 * cdiv(s.seqlen_q, 2 * p_);
  }
}

void ModeWriter::consumer_mirror() {
  size_t pad_len = 0;
  for (const auto& [rank, rows] : contributed_) pad_len = std::max(pad_len, rows.size());
  std::vector<Wide> own = contributed_[config_.cp_rank];
  own.resize(std::max<size_t>(1, pad_len), -1);
  put_row("yoco_cp_contrib_index", own);

  Wide mirror_len = 0, offset = 0, first_row = 0, kept_row = 0, i = 0;
  for (const Sequence& s : sequences_) mirror_len += 2 * cdiv(s.seqlen_q - clip(s), 2 * p_);
  for (const Sequence& s : sequences_) {
    const Wide cut = clip(s), kept = s.seqlen_q - cut, b = cdiv(kept, 2 * p_);
    for (Wide j = 0; j < kept; ++j) {
      const auto [owner, local] = place(j, kept, offset);
      put("yoco_consumer_mirror_cp_reverse_index", owner * mirror_len + local);
    }
    for (const Wide block : {Wide{config_.cp_rank}, 2 * p_ - 1 - config_.cp_rank}) {
      for (Wide row = block * b; row < (block + 1) * b; ++row) {
        const bool padding = row >= kept;
        put("yoco_consumer_mirror_cp_index", padding ? -1 : kept_row + row);
        const auto [owner, at] = padding ? std::pair<Wide, Wide>{0, -1} : found_.at(first_row + cut + row);
        put("yoco_cp_boundary_index", owner * static_cast<int64_t>(pad_len) + at);
        for (const int64_t n : unique_ratios(config_.sparse_ratios)) {
          kept_ranges("yoco_consumer_mirror_ks", "yoco_consumer_mirror_ke", i, padding ? -1 : cut + row, n);
        }
      }
    }
    offset += 2 * b;
    first_row += s.seqlen_q;
    kept_row += kept;
    ++i;
  }
}

/// I-3 for a step without query rows; the contributions have their row already.
void ModeWriter::neutral() {
  if (config_.yoco_mode == YocoMode::mask) put_row("yoco_mask_swa_index_pivots", {0, 0, 0, 0});
  if (!compact()) return;
  const auto sparse = unique_ratios(config_.sparse_ratios);
  put("yoco_consumer_query_indices", 998244353);
  put("yoco_consumer_positions", 0);
  put("yoco_consumer_slot_mapping_store_swa", -1);
  put_row("yoco_consumer_swa_index_pivots", {0, 0, 0, 0});
  for (const int64_t n : sparse) put(key("yoco_consumer_ks", n), 0), put(key("yoco_consumer_ke", n), 0);
  for (const int64_t n : unique_ratios(config_.dense_ratios)) {
    put_row(key("yoco_consumer_kv_ca_index_offset_len", n), {0, 0});
  }
  if (config_.cp_size == 1) return;
  for (const char* const name : {"yoco_consumer_mirror_cp_index", "yoco_consumer_mirror_cp_reverse_index",
                                 "yoco_cp_boundary_index"}) {
    put(name, -1);
  }
  for (const int64_t n : sparse) put(key("yoco_consumer_mirror_ks", n), 0), put(key("yoco_consumer_mirror_ke", n), 0);
}

void ModeWriter::write() {
  Wide i = 0, first_row = 0, kept_row_begin = 0;
  if (compact()) put("yoco_consumer_cu_seqlens_q", 0);
  for (const Sequence& s : sequences_) {
    const Wide cut = clip(s);
    if (config_.yoco_mode == YocoMode::mask) pivots("yoco_mask_swa_index_pivots", i, s, first_row, 0);
    if (compact()) {
      pivots("yoco_consumer_swa_index_pivots", i, s, kept_row_begin, cut);
      for (Wide j = cut; j < s.seqlen_q; ++j) {
        kept_row(j, first_row, s);
        for (const int64_t n : unique_ratios(config_.sparse_ratios)) {
          kept_ranges("yoco_consumer_ks", "yoco_consumer_ke", i, j, n);
        }
      }
      put("yoco_consumer_cu_seqlens_q", kept_row_begin += s.seqlen_q - cut);
      for (const int64_t n : unique_ratios(config_.dense_ratios)) {
        const auto& full = reference_.fields[key("kv_ca_index_offset_len", n)];
        const auto begin = full.begin() + static_cast<int64_t>(2 * (first_row + cut));
        auto& consumer = reference_.fields[key("yoco_consumer_kv_ca_index_offset_len", n)];
        consumer.insert(consumer.end(), begin, full.begin() + static_cast<int64_t>(2 * (first_row + s.seqlen_q)));
      }
    }
    first_row += s.seqlen_q;
    ++i;
  }
  if (config_.cp_size > 1) full_reverse();
  if (config_.cp_size > 1 && compact()) consumer_mirror();
  if (first_row == 0) neutral();
}

}  // namespace

void add_prompt_modes(const Config& config, const std::vector<Sequence>& sequences, Reference& reference) {
  ModeWriter(config, sequences, reference).write();
}

}  // namespace inputmeta::test
