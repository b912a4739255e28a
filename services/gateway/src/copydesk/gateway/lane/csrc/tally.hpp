// What the lane has counted since it was last asked, in the buckets of the gateway's own histograms.
#pragma once

#include <array>
#include <vector>

#include "heads.hpp"

namespace copydesk {

constexpr int kQuantileBuckets = 272;  // of copydesk.routing.quantile

// Requests that ended alike, and how long they took.
struct Ended {
  long long count = 0;
  double seconds = 0.0;
  std::vector<long long> buckets;
};

struct FormTally {
  Ended answered, gone;
};

class Tally {
 public:
  explicit Tally(std::vector<double> bounds);

  void started() { ++started_; }
  void recalled(double seconds) {
    ++recalled_;
    recalled_seconds_ += seconds;
  }
  void answered(Form form, double seconds);
  void gone(Form form, double seconds);
  long long take_started() { return std::exchange(started_, 0); }

  // Of each form those that were answered and those whose clients left, (count, seconds, buckets) both; the quantiles'
  // buckets of all and of those that are timed; how many went back to Python, after how many seconds in all. A new
  // reference. Starts anew.
  PyObject* drain();

 private:
  void observe(Ended& ended, double seconds);

  std::vector<double> bounds_;
  std::array<FormTally, kForms> forms_;
  std::array<double, kQuantileBuckets> latencies_{}, timed_{};
  long long started_ = 0, recalled_ = 0;
  double recalled_seconds_ = 0.0;
};

int quantile_bucket(double value);

}  // namespace copydesk
