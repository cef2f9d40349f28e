// Live batches of an engine as case files of inputmeta. C++17, this header alone.
//
//   inputmeta::Capture capture(config, inputmeta::Settings::from_environment());
//   ...
//   if (capture.wants()) capture.step("decode", sequences);
//
// Off unless INPUTMETA_CAPTURE names a folder; then one step in INPUTMETA_CAPTURE_EVERY (1000) is written, at most
// INPUTMETA_CAPTURE_MOST (100) of a process, none with more than INPUTMETA_CAPTURE_ENTRIES (1048576) array entries,
// INPUTMETA_CAPTURE_STEPS (1) in a row a case, tokens as INPUTMETA_CAPTURE_TOKENS (hash, or keep) says. Names and units
// are those of SPEC.md, chapter 1. wants() and step() are for one thread at a time, and throw nothing; what they do not
// write is counted. Arrays are copied in step(); hashing and writing have a thread of their own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace inputmeta {

/// An int32 array of the engine: borrowed until step() returns.
struct Array {
  const int32_t* data = nullptr;
  size_t size = 0;

  Array() = default;
  Array(const int32_t* first, size_t count) : data(first), size(count) {}
  Array(const std::vector<int32_t>& values) : data(values.data()), size(values.size()) {}
};

/// MetadataConfig. Lengths in tokens. `lookup_table` is copied when Capture is made.
struct Config {
  int32_t block_size = 0, window_size = 0, swa_block_size = 0, max_model_len = 0;
  std::vector<int32_t> dense_ratios, sparse_ratios;
  int32_t max_ngram_size = 0;
  int64_t pad_token = 0;
  std::optional<int64_t> image_sentinel;
  std::vector<int32_t> lookup_table;
  int32_t cp_size = 1, cp_rank = 0, yoco_prefill_keep_tokens = 0;
  std::string yoco_mode = "off";  ///< off, mask or compact
  bool force_load_balance = false;
};

/// SequenceMetadata: one sequence of one step.
struct Sequence {
  int64_t seqlen_q = 0, seqlen_k = 0;
  Array block_table;
  int64_t state_id = 0;
  bool is_placeholder = false;
  int64_t swa_valid_start = 0;
  Array token_ids, draft_tokens, compressed_tokens, recent_tokens;
  int64_t data_len = 0;
};

/// What is captured, and what it may cost.
struct Settings {
  std::string folder;  ///< empty: nothing is captured
  size_t every = 1000, steps = 1, most = 100, most_entries = size_t{1} << 20;
  bool hash_tokens = true;

  /// As INPUTMETA_CAPTURE... say; off, with a line to stderr, where one of them means nothing.
  static Settings from_environment() {
    Settings settings;
    const char* folder = std::getenv("INPUTMETA_CAPTURE");
    if (folder == nullptr || *folder == '\0') return settings;
    const char* tokens = std::getenv("INPUTMETA_CAPTURE_TOKENS");
    const std::string_view how = tokens == nullptr ? "hash" : tokens;
    bool is_good = how == "hash" || how == "keep";
    if (!is_good) std::fprintf(stderr, "inputmeta: INPUTMETA_CAPTURE_TOKENS=%s: is none of keep, hash\n", tokens);
    is_good = count("INPUTMETA_CAPTURE_EVERY", settings.every) && is_good;
    is_good = count("INPUTMETA_CAPTURE_STEPS", settings.steps) && is_good;
    is_good = count("INPUTMETA_CAPTURE_MOST", settings.most) && is_good;
    is_good = count("INPUTMETA_CAPTURE_ENTRIES", settings.most_entries) && is_good;
    settings.hash_tokens = how == "hash";
    if (is_good) settings.folder = folder;
    return settings;
  }

 private:
  static bool count(const char* variable, size_t& value) {
    const char* text = std::getenv(variable);
    if (text == nullptr) return true;
    char* end = nullptr;
    const bool starts_with_digit = *text >= '0' && *text <= '9';
    const unsigned long long number = starts_with_digit ? std::strtoull(text, &end, 10) : 0;
    if (number < 1 || number >= (1ULL << 31) || *end != '\0') {
      std::fprintf(stderr, "inputmeta: %s=%s: is no number of 1 or more\n", variable, text);
      return false;
    }
    value = number;
    return true;
  }
};

