// The one error of the core: a precondition of the specification that a batch breaks.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "core/arithmetic.h"

namespace inputmeta {

enum class Condition { ratio, length, table, state, ngram, int32, out };

/// "P-RATIO", "P-LEN", … as the specification writes them.
std::string_view name_of(Condition condition);

/// In place of a sequence's index: the configuration or the batch as a whole is at fault.
inline constexpr int64_t kNoSequence = -1;

/// A refused batch: which condition, in which sequence (none: the configuration or the batch as a whole), which field,
/// which value, and the rule that the value breaks. Thrown before any output cell is written.
class PreconditionError : public std::exception {
 public:
  Condition condition;
  std::optional<int64_t> sequence;
  std::string field;
  std::string value;  ///< decimal text: 128-bit values too
  std::string unit;   ///< what the value counts ("blocks"); empty when it is the field's own value
  std::string rule;

  PreconditionError(Condition condition, int64_t sequence, std::string field, std::string value,
                    std::string unit, std::string rule);

  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// Throws PreconditionError for a value of `field`.
[[noreturn]] void refuse(Condition condition, int64_t sequence, std::string field, Wide value,
                         std::string rule);

/// Throws PreconditionError for a count of `unit` in `field`.
[[noreturn]] void refuse_count(Condition condition, int64_t sequence, std::string field, Wide count,
                               std::string unit, std::string rule);

}  // namespace inputmeta
