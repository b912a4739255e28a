// A device that computes nothing: it takes a set time and chooses tokens by a rule, so that what is left of a
// request's cost is everybody else's.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "engine.hpp"
#include "step.hpp"

namespace {

using copydesk::steady_seconds;

struct NullDevice {
  struct Begun {
    const CdStep* step;
    double ready;  // in steady seconds
  };
  double seconds;         // a step takes this long, during which the processor is free, as it is beside an accelerator
  double launch_seconds;  // for so long before that the processor is busy with it
  int32_t vocabulary;
  std::deque<Begun> under_way{};
  double busy_until = 0.0;
  std::vector<int32_t> chosen{};  // in the step that was found last
};

void work(double seconds) {
  if (seconds <= 0.0) return;
  for (const double until = steady_seconds() + seconds; steady_seconds() < until;) {
  }
}

void rest_until(double until) {
  timespec end;
  end.tv_sec = static_cast<time_t>(until);
  end.tv_nsec = static_cast<long>((until - static_cast<double>(end.tv_sec)) * 1e9);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, nullptr) != 0) {
  }
}

// After token t at position p comes t + p + 1: no text repeats itself for long, and no draft is right by chance alone.
void find(NullDevice& device, const CdStep& step) {
  const int32_t* token = step.token;
  int32_t* chosen = step.chosen;
  float* scores = step.scores;
  for (int32_t r = 0; r < step.runs; ++r) {
    const CdRun& run = step.run[r];
    for (int32_t i = run.length - run.samples; i < run.length; ++i) {
      const int32_t known = token[i] < 0 ? device.chosen[-1 - token[i]] : token[i];
      const auto next = static_cast<int32_t>((int64_t{known} + run.start + i + 1) % device.vocabulary);
      *chosen++ = next;
      if (!run.scores) continue;
      for (int32_t v = 0; v < device.vocabulary; ++v) scores[v] = v == next ? 1.0f : 0.0f;
      scores += device.vocabulary;
    }
    token += run.length;
  }
}

}  // namespace

extern "C" {

NullDevice* cd_null_open(double seconds, double launch_seconds, int32_t vocabulary) {
  return new NullDevice{seconds, launch_seconds, vocabulary};
}

void cd_null_close(NullDevice* device) { delete device; }

int32_t cd_null_step(void* self, const CdStep* step) {
  auto* device = static_cast<NullDevice*>(self);
  work(device->launch_seconds);
  if (device->seconds > 0.0) rest_until(steady_seconds() + device->seconds);
  find(*device, *step);
  return 0;
}

// The same, beside the caller: a step takes its time from when it was begun, or when the one before it was done.
int32_t cd_null_begin(void* self, const CdStep* step) {
  auto* device = static_cast<NullDevice*>(self);
  work(device->launch_seconds);
  device->busy_until = std::max(device->busy_until, steady_seconds()) + device->seconds;
  device->under_way.push_back({step, device->busy_until});
  return 0;
}

int32_t cd_null_finish(void* self) {
  auto* device = static_cast<NullDevice*>(self);
  const NullDevice::Begun first = device->under_way.front();
  device->under_way.pop_front();
  if (device->seconds > 0.0) rest_until(first.ready);
  find(*device, *first.step);
  device->chosen.assign(first.step->chosen, first.step->chosen + first.step->samples);
  return 0;
}

}  // extern "C"
