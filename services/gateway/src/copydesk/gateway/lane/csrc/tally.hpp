// What the lane has counted since it was last asked, in the buckets of the gateway's own histograms.
#pragma once

#include <array>
#include <vector>

#include "heads.hpp"

namespace copydesk {

constexpr int kQuantileBuckets = 272;  // of copydesk.routing.quantile

struct FormTally {
  long long answered = 0, gone = 0;
  double seconds = 0.0;
  std::vector<long long> buckets;
};

class Tally {
 public:
  explicit Tally(std::vector<double> bounds);

  void started() { ++started_; }
  void recalled() { ++recalled_; }
  void answered(Form form, double seconds);
  void gone(Form form, double seconds);
  long long take_started() { return std::exchange(started_, 0); }

  // (answered, gone, seconds, buckets) of each form, the quantiles' buckets of all and of those that are timed, and how
  // many went back to Python; a new reference. Starts anew.
  PyObject* drain();

 private:
  void observe(FormTally& tally, double seconds);

  std::vector<double> bounds_;
  std::array<FormTally, kForms> forms_;
  std::array<double, kQuantileBuckets> latencies_{}, timed_{};
  long long started_ = 0, recalled_ = 0;
};

int quantile_bucket(double value);

}  // namespace copydesk
