// What stands between the quotes of JSON strings: runs without escapes, told from the rest many bytes at a time.
#pragma once

#include <cstddef>
#include <string>

#include "forms.hpp"

namespace copydesk {

// The text of a JSON string that is well-formed: `raw` bytes between its quotes, `size` without escapes. Every
// escape is longer than what it stands for.
struct JsonText {
  const char* data = nullptr;
  std::size_t raw = 0;
  std::size_t size = 0;

  bool escaped() const { return raw != size; }
};

// The first byte from `at` that a JSON string must escape or end at, or that is not UTF-8; `end` without one.
const char* plain_run(const char* at, const char* end);

// Reads a string from behind its opening quote; `at` is then behind the closing one. False for what is malformed,
// and for two escapes that are not plain: lone surrogates, and NUL.
bool read_text(const char*& at, const char* end, JsonText& text);

// The text without escapes, of which exactly `size` bytes are appended.
void append_text(const JsonText& text, std::string& out);

// What append_json_string puts between the quotes; false for what is not UTF-8, with a part of it appended.
bool append_escaped(Bytes text, std::string& out);

}  // namespace copydesk
