// A test framework of one page: TEST registers, CHECK and CHECK_EQ count and print failures, main runs the tests.
#pragma once

#include <concepts>
#include <iostream>
#include <source_location>
#include <string>
#include <vector>

#include "core/arithmetic.h"
#include "core/error.h"

namespace inputmeta::test {

struct Registration {
  Registration(const char* name, void (*body)());
};

/// Prints "file:line: message" and counts one failure.
void report_failure(const std::string& message, std::source_location where);

inline std::string show(Wide value) { return to_text(value); }
inline std::string show(const std::string& text) { return '"' + text + '"'; }
inline std::string show(const char* text) { return show(std::string(text)); }

template <class Item>
std::string show(const std::vector<Item>& items) {
  std::string text = "{";
  for (const auto& item : items) text += (text.size() > 1 ? ", " : "") + show(Item(item));
  return text + "}";
}

template <class Actual, class Expected>
void check_equal(const Actual& actual, const Expected& expected, const char* expression,
                 std::source_location where = std::source_location::current()) {
  if (actual == expected) return;
  report_failure(std::string(expression) + " is " + show(actual) + ", expected " + show(expected), where);
}

/// Runs `action`, which must refuse a batch; returns the refusal for its members to be checked.
template <class Action>
PreconditionError refusal(Action action, std::source_location where = std::source_location::current()) {
  try {
    action();
  } catch (const PreconditionError& error) {
    return error;
  }
  report_failure("a refusal was expected", where);
  return {Condition::out, kNoSequence, "", "", "", ""};
}

}  // namespace inputmeta::test

#define TEST(name)                                                                \
  static void name();                                                             \
  static const inputmeta::test::Registration registration_of_##name(#name, name); \
  static void name()

#define CHECK(condition)                                                                          \
  do {                                                                                            \
    if (!(condition)) inputmeta::test::report_failure(#condition, std::source_location::current()); \
  } while (false)

#define CHECK_EQ(actual, ...) inputmeta::test::check_equal(actual, __VA_ARGS__, #actual)
