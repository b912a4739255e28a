// What to draft next: the decisions of draft.py, which is their reference and says why they are so.
#pragma once

#include <cstdint>
#include <vector>

namespace copydesk {

using Tokens = std::vector<int32_t>;

// Where drafts come from next: a position in the source, and how many tokens are worth a try.
struct Course {
  int32_t position = 0;
  int32_t window = 0;
};

Course outset(const Tokens& source);

// Appends to `draft` the next `count` tokens of the source, or as many as there are.
void from_source(const Tokens& source, int32_t position, int32_t count, Tokens& draft);

// Appends to `draft` what followed when the last tokens of `history` last came up.
void from_history(const Tokens& history, int32_t count, Tokens& draft);

// Whether `from_history` may find anything once one more token is known, whichever that is.
bool may_echo(const Tokens& history);

// The course after a pass that accepted `accepted` of `drafted` tokens; the answer is `answer[0..length)`.
Course proceed(Course course, const Tokens& source, const int32_t* answer, int32_t length, int32_t drafted,
               int32_t accepted);

}  // namespace copydesk
