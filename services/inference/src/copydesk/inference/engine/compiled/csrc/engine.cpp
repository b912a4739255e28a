#include "engine.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace copydesk {
namespace {

constexpr double kSmoothing = 0.1;  // weight of the latest step in the reported mean
constexpr int32_t kBatch = 1;       // the priority that yields
constexpr size_t kManySteps = 512;  // durations that are handed over even when nothing else happened

void smooth(double& mean, double latest) { mean += (mean == 0.0 ? 1.0 : kSmoothing) * (latest - mean); }

}  // namespace

double steady_seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Engine::Engine(const EngineOptions& options) : options_(options), cache_left_(options.cache_tokens) {
  for (int32_t slot = 0; slot < options.slots; ++slot) free_.insert(slot);
}

bool Engine::submit(std::unique_ptr<Sequence> sequence) {
  std::lock_guard lock(mutex_);
  if (full(*sequence)) {
    if (waiting_.empty()) return false;
    Sequence& last = *waiting_.rbegin()->second;
    if (last.priority < kBatch || last.priority <= sequence->priority) return false;
    finish(last, Finish::kDisplaced);
    publish();
  }
  Sequence& added = *sequence;
  added.course = outset(added.source);
  waiting_.emplace(Turn{added.priority, added.id}, &added);
  sequences_.emplace(added.id, std::move(sequence));
  changed_.notify_all();
  return true;
}

Engine::Admissible Engine::admissible() const {
  Admissible found{0, cache_left_};
  for (const auto& [turn, sequence] : waiting_) {
    const int32_t reserved = sequence->reserve(options_.limits.context);
    if (found.count == free_.size() || reserved > found.cache_left) break;
    found.cache_left -= reserved;
    ++found.count;
  }
  return found;
}

bool Engine::full(const Sequence& newcomer) const {
  const Admissible next = admissible();
  const bool at_once = next.count == waiting_.size() && next.count < free_.size() &&
                       newcomer.reserve(options_.limits.context) <= next.cache_left;
  return !at_once && waiting_.size() - next.count >= static_cast<size_t>(options_.queue);
}

void Engine::cancel(int64_t id) {
  std::lock_guard lock(mutex_);
  if (!sequences_.count(id)) return;
  cancelled_.push_back(id);
  changed_.notify_all();
}

int32_t Engine::step(double now) {
  {
    std::lock_guard lock(mutex_);
    begin(now);
  }
  if (step_.runs > 0 && compute() != 0) return -1;
  std::lock_guard lock(mutex_);
  publish();
  return !waiting_.empty() || !running_.empty();
}

int32_t Engine::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || (has_work() && (options_.asynchronous || acknowledged_)); });
      if (stopping_) return 0;
    }
    if (step(steady_seconds()) < 0) return failure_;
  }
}

