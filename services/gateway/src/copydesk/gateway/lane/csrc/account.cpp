#include "account.hpp"

#include <cmath>
#include <cstddef>

namespace copydesk {
namespace {

constexpr double kLatencyFloorMs = 1.0;  // LATENCY_FLOOR_MS of routing.score
constexpr double kFull = 2.0;            // FULL of routing.ledger
constexpr double kSmoothing = 0.1;       // _SMOOTHING of routing.ledger

long long outstanding(const Account& account, double now) {
  const long long own = account.in_flight;
  if (now - account.heard_at > account.load_valid) return own;
  const long long heard = account.heard + account.sent_since_load;
  return heard > own ? heard : own;
}

double latency(const Account& account, double now) {
  if (std::isnan(account.latency_ms) || now <= account.latency_at) return account.latency_ms;
  return account.latency_ms * std::exp((account.latency_at - now) / account.tau);
}

double cost(const Standing& one) {
  return one.occupancy * (one.latency > kLatencyFloorMs ? one.latency : kLatencyFloorMs);
}

#define COUNT(name, member) {name, T_LONGLONG, offsetof(Account, member), 0, nullptr}
#define NUMBER(name, member) {name, T_DOUBLE, offsetof(Account, member), 0, nullptr}

PyMemberDef members[] = {
    COUNT("in_flight", in_flight),
    COUNT("requests", requests),
    COUNT("errors", errors),
    COUNT("failures", failures),
    COUNT("samples", samples),
    COUNT("_heard", heard),
    COUNT("_queued", queued),
    COUNT("_sent_since_load", sent_since_load),
    COUNT("_capacity", capacity),
    COUNT("_awaited", awaited),
    NUMBER("mean_ms", mean_ms),
    NUMBER("answered_at", answered_at),
    NUMBER("weight", weight),
    NUMBER("_heard_at", heard_at),
    NUMBER("_load_valid", load_valid),
    NUMBER("_full_until", full_until),
    NUMBER("_waiting_since", waiting_since),
    NUMBER("_latency_ms", latency_ms),
    NUMBER("_latency_at", latency_at),
    NUMBER("_tau", tau),
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("The numbers of a pod's ledger.")},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec spec = {"copydesk.gateway.lane._native.Account", sizeof(Account), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

Standing standing(const Account& account, double now) {
  double occupied = static_cast<double>(outstanding(account, now));
  const double full = kFull * static_cast<double>(account.capacity);
  if (now < account.full_until && occupied < full) occupied = full;
  return {(occupied + 1.0) / (static_cast<double>(account.capacity) * account.weight), latency(account, now)};
}

bool better(const Standing& first, const Standing& second, double ratio) {
  if (std::isnan(first.latency) || std::isnan(second.latency)) return first.occupancy <= ratio * second.occupancy;
  return cost(first) <= ratio * cost(second);
}

// The peak-sensitive average of `copydesk.routing.ewma`.
void Account::observe(double elapsed_ms, double now) {
  if (std::isnan(latency_ms) || elapsed_ms >= latency_ms) {
    latency_ms = elapsed_ms;
  } else {
    const double weight = now > latency_at ? std::exp((latency_at - now) / tau) : 1.0;
    latency_ms = latency_ms * weight + elapsed_ms * (1.0 - weight);
  }
  if (now > latency_at) latency_at = now;
}

void Account::answered(double sent_at, double now, bool timed) {
  --in_flight;
  answered_at = waiting_since = now;
  failures = 0;
  if (!timed) return;
  --awaited;
  const double elapsed_ms = (now - sent_at) * 1000.0;
  observe(elapsed_ms, now);
  ++samples;
  const double count = static_cast<double>(samples);
  mean_ms += (count > 1.0 / kSmoothing ? kSmoothing : 1.0 / count) * (elapsed_ms - mean_ms);
}

// It had no answer yet, which may still say that the pod is slower than thought.
void Account::abandoned(double sent_at, double now, bool timed) {
  --in_flight;
  if (!timed) return;
  --awaited;
  const double elapsed_ms = (now - sent_at) * 1000.0;
  const double known = latency(*this, now);
  if (elapsed_ms > (std::isnan(known) ? 0.0 : known)) observe(elapsed_ms, now);
}

PyTypeObject* make_account_type() { return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec)); }

}  // namespace copydesk
