// A device that computes nothing: it takes a set time and chooses tokens by a rule, so that what is left of a
// request's cost is everybody else's.
#include <time.h>

#include <cstdint>

#include "engine.hpp"
#include "step.hpp"

namespace {

struct NullDevice {
  double seconds;  // a step takes this long, during which the processor is free, as it is beside an accelerator
  int32_t vocabulary;
};

void rest(double seconds) {
  if (seconds <= 0.0) return;
  const double until = copydesk::steady_seconds() + seconds;
  timespec end;
  end.tv_sec = static_cast<time_t>(until);
  end.tv_nsec = static_cast<long>((until - static_cast<double>(end.tv_sec)) * 1e9);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, nullptr) != 0) {
  }
}

}  // namespace

extern "C" {

NullDevice* cd_null_open(double seconds, int32_t vocabulary) { return new NullDevice{seconds, vocabulary}; }

void cd_null_close(NullDevice* device) { delete device; }

// After token t at position p comes t + p + 1: no text repeats itself for long, and no draft is right by chance alone.
int32_t cd_null_step(void* self, const CdStep* step) {
  const auto* device = static_cast<const NullDevice*>(self);
  rest(device->seconds);
  const int32_t* token = step->token;
  int32_t* chosen = step->chosen;
  float* scores = step->scores;
  for (int32_t r = 0; r < step->runs; ++r) {
    const CdRun& run = step->run[r];
    for (int32_t i = run.length - run.samples; i < run.length; ++i) {
      const auto next = static_cast<int32_t>((int64_t{token[i]} + run.start + i + 1) % device->vocabulary);
      *chosen++ = next;
      if (!run.scores) continue;
      for (int32_t v = 0; v < device->vocabulary; ++v) scores[v] = v == next ? 1.0f : 0.0f;
      scores += device->vocabulary;
    }
    token += run.length;
  }
  return 0;
}

}  // extern "C"
