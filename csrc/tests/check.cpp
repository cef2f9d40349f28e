#include "check.h"

namespace inputmeta::test {
namespace {

struct Test {
  const char* name;
  void (*body)();
};

std::vector<Test>& tests() {
  static std::vector<Test> registered;
  return registered;
}

int failures = 0;

}  // namespace

Registration::Registration(const char* name, void (*body)()) { tests().push_back({name, body}); }

void report_failure(const std::string& message, std::source_location where) {
  ++failures;
  std::cerr << where.file_name() << ":" << where.line() << ": " << message << "\n";
}

}  // namespace inputmeta::test

/// Runs all tests, or those whose names hold the argument.
int main(int count, char** arguments) {
  using namespace inputmeta::test;
  const std::string part = count > 1 ? arguments[1] : "";
  size_t run = 0;
  for (const Test& test : tests()) {
    if (std::string(test.name).find(part) == std::string::npos) continue;
    ++run;
    try {
      test.body();
    } catch (const std::exception& error) {
      report_failure(std::string(test.name) + " threw: " + error.what(), std::source_location::current());
    }
  }
  std::cout << run << " tests, " << failures << " failed checks\n";
  return run == 0 || failures > 0 ? 1 : 0;
}
