// The edits that turn one ASCII text into another: copydesk.text.diff, for texts of printable ASCII.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forms.hpp"

namespace copydesk {

// Replace the characters `[start, end)` of the source by `[target_start, target_end)` of the target.
struct WordEdit {
  std::uint32_t start, end, target_start, target_end;
};

constexpr std::size_t kMostWords = 512;  // of either text
constexpr std::size_t kMostEdits = 2 * kMostWords + 1;

struct WordEdits {
  WordEdit at[kMostEdits];
  std::size_t count = 0;
};

// The words and marks of a text, and where each starts and ends.
struct Words {
  std::uint32_t start[kMostWords];
  std::uint32_t end[kMostWords];
  std::size_t count = 0;
  bool normalised = true;  // no spaces but single ones between words
};

// False: not printable ASCII, or too many words.
bool split_words(Bytes text, Words& words);

// The edits from `source` to `target`, both normalised, of which the words are given. False: too many words between
// the first and the last that differ.
bool diff_words(Bytes source, const Words& left, Bytes target, const Words& right, WordEdits& edits);

}  // namespace copydesk
