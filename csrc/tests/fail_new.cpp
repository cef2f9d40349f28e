// Preloaded into a process: operator new fails at a chosen allocation of the calling thread.
#include <cstdlib>
#include <new>

namespace {

thread_local size_t allocations = 0;
thread_local size_t failing = 0;  // the number of the allocation that fails; 0: none does

void* allocated(size_t size) {
  void* const memory = ++allocations == failing ? nullptr : std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

extern "C" void fail_new_at(size_t number) {
  allocations = 0;
  failing = number;
}
extern "C" size_t count_of_new() { return allocations; }

void* operator new(size_t size) { return allocated(size); }
void* operator new[](size_t size) { return allocated(size); }
