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
  std::vector<Sequence*> runs_of;  // by run
  std::vector<CdRun> runs;
  Tokens released;  // slots
  Tokens tokens, chosen;
  std::vector<float> scores;

  CdStep step(int32_t vocabulary);
};

// Interactive before batch, first come first served within.
bool goes_before(const Sequence& a, const Sequence& b);

// Plans a step of the running sequences, in the order they were admitted.
void plan(const std::vector<Sequence*>& running, const Limits& limits, Plan& out);

// Divides `budget` so that nobody gets more than wanted, and nobody less while another gets more.
std::vector<int32_t> share(int32_t budget, const std::vector<int32_t>& wanted);

}  // namespace copydesk
