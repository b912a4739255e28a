// One step, as the scheduler hands it to a device: ragged runs of tokens, laid out flat.
#pragma once

#include <cstdint>

namespace copydesk {

// Room in the cache is counted in so many tokens: with heads of 64 numbers of 16 bits they fill a page of memory.
constexpr int32_t kPageTokens = 32;

}  // namespace copydesk

extern "C" {

// New tokens of one request: they go to `slot` from position `start` on. Wanted is what follows each of the last
// `samples` of them: the likeliest token, or with `scores` the model's scores.
struct CdRun {
  int32_t slot, start, length, samples, scores;
};

struct CdStep {
  int32_t runs, tokens, samples, scored;  // counts; `scored` are the samples of runs with scores
  const CdRun* run;
  const int32_t* token;  // [tokens], run after run
  int32_t* chosen;       // [samples], run after run: the lowest index of the largest score; undefined for scored runs
  float* scores;         // [scored, vocabulary], or null
  int32_t released;      // how many slots' requests have ended since the last step; they may run a new one already
  const int32_t* release;
};

// Computes a step; 0 when done, anything else is an error code.
typedef int32_t (*CdDevice)(void* self, const CdStep* step);
}