void Engine::stop() {
  std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

const std::vector<int64_t>& Engine::take() {
  std::lock_guard lock(mutex_);
  taken_.clear();
  taken_.swap(events_);
  news_ = false;
  return taken_;
}

void Engine::acknowledge() {
  std::lock_guard lock(mutex_);
  acknowledged_ = true;
  changed_.notify_all();
}

void Engine::load(int32_t* running, int32_t* queued, double* step_ms) {
  std::lock_guard lock(mutex_);
  *running = static_cast<int32_t>(running_.size());
  *queued = static_cast<int32_t>(waiting_.size());
  *step_ms = step_ms_;
}

void Engine::outlook(int32_t priority, int32_t* ahead, int32_t* free, int32_t* slots, double* request_seconds) {
  std::lock_guard lock(mutex_);
  const auto behind = waiting_.lower_bound(Turn{priority + 1, 0});
  *ahead = static_cast<int32_t>(std::distance(waiting_.begin(), behind));
  const size_t count = admissible().count;
  const bool cramped = count < std::min(waiting_.size(), free_.size());
  *free = static_cast<int32_t>(cramped ? count : free_.size());
  *slots = cramped ? std::max<int32_t>(1, static_cast<int32_t>(running_.size() + count)) : options_.slots;
  *request_seconds = request_seconds_;
}

double Engine::step_age(double now) const {
  const double began = step_began_;
  return began == 0.0 ? 0.0 : now - began;
}

void Engine::begin(double now) {
  sweep(now);
  admit();
  plan(running_, options_.limits, plan_);
  if (!plan_.runs.empty()) {
    plan_.released.clear();
    plan_.released.swap(released_);
  }
  step_ = plan_.step(options_.limits.vocabulary);
}

int32_t Engine::compute() {
  const double began = steady_seconds();
  step_began_ = began;
  failure_ = options_.device(options_.device_self, &step_);
  if (failure_ == 0) apply();
  step_began_ = 0.0;
  const double seconds = steady_seconds() - began;
  std::lock_guard lock(mutex_);
  smooth(step_ms_, seconds * 1e3);
  events_.insert(events_.end(), {kStep, static_cast<int64_t>(seconds * 1e9)});
  return failure_;
}

void Engine::apply() {
  int32_t* chosen = plan_.chosen.data();
  const float* scores = plan_.scores.data();
  for (size_t i = 0; i < plan_.runs.size(); ++i) {
    const CdRun& run = plan_.runs[i];
    if (run.scores && !choose(*plan_.runs_of[i], run, scores, chosen)) failure_ = -1;
    if (run.scores) scores += static_cast<size_t>(run.samples) * options_.limits.vocabulary;
    chosen += run.samples;
  }
  if (failure_ != 0) return;
  std::lock_guard lock(mutex_);
  chosen = plan_.chosen.data();
  for (size_t i = 0; i < plan_.runs.size(); ++i) {
    const CdRun& run = plan_.runs[i];
    Sequence& sequence = *plan_.runs_of[i];
    const int32_t before = sequence.made();
    const Finish ending = sequence.advance(run.length, run.samples, chosen, options_.limits.context);
    chosen += run.samples;
    if (sequence.stream && sequence.made() > before) made(sequence, before);
    if (ending != Finish::kNone) finish(sequence, ending);
  }
}

void Engine::sweep(double now) {
  for (int64_t id : cancelled_)
    if (auto found = sequences_.find(id); found != sequences_.end()) finish(*found->second, Finish::kCancelled);
  cancelled_.clear();
  std::vector<Sequence*> late;
  for (const auto& [turn, sequence] : waiting_)
    if (sequence->deadline <= now) late.push_back(sequence);
  for (Sequence* sequence : running_)
    if (sequence->deadline <= now) late.push_back(sequence);
  for (Sequence* sequence : late) finish(*sequence, Finish::kDeadline);
}

void Engine::admit() {
  const double now = steady_seconds();
  while (!free_.empty() && !waiting_.empty()) {
    Sequence* next = waiting_.begin()->second;
    const int32_t reserved = next->reserve(options_.limits.context);
    if (reserved > cache_left_) break;  // those behind it wait too, or a long request might wait for ever
    cache_left_ -= reserved;
    waiting_.erase(waiting_.begin());
    // The lowest slot, so that live ones stay neighbours.
    next->slot = *free_.begin();
    next->admitted = now;
    free_.erase(free_.begin());
    running_.push_back(next);
  }
}

bool Engine::choose(Sequence& sequence, const CdRun& run, const float* scores, int32_t* chosen) {
  if (options_.chooser == nullptr) return false;
  const int32_t* made_tokens = sequence.history.data() + sequence.prompt_length;
  const int32_t count = options_.chooser(options_.chooser_self, sequence.id, run.samples, scores, sequence.made(),
                                         made_tokens, static_cast<int32_t>(sequence.draft.size()),
                                         sequence.draft.data(), chosen);
  if (count < 1 || count > run.samples) return false;
  std::fill(chosen + count, chosen + run.samples, -1);  // no token: agrees with no guess
  return true;
}

void Engine::finish(Sequence& sequence, Finish finish) {
  const bool ran = sequence.slot >= 0;
  const bool whole = finish == Finish::kStop || finish == Finish::kLength;
  if (whole) smooth(request_seconds_, steady_seconds() - sequence.admitted);
  const auto first = sequence.history.begin() + sequence.prompt_length;
  events_.insert(events_.end(), {kFinished, sequence.id, static_cast<int64_t>(finish), sequence.passes,
                                 sequence.drafted, sequence.accepted, sequence.stop_id, sequence.made()});
  events_.insert(events_.end(), first, sequence.history.end());
  news_ = true;
  if (ran) {
    free_.insert(sequence.slot);
    released_.push_back(sequence.slot);
    cache_left_ += sequence.reserve(options_.limits.context);
    running_.erase(std::find(running_.begin(), running_.end(), &sequence));
  } else {
    waiting_.erase(Turn{sequence.priority, sequence.id});
  }
  sequences_.erase(sequence.id);
}

void Engine::made(const Sequence& sequence, int32_t before) {
  events_.insert(events_.end(), {kMade, sequence.id, sequence.made() - before});
  events_.insert(events_.end(), sequence.history.begin() + sequence.prompt_length + before, sequence.history.end());
  news_ = true;
}

void Engine::publish() {
  if (events_.empty()) return;
  if (options_.asynchronous && !news_ && events_.size() < 2 * kManySteps) return;
  acknowledged_ = false;
  if (options_.event_fd < 0) return;
  const uint64_t one = 1;
  // It can fail only when the counter is full, and then the host has been told already.
  [[maybe_unused]] const ssize_t written = ::write(options_.event_fd, &one, sizeof one);
}

}  // namespace copydesk
