// Continuous batching: requests in, tokens out, and a device in between; the compiled counterpart of engine.py.
//
// All that a step decides (who runs, which guesses were right, what has ended) is decided here, so that the host is
// needed only when a request ends, streams, or wants its tokens chosen from the scores. What happened meanwhile is
// left as events, to be taken at any time.
//
// With a device that works while the engine goes on, a step is begun behind the one that computes, before that one's
// results are there (looking ahead), wherever `can_look_ahead` allows. Who ends with a step for sure makes room for
// others in the one behind it; only a stop token comes unforeseen, and costs its request one run whose result nobody
// takes. So the steps are those that would be run without looking ahead, but for such runs, and that the slot they
// occupy is given to another request one step later.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "schedule.hpp"

namespace copydesk {

// Chooses tokens for a run from its scores [rows, vocabulary], as sampling.py does; `made` and `draft` are the tokens
// after the prompt and the guesses behind them. Writes up to `rows` tokens to `out` and returns how many, below 1 when
// it failed. Called on the thread that steps.
using Chooser = int32_t (*)(void* self, int64_t id, int32_t rows, const float* scores, int32_t made_length,
                            const int32_t* made, int32_t draft_length, const int32_t* draft, int32_t* out);

struct EngineOptions {
  int32_t slots, queue;
  int32_t cache_tokens;  // that all running requests together may come to have in the cache
  Limits limits;
  CdDevice device;
  void* device_self;
  CdBegin device_begin;  // both or neither
  CdFinish device_finish;
  Chooser chooser;
  void* chooser_self;
  int32_t event_fd;       // an eventfd written to when there is something to take; -1: none
  // 0: no looking ahead, and `run` waits after each step until what it left was taken and acknowledged.
  int32_t asynchronous;
};

class Engine {
 public:
  enum Event : int64_t { kFinished = 0, kMade = 1, kStep = 2 };

  explicit Engine(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes over the sequence; false when the queue is full.
  bool submit(std::unique_ptr<Sequence> sequence);
  void cancel(int64_t id);

  // Plans a step and has it computed; 1 when there is more to do, 0 when not, -1 when the device failed. Where the next
  // one can go in behind it, it is still under way when this returns, and the one before it is complete.
  int32_t step(double now);

  // Steps by the steady clock, and sleeps while there is nothing to do, until `stop`; the device's code if it failed.
  // Nothing is under way when it returns.
  int32_t run();
  void stop();

  // The events since the last call, valid until the next one.
  const std::vector<int64_t>& take();
  // Says that what was taken has been dealt with.
  void acknowledge();

  void load(int32_t* running, int32_t* queued, double* step_ms);
  int32_t cache_left();
  // How many wait that go before a newcomer of this priority, how many slots are free, how many there are (where the
  // cache is full: as many as it has room for), and for how many seconds a request ran of late, its wait not counted.
  void outlook(int32_t priority, int32_t* ahead, int32_t* free, int32_t* slots, double* request_seconds);
  // For how many seconds the first step under way has been running; 0 between steps.
  double step_age(double now) const;

 private:
  using Turn = std::pair<int32_t, int64_t>;  // priority and id

  // How many of those that wait would be admitted now, and the tokens of the cache that are left then.
  struct Admissible {
    size_t count;
    int32_t cache_left;
  };
  Admissible admissible() const;
  bool full(const Sequence& newcomer) const;
  bool has_work() const {
    return !waiting_.empty() || !running_.empty() || !cancelled_.empty() || !under_way_.empty();
  }
  bool look_ahead(double now);
  bool can_follow(const Plan& plan);
  Plan& prepare(double now, bool ahead);
  bool launch(Plan& plan);
  bool land();
  int32_t await(Plan& plan);
  bool apply(Plan& plan);
  void fail(int32_t code);
  void abandon();
  void sweep(double now);
  void end_early(Sequence& sequence, Finish finish);
  void admit();
  void see_off(const Plan& plan);
  bool choose(const Sequence& sequence, const CdRun& run, const int32_t* tokens, const float* scores, int32_t* chosen);
  void leave(Sequence& sequence);
  void finish(Sequence& sequence, Finish finish);
  void made(const Sequence& sequence, int32_t before);
  void tell();
  void publish();

  const EngineOptions options_;
  const bool overlaps_;
  std::mutex mutex_;  // over all below but the plans, which belong to the thread that steps
  std::condition_variable changed_;
  std::unordered_map<int64_t, std::unique_ptr<Sequence>> sequences_;
  std::map<Turn, Sequence*> waiting_;
  std::vector<Sequence*> running_;  // in the order they were admitted
  std::set<int32_t> free_;
  int32_t cache_left_;  // tokens that no running request has reserved
  Tokens released_;     // slots, since the last step
  std::vector<int64_t> cancelled_;
  std::vector<int64_t> events_, taken_;
  bool news_ = false;  // events that the host waits for, beyond durations of steps
  bool acknowledged_ = true, stopping_ = false;
  double step_ms_ = 0.0, request_seconds_ = 0.0;
  std::atomic<double> step_began_{0.0};
  std::atomic<int32_t> failure_{0};
  std::array<Plan, kStepsUnderWay> plans_;
  std::vector<Plan*> under_way_;  // in the order they were begun
};

double steady_seconds();

}  // namespace copydesk
