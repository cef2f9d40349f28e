// Sequences that a plan holds from the plan to the end of the fill.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bindings/metadata.h"
#include "core/batch.h"

namespace inputmeta::bindings {

/// Owns a reference to each SequenceMetadata and, once hold() is called, keeps it from being changed: what was checked
/// is what is filled. TypeError for an item that is none. Lives and dies with the GIL held.
class BorrowedSequences {
 public:
  explicit BorrowedSequences(const pybind11::sequence& sequences) : items_(sequences) {
    // One caster for all items: each new one would look the type up again.
    pybind11::detail::make_caster<BoundSequence> caster;
    lenders_.reserve(items_.size());
    views_.reserve(items_.size());
    for (const pybind11::handle item : items_) {
      const size_t ahead = lenders_.size() + kAhead;
      if (ahead < items_.size()) prefetch(PyTuple_GET_ITEM(items_.ptr(), static_cast<Py_ssize_t>(ahead)), 1);
      if (item.is_none() || !caster.load(item, false)) {
        throw pybind11::type_error("item " + std::to_string(lenders_.size()) +
                                   " of the sequences is not a SequenceMetadata");
      }
      lenders_.push_back(pybind11::detail::cast_op<BoundSequence*>(caster));
    }
    for (size_t k = 0; k < lenders_.size(); ++k) {
      if (k + kAhead < lenders_.size()) prefetch(lenders_[k + kAhead], sizeof(BoundSequence));
      views_.push_back(lenders_[k]->view());
    }
  }
  ~BorrowedSequences() {
    if (!held_) return;
    for (BoundSequence* const lender : lenders_) --lender->borrowers;
  }
  BorrowedSequences(const BorrowedSequences&) = delete;
  BorrowedSequences& operator=(const BorrowedSequences&) = delete;

  void hold() {
    for (BoundSequence* const lender : lenders_) ++lender->borrowers;
    held_ = true;
  }
  std::span<const Sequence> views() const { return views_; }

 private:
  /// A scheduler's sequences lie all over the heap, and between two steps other work pushes them out of the cache: their
  /// lines are asked for so many sequences early.
  static constexpr size_t kAhead = 4;

  static void prefetch(const void* address, size_t bytes) {
    constexpr size_t kCacheLine = 64;
    for (size_t k = 0; k < bytes; k += kCacheLine) __builtin_prefetch(static_cast<const std::byte*>(address) + k);
  }

  pybind11::tuple items_;
  std::vector<BoundSequence*> lenders_;
  std::vector<Sequence> views_;
  bool held_ = false;
};

}  // namespace inputmeta::bindings
