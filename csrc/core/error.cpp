#include "core/error.h"

#include <algorithm>
#include <utility>

namespace inputmeta {

std::string to_text(Wide value) {
  const bool negative = value < 0;
  std::string digits;
  do {
    const int digit = static_cast<int>(value % 10);  // has the sign of value: no negation, which could overflow
    digits.push_back(static_cast<char>('0' + (digit < 0 ? -digit : digit)));
    value /= 10;
  } while (value != 0);
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string_view name_of(Condition condition) {
  switch (condition) {
    case Condition::ratio: return "P-RATIO";
    case Condition::length: return "P-LEN";
    case Condition::table: return "P-TABLE";
    case Condition::state: return "P-STATE";
    case Condition::ngram: return "P-NGRAM";
    case Condition::int32: return "P-INT32";
    case Condition::out: return "P-OUT";
  }
  return "P-?";
}

PreconditionError::PreconditionError(Condition condition_, int64_t sequence_, std::string field_,
                                     std::string value_, std::string unit_, std::string rule_)
    : condition(condition_),
      sequence(sequence_ == kNoSequence ? std::nullopt : std::optional(sequence_)),
      field(std::move(field_)),
      value(std::move(value_)),
      unit(std::move(unit_)),
      rule(std::move(rule_)) {
  text_ = std::string(name_of(condition)) + ": ";
  if (sequence) text_ += "sequence " + std::to_string(*sequence) + ": ";
  text_ += field + (unit.empty() ? " is " + value : " has " + value + " " + unit) + "; rule: " + rule;
}

void refuse(Condition condition, int64_t sequence, std::string field, Wide value, std::string rule) {
  refuse_count(condition, sequence, std::move(field), value, "", std::move(rule));
}

void refuse_count(Condition condition, int64_t sequence, std::string field, Wide count,
                  std::string unit, std::string rule) {
  throw PreconditionError(condition, sequence, std::move(field), to_text(count), std::move(unit), std::move(rule));
}

}  // namespace inputmeta
