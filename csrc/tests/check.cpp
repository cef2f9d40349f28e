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

int main() {
  using namespace inputmeta::test;
  for (const Test& test : tests()) {
    try {
      test.body();
    } catch (const std::exception& error) {
      report_failure(std::string(test.name) + " threw: " + error.what(), std::source_location::current());
    }
  }
  std::cout << tests().size() << " tests, " << failures << " failed checks\n";
  return tests().empty() || failures > 0 ? 1 : 0;
}