/// What became of the steps that were chosen.
struct Counts {
  size_t written = 0;
  size_t dropped = 0;  ///< too large, or chosen while others were still being written
  size_t failed = 0;   ///< the file could not be written
};

namespace capture_detail {

/// SipHash-2-4 of one token, to 31 bits. Without the key, which is written nowhere, none can be tried out.
class Hash {
 public:
  Hash() {
    std::random_device random;
    for (uint64_t& half : key_) half = (uint64_t{random()} << 32) | random();
  }

  int64_t operator()(int64_t token) const {
    uint64_t v0 = 0x736f6d6570736575ULL ^ key_[0], v1 = 0x646f72616e646f6dULL ^ key_[1];
    uint64_t v2 = 0x6c7967656e657261ULL ^ key_[0], v3 = 0x7465646279746573ULL ^ key_[1];
    const auto round = [&] {
      v0 += v1, v1 = rotated(v1, 13) ^ v0, v0 = rotated(v0, 32);
      v2 += v3, v3 = rotated(v3, 16) ^ v2;
      v0 += v3, v3 = rotated(v3, 21) ^ v0;
      v2 += v1, v1 = rotated(v1, 17) ^ v2, v2 = rotated(v2, 32);
    };
    for (const uint64_t word : {static_cast<uint64_t>(token), uint64_t{8} << 56}) {
      v3 ^= word, round(), round(), v0 ^= word;
    }
    v2 ^= 0xff;
    for (int i = 0; i < 4; ++i) round();
    return static_cast<int64_t>((v0 ^ v1 ^ v2 ^ v3) & 0x7fffffffU);
  }

 private:
  static uint64_t rotated(uint64_t value, int bits) { return (value << bits) | (value >> (64 - bits)); }
  uint64_t key_[2];
};

using Values = std::vector<int64_t>;

inline Values copied(const Array& array) { return Values(array.data, array.data + array.size); }

/// A sequence that owns its arrays.
struct Owned {
  Sequence scalars;
  Values block_table, token_ids, draft_tokens, compressed_tokens, recent_tokens;

  explicit Owned(const Sequence& from)
      : scalars(from), block_table(copied(from.block_table)), token_ids(copied(from.token_ids)),
        draft_tokens(copied(from.draft_tokens)), compressed_tokens(copied(from.compressed_tokens)),
        recent_tokens(copied(from.recent_tokens)) {}
};

struct Case {
  std::string path;
  int32_t max_num_blocks;
  std::vector<std::vector<Owned>> steps;
};

/// Writes JSON values one behind the other; an object's members begin with their name.
class Json {
 public:
  std::string text;

  void name(std::string_view value) { separate(), quoted(value), text += ": ", fresh_ = true; }
  void open(char bracket) { separate(), text += bracket, fresh_ = true; }
  void close(char bracket) { text += bracket, fresh_ = false; }
  void number(int64_t value) { separate(), text += std::to_string(value); }
  void flag(bool value) { separate(), text += value ? "true" : "false"; }
  void string(std::string_view value) { separate(), quoted(value); }
  template <class Items>
  void array(std::string_view its_name, const Items& items) {
    if (items.empty()) return;
    name(its_name), open('[');
    for (const auto item : items) number(item);
    close(']');
  }

 private:
  void separate() {
    if (!fresh_) text += ", ";
    fresh_ = false;
  }
  void quoted(std::string_view value) {  // of names and modes: nothing in them is to be escaped
    text += '"';
    for (const char c : value) {
      if (c != '"' && c != '\\' && c >= ' ') text += c;
    }
    text += '"';
  }
  bool fresh_ = true;
};

}  // namespace capture_detail

/// Writes some of an engine's steps as case files.
class Capture {
 public:
  Capture(Config config, Settings settings) : config_(std::move(config)), settings_(std::move(settings)) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { close(); }

