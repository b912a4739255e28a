// What a gateway knows of one pod: the numbers of `copydesk.routing.ledger`, which has the rules.
//
// A pod's ledger is one object for both: its fields are this structure's, its methods Python's. What the lane does on
// its own way to a pod and back is here too, and a test compares it with those methods.
#pragma once

#include "python.hpp"

namespace copydesk {

struct Account {
  PyObject_HEAD
  long long in_flight, requests, errors, failures, samples;
  long long heard, queued, sent_since_load, capacity, awaited;
  double mean_ms, answered_at, weight, heard_at, load_valid, full_until, waiting_since;
  double latency_ms, latency_at, tau;

  // A request has been sent; `timed`: how long it takes says something of the pod.
  void start(double now, bool timed) {
    ++in_flight;
    ++requests;
    ++sent_since_load;
    if (!timed) return;
    if (awaited == 0) waiting_since = now;
    ++awaited;
  }

  void hear(long long running, long long waiting, long long places, double now) {
    heard = running + waiting;
    queued = waiting;
    capacity = places > 1 ? places : 1;
    heard_at = now;
    sent_since_load = 0;
  }

  void answered(double sent_at, double now, bool timed);
  void abandoned(double sent_at, double now, bool timed);

 private:
  void observe(double elapsed_ms, double now);
};

struct Standing {
  double occupancy;
  double latency;  // milliseconds; NaN before the first answer
};

Standing standing(const Account& account, double now);

// Whether `first` should get the next request: see `copydesk.routing.score.better`.
bool better(const Standing& first, const Standing& second, double ratio);

PyTypeObject* make_account_type();

}  // namespace copydesk
