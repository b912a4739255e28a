// Reads plain JSON from its first byte to its last, in one pass and without a tree: callers say what they expect.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include "forms.hpp"
#include "json_text.hpp"

namespace copydesk {

// Every function that returns false has met something else than what it was asked for, and the body is not plain;
// only after `take` and `take_word` something else may be asked for instead.
class JsonReader {
 public:
  explicit JsonReader(Bytes body) : at_(body.data), end_(body.data + body.size) {}

  // A bracket or comma, with the white space before it.
  bool take(char mark) {
    skip_space();
    if (at_ == end_ || *at_ != mark) return false;
    ++at_;
    return true;
  }

  // One of null, true and false.
  bool take_word(std::string_view word) {
    skip_space();
    if (static_cast<std::size_t>(end_ - at_) < word.size()) return false;
    if (std::memcmp(at_, word.data(), word.size()) != 0) return false;
    at_ += word.size();
    return true;
  }

  // The name of a member, which has no escapes, with its colon.
  bool name(std::string_view& name);

  bool text(JsonText& text) { return take('"') && read_text(at_, end_, text); }

  // Whole numbers within bounds; not "-0".
  bool integer(long long low, long long high, long long& value);

  // A finite number within bounds as its nearest double; a whole number is one too. Not a negative zero.
  bool real(double low, double high, double& value);

  // Whether only white space is left.
  bool at_end() {
    skip_space();
    return at_ == end_;
  }

 private:
  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }

  const char* at_;
  const char* end_;
};

}  // namespace copydesk