  /// Whether the step that comes is to be handed over; counts it.
  bool wants() {
    if (settings_.folder.empty()) return false;
    const size_t place = seen_++;
    if (chosen_ >= settings_.most) return false;
    return !collected_.steps.empty() || place % settings_.every == 0;
  }

  /// Copies a step, and hands the case to the writer once it has all its steps. `path`: prompt, decode or decode_zos;
  /// `max_num_blocks`: columns of the engine's block_tables, 0 where they are as wide as the step needs.
  void step(std::string_view path, const std::vector<Sequence>& sequences, int32_t max_num_blocks = 0) noexcept try {
    if (settings_.folder.empty()) return;
    size_t entries = 0;
    for (const Sequence& one : sequences) {
      entries += one.block_table.size + one.token_ids.size + one.draft_tokens.size;
      entries += one.compressed_tokens.size + one.recent_tokens.size;
    }
    if (entries > settings_.most_entries) {
      collected_.steps.clear();
      drop();
      return;
    }
    // A case's steps have one path and one width of tables.
    if (!collected_.steps.empty() && (collected_.path != path || collected_.max_num_blocks != max_num_blocks)) {
      hand_over();
    }
    collected_.path = path;
    collected_.max_num_blocks = max_num_blocks;
    collected_.steps.emplace_back(sequences.begin(), sequences.end());
    if (collected_.steps.size() == settings_.steps) hand_over();
  } catch (...) {
    collected_.steps.clear();
    ++chosen_;
    const std::lock_guard lock(mutex_);
    ++counts_.failed;
  }

  /// Writes what was collected, and waits for it; returns the counts.
  Counts close() noexcept {
    try {
      if (!collected_.steps.empty()) hand_over();
    } catch (...) {  // no thread, no memory: what was collected is lost
    }
    if (writer_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        ends_ = true;
      }
      changed_.notify_one();
      writer_.join();
      ends_ = false;
    }
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  using Case = capture_detail::Case;
  using Json = capture_detail::Json;
  using Owned = capture_detail::Owned;
  using Values = capture_detail::Values;
  static constexpr size_t kWaiting = 2;  // cases that may wait to be written: the engine never waits

  void drop() {
    ++chosen_;
    const std::lock_guard lock(mutex_);
    ++counts_.dropped;
  }

