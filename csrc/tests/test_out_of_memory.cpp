// Every allocation of the core fails once: a plan gives std::bad_alloc and leaks nothing; a fill allocates nothing, so
// that it cannot stop half-way. An executable of its own: it replaces operator new.
#include <cstddef>
#include <cstdlib>
#include <new>
#include <span>

#include "check.h"
#include "core/fill.h"
#include "core/zos_inputs.h"
#include "step.h"

namespace {

size_t allocations = 0;
size_t failing = 0;  // the number of the allocation that fails; 0: none does

bool strikes() { return ++allocations == failing; }

void* allocated(size_t size) {
  void* const memory = strikes() ? nullptr : std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return allocated(size); }
void* operator new[](size_t size) { return allocated(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return strikes() ? nullptr : std::malloc(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return strikes() ? nullptr : std::malloc(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace inputmeta::test {
namespace {

/// Allocations of an action that are not failed.
template <class Action>
size_t allocations_of(Action action) {
  const size_t before = allocations;
  action();
  return allocations - before;
}

/// Fails each allocation of an action in turn, the rest of them succeeding: each gives bad_alloc. How many there were.
template <class Action>
size_t fail_each(Action action) {
  const size_t count = allocations_of(action);
  for (size_t number = 1; number <= count; ++number) {
    bool thrown = false;
    failing = allocations + number;
    try {
      action();
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    failing = 0;
    CHECK(thrown);
  }
  CHECK_EQ(Wide(allocations_of(action)), Wide(count));  // and afterwards all is as before
  return count;
}

std::vector<OwnedSequence> two_chunks() { return {prompt_chunk(6, 11, {1, 2}), prompt_chunk(5, 7, {3})}; }

/// Plans a step and binds outputs to it; then fills them, which must not allocate.
template <class MakePlan>
void check_step(const Config& config, const std::vector<OwnedSequence>& sequences, MakePlan make_plan) {
  const std::vector<Sequence> lent = views(sequences);
  CHECK(fail_each([&] {
          const Plan plan = make_plan(config, lent);
          Outputs outputs;
          for (const FieldSpec& spec : plan.fields(config)) {
            outputs.bind(spec, nullptr);
            (void)spec.key();
          }
          (void)plan.empty_buckets(config);
        }) > 0);
  const Plan plan = make_plan(config, lent);
  std::vector<std::vector<int32_t>> cells;
  Outputs outputs;
  for (const FieldSpec& spec : plan.fields(config)) {
    cells.emplace_back(static_cast<size_t>(spec.cells()));
    outputs.bind(spec, cells.back().data());
  }
  CHECK_EQ(Wide(allocations_of([&] { fill({config, lent, plan}, outputs); })), Wide(0));
}

Plan decode_plan(const Config& config, const std::vector<Sequence>& lent) { return plan_decode(config, lent, 5); }

Config look_back(Config config) {
  static const std::vector<int32_t> table(4096, 1);
  config.max_ngram_size = 3;
  config.lookup_table.values = table;
  return config;
}

std::vector<OwnedSequence> with_history(std::vector<OwnedSequence> sequences) {
  for (OwnedSequence& sequence : sequences) {
    sequence.recent_tokens.assign(static_cast<size_t>(sequence.scalars.seqlen_k), 1000);
  }
  return sequences;
}

TEST(a_prompt_step_without_memory) { check_step(look_back(small_config()), with_history(two_chunks()), plan_prompt); }

TEST(a_decode_step_without_memory) {
  const std::vector<OwnedSequence> rows = {decode_rows(1, 11, {1, 2}), decode_rows(0, 5, {3}, 1)};
  check_step(look_back(small_config()), with_history(rows), decode_plan);
}

TEST(a_truncated_step_without_memory) {
  for (const YocoMode mode : {YocoMode::mask, YocoMode::compact}) {
    for (const int64_t ranks : {1, 2}) {
      Config config = small_config();
      config.yoco_mode = mode;
      config.yoco_prefill_keep_tokens = 2;
      config.cp_size = ranks;
      std::vector<OwnedSequence> chunks = two_chunks();
      for (OwnedSequence& chunk : chunks) chunk.scalars.data_len = chunk.scalars.seqlen_k;
      check_step(config, chunks, plan_prompt);
    }
  }
}

TEST(a_refusal_without_memory) {
  const std::vector<OwnedSequence> broken = {prompt_chunk(6, 11, {1})};
  const std::vector<Sequence> lent = views(broken);
  CHECK(fail_each([&] {
          try {
            plan_prompt(small_config(), lent);
          } catch (const PreconditionError& error) {
            (void)PreconditionError(error);
          }
        }) > 0);
}

TEST(a_zos_step_without_memory) {
  const Config config = small_config();
  const std::vector<OwnedSequence> sequences = {decode_rows(1, 11, {1, 2}), decode_rows(0, 5, {3}, 1)};
  const std::vector<Sequence> lent = views(sequences);
  CHECK(fail_each([&] {
          const auto zos = plan_zos(config, lent);
          const ZosLayout layout(zos, config);
          const Plan outputs = plan_zos_outputs(config, zos.plan.num_reqs, zos.plan.total_q, 2);
          (void)zos_fields(outputs, config);
        }) > 0);
  const auto zos = plan_zos(config, lent);
  const ZosLayout layout(zos, config);
  std::vector<std::max_align_t> memory(layout.bytes / sizeof(std::max_align_t) + 1);
  const auto pack = std::as_writable_bytes(std::span(memory)).first(static_cast<size_t>(layout.bytes));
  CHECK_EQ(Wide(allocations_of([&] { fill_zos_inputs(config, lent, zos, layout, pack); })), Wide(0));
}

}  // namespace
}  // namespace inputmeta::test
