// One step, as the scheduler hands it to a device: ragged runs of tokens, laid out flat.
#pragma once

#include <cstdint>

namespace copydesk {

// Room in the cache is counted in so many tokens: with heads of 64 numbers of 16 bits they fill a page of memory.
constexpr int32_t kPageTokens = 32;

// So many steps may be begun and not finished: one that computes, and one that waits behind it.
constexpr int32_t kStepsUnderWay = 2;

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
  const int32_t* token;  // [tokens], run after run; of a step that is begun, see there, some may be below 0
  int32_t* chosen;       // [samples], run after run: the lowest index of the largest score; undefined for scored runs
  float* scores;         // [scored, vocabulary], or null
  int32_t released;      // how many slots' requests have ended since the last step; they may run a new one already
  const int32_t* release;
};

// Computes a step; 0 when done, anything else is an error code.
typedef int32_t (*CdDevice)(void* self, const CdStep* step);

// A device that works while its caller goes on offers these two as well, which have the same self.
//
// `CdBegin` has a step computed and returns at once; 0 when it is under way. Up to kStepsUnderWay are begun before the
// first of them is finished, and they are computed in the order they were begun, each as if the one before it were
// complete: its keys and values are there, and a slot may be another request's already. A token below 0 stands for one
// that is not known yet: -(1 + i) for the token chosen at sample i of the step that was begun just before this one,
// which is not finished. It is the only token of its run, which samples once and without scores, and sample i is of a
// run without scores. The step and all that it points to stay where they are and as they are until it is finished.
typedef int32_t (*CdBegin)(void* self, const CdStep* step);

// Waits for the first of the steps that were begun, whose `chosen` and `scores` are then filled; 0 when they are. Each
// step that is under way is finished exactly once, even after an error, so that nothing is written to it any more.
typedef int32_t (*CdFinish)(void* self);
}