  void hand_over() {
    Case complete = std::move(collected_);
    collected_ = {};
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.size() >= kWaiting) {
        ++counts_.dropped;
        ++chosen_;
        return;
      }
      waiting_.push_back(std::move(complete));
    }
    ++chosen_;
    changed_.notify_one();
    if (!writer_.joinable()) writer_ = std::thread([this] { write_all(); });
  }

  void write_all() {
    std::unique_lock lock(mutex_);
    for (size_t number = 0;;) {
      changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      Case next = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      bool is_written = false;
      try {
        is_written = write(next, number++);
      } catch (...) {  // no memory: counted as any other
      }
      lock.lock();
      ++(is_written ? counts_.written : counts_.failed);
    }
  }

  bool write(Case& next, size_t number) {
    std::vector<int32_t> table = config_.lookup_table;
    if (settings_.hash_tokens) table = hash_tokens(next);
    Json json;
    write_case(json, next, table);
    json.text += '\n';
    std::filesystem::create_directories(settings_.folder);
    // Of this process and this object alone; a reader sees the whole file or none.
    const auto file = std::filesystem::path(settings_.folder) /
                      ("capture-" + std::to_string(hash_(static_cast<int64_t>(number))) + "-" + std::to_string(number) + ".json");
    const auto part = std::filesystem::path(file).concat(".tmp");
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    out << json.text;
    out.close();
    std::error_code error;
    if (!out.fail()) std::filesystem::rename(part, file, error);
    return !out.fail() && !error;
  }

  /// Hashes for the tokens of a case; returns the lookup table that is left: of the raw tokens that are looked up.
  std::vector<int32_t> hash_tokens(Case& next) const {
    const auto compressed = [this](int64_t token) {
      const bool is_constant = token == config_.pad_token || (config_.image_sentinel && token == *config_.image_sentinel);
      return is_constant ? token : hash_(token);
    };
    std::vector<int32_t> table;
    std::unordered_map<int64_t, int64_t> places;
    for (auto& step : next.steps) {
      for (Owned& one : step) {
        for (int64_t& token : one.token_ids) token = hash_(token);
        for (int64_t& token : one.draft_tokens) token = hash_(token);
        for (int64_t& token : one.compressed_tokens) token = compressed(token);
        for (int64_t& token : one.recent_tokens) {
          // A token beyond the table breaks P-NGRAM: it keeps doing so.
          if (token < 0 || token >= static_cast<int64_t>(config_.lookup_table.size())) continue;
          const auto [place, is_new] = places.try_emplace(token, static_cast<int64_t>(table.size()));
          if (is_new) table.push_back(static_cast<int32_t>(compressed(config_.lookup_table[static_cast<size_t>(token)])));
          token = place->second;
        }
      }
    }
    return table;
  }

  void write_case(Json& json, const Case& next, const std::vector<int32_t>& table) const {
    json.open('{');
    json.name("schema"), json.string("inputmeta-case/1");
    json.name("title"), json.string("captured from a running engine");
    json.name("path"), json.string(next.path);
    json.name("config");
    write_config(json, table);
    json.name("steps"), json.open('[');
    for (const auto& step : next.steps) {
      json.open('[');
      for (const Owned& one : step) write_sequence(json, one);
      json.close(']');
    }
    json.close(']');
    if (next.max_num_blocks > 0) json.name("max_num_blocks"), json.number(next.max_num_blocks);
    json.name("origin"), json.open('{'), json.name("found_by"), json.string("capture"), json.close('}');
    json.close('}');
  }

  void write_config(Json& json, const std::vector<int32_t>& table) const {
    json.open('{');
    json.name("block_size"), json.number(config_.block_size);
    json.array("dense_ratios", config_.dense_ratios);
    json.array("sparse_ratios", config_.sparse_ratios);
    json.name("window_size"), json.number(config_.window_size);
    json.name("swa_block_size"), json.number(config_.swa_block_size);
    json.name("max_model_len"), json.number(config_.max_model_len);
    json.name("max_ngram_size"), json.number(config_.max_ngram_size);
    json.name("pad_token"), json.number(config_.pad_token);
    if (config_.image_sentinel) json.name("image_sentinel"), json.number(*config_.image_sentinel);
    json.array("lookup_table", table);
    json.name("cp_size"), json.number(config_.cp_size);
    json.name("cp_rank"), json.number(config_.cp_rank);
    json.name("yoco_prefill_keep_tokens"), json.number(config_.yoco_prefill_keep_tokens);
    json.name("yoco_mode"), json.string(config_.yoco_mode);
    json.name("force_load_balance"), json.flag(config_.force_load_balance);
    json.close('}');
  }

  static void write_sequence(Json& json, const Owned& one) {
    json.open('{');
    json.name("seqlen_q"), json.number(one.scalars.seqlen_q);
    json.name("seqlen_k"), json.number(one.scalars.seqlen_k);
    json.array("block_table", one.block_table);
    json.name("state_id"), json.number(one.scalars.state_id);
    json.name("is_placeholder"), json.flag(one.scalars.is_placeholder);
    json.name("swa_valid_start"), json.number(one.scalars.swa_valid_start);
    json.array("token_ids", one.token_ids);
    json.array("draft_tokens", one.draft_tokens);
    json.array("compressed_tokens", one.compressed_tokens);
    json.array("recent_tokens", one.recent_tokens);
    json.name("data_len"), json.number(one.scalars.data_len);
    json.close('}');
  }

  const Config config_;
  const Settings settings_;
  const capture_detail::Hash hash_;
  size_t seen_ = 0, chosen_ = 0;
  Case collected_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Case> waiting_;
  bool ends_ = false;
  Counts counts_;
  std::thread writer_;
};

}  // namespace inputmeta
