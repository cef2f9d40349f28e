// An engine that captures: writes two steps and what became of them.
#include <cstdio>

#include "inputmeta_capture.h"

int main() {
  inputmeta::Config config;
  config.block_size = config.window_size = config.swa_block_size = 4;
  config.max_model_len = 64;
  config.dense_ratios = {1};
  config.max_ngram_size = 3;
  config.pad_token = -1;
  config.image_sentinel = 77;
  for (int token = 100; token < 200; ++token) config.lookup_table.push_back(token);
  inputmeta::Capture capture(config, inputmeta::Settings::from_environment());

  std::vector<int32_t> table = {7, 3}, tokens = {10, 11, 12, 10}, drafts = {20}, compressed = {50, 77, 52}, recent = {5, 9};
  inputmeta::Sequence sequence;
  sequence.seqlen_q = 2;
  sequence.seqlen_k = 5;
  sequence.block_table = table;
  sequence.state_id = 2;
  sequence.token_ids = tokens;
  sequence.draft_tokens = drafts;
  sequence.compressed_tokens = compressed;
  sequence.recent_tokens = recent;
  for (int step = 0; step < 2; ++step) {
    if (capture.wants()) capture.step("decode", {sequence}, 9);
    table[0] = 8;  // as an engine goes on: the step was copied
  }
  const inputmeta::Counts counts = capture.close();
  std::printf("%zu %zu %zu\n", counts.written, counts.dropped, counts.failed);
}
