// Who runs next, with how many tokens and guesses; the compiled counterpart of schedule.py.
#pragma once

#include <vector>

#include "sequence.hpp"
#include "step.hpp"

namespace copydesk {

struct Limits {
  int32_t context, vocabulary, prefill_tokens, draft_tokens;
};

// One planned step. The arrays are kept between steps, so that planning allocates nothing once they have grown.
struct Plan {
  std::vector<Sequence*> runs_of;  // by run; null: it ended while the step was under way
  std::vector<CdRun> runs;
  Tokens released;  // slots
  Tokens tokens, chosen;
  std::vector<float> scores;
  CdStep step{};  // points to them

  // Makes room for what the step is to find, and describes it.
  void lay_out(int32_t vocabulary);
};

// Interactive before batch, first come first served within.
bool goes_before(const Sequence& a, const Sequence& b);

// Tells the running sequences what the step that is under way has of them; null: there is none.
void foresee(const Plan* under_way, const std::vector<Sequence*>& running);

// Whether the step after the one under way, which they know of, can be planned before that one's results are there: if
// all who sampled in it go on by a single token, which the device knows, and could not draft whatever that token is. So
// looking ahead changes no draft.
bool can_look_ahead(const Plan& under_way, const std::vector<Sequence*>& running, const Limits& limits);

// Plans a step of the running sequences, in the order they were admitted, behind the one that they know to be under way.
void plan(const std::vector<Sequence*>& running, const Limits& limits, Plan& out);

// Divides `budget` so that nobody gets more than wanted, and nobody less while another gets more.
std::vector<int32_t> share(int32_t budget, const std::vector<int32_t>& wanted);

}  // namespace copydesk
