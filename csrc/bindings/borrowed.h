// Sequences that a plan holds from the plan to the end of the fill.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bindings/metadata.h"
#include "core/batch.h"

namespace inputmeta::bindings {

/// Owns a share of each SequenceMetadata and, once hold() is called, keeps it from being changed: what was checked is
/// what is filled. TypeError for an item that is none.
class BorrowedSequences {
 public:
  explicit BorrowedSequences(const pybind11::sequence& sequences) {
    // One caster for all items: each new one would look the type up again.
    pybind11::detail::make_caster<std::shared_ptr<BoundSequence>> caster;
    owners_.reserve(sequences.size());
    for (const pybind11::handle item : sequences) {
      if (item.is_none() || !caster.load(item, false)) {
        throw pybind11::type_error("item " + std::to_string(owners_.size()) +
                                   " of the sequences is not a SequenceMetadata");
      }
      owners_.push_back(pybind11::detail::cast_op<std::shared_ptr<BoundSequence>>(caster));
    }
    views_.reserve(owners_.size());
    for (const auto& owner : owners_) views_.push_back(owner->view());
  }
  ~BorrowedSequences() {
    if (!held_) return;
    for (const auto& owner : owners_) --owner->borrowers;
  }
  BorrowedSequences(const BorrowedSequences&) = delete;
  BorrowedSequences& operator=(const BorrowedSequences&) = delete;

  void hold() {
    for (const auto& owner : owners_) ++owner->borrowers;
    held_ = true;
  }
  std::span<const Sequence> views() const { return views_; }

 private:
  std::vector<std::shared_ptr<BoundSequence>> owners_;
  std::vector<Sequence> views_;
  bool held_ = false;
};

}  // namespace inputmeta::bindings
