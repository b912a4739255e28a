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

Engine::Engine(const EngineOptions& options)
    : options_(options),
      overlaps_(options.asynchronous && options.device_begin != nullptr),
      cache_left_(options.cache_tokens) {
  for (int32_t slot = 0; slot < options.slots; ++slot) free_.insert(slot);
}

Engine::~Engine() { abandon(); }

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
  const bool ahead = look_ahead(now);
  if (!ahead && !under_way_.empty() && !land()) return -1;
  Plan& next = prepare(now, ahead);
  const bool stays = !next.runs.empty() && launch(next) && overlaps_ && can_follow(next);
  while (under_way_.size() > stays) {
    if (!land()) return -1;
    if (under_way_.size() > stays) tell();
  }
  std::lock_guard lock(mutex_);
  publish();
  if (failure_ != 0) return -1;
  return !waiting_.empty() || !running_.empty() || !under_way_.empty();
}

int32_t Engine::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || (has_work() && (options_.asynchronous || acknowledged_)); });
      if (stopping_) break;
    }
    if (step(steady_seconds()) < 0) return failure_;
  }
  while (!under_way_.empty())
    if (!land()) return failure_;
  tell();
  return 0;
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

int32_t Engine::cache_left() {
  std::lock_guard lock(mutex_);
  return cache_left_;
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

// Whether the next step goes in behind the one under way. Who is cancelled or late is not in it either way.
bool Engine::look_ahead(double now) {
  if (under_way_.empty()) return false;
  std::lock_guard lock(mutex_);
  sweep(now);
  return can_look_ahead(*under_way_.back(), running_, options_.limits);
}

// Whether it looks as if the next step could go in behind this one, which those who run are told of.
bool Engine::can_follow(const Plan& plan) {
  std::lock_guard lock(mutex_);
  foresee(&plan, running_);
  return can_look_ahead(plan, running_, options_.limits);
}

Plan& Engine::prepare(double now, bool ahead) {
  Plan& next = plans_[!under_way_.empty() && under_way_.back() == &plans_[0] ? 1 : 0];
  std::lock_guard lock(mutex_);
  if (!ahead) {
    foresee(nullptr, running_);
    sweep(now);
  }
  admit();
  plan(running_, options_.limits, next);
  if (!next.runs.empty()) {
    next.released.clear();
    next.released.swap(released_);
  }
  next.lay_out(options_.limits.vocabulary);
  if (overlaps_) see_off(next);
  return next;
}

bool Engine::launch(Plan& plan) {
  if (under_way_.empty()) step_began_ = steady_seconds();
  const int32_t code = options_.device_begin ? options_.device_begin(options_.device_self, &plan.step) : 0;
  if (code == 0) {
    under_way_.push_back(&plan);
    return true;
  }
  failure_ = code;
  if (under_way_.empty()) step_began_ = 0.0;
  return false;
}

// Completes the first step under way.
bool Engine::land() {
  const double began = step_began_;
  Plan& plan = *under_way_.front();
  int32_t code = await(plan);
  under_way_.erase(under_way_.begin());
  if (code == 0 && !apply(plan)) code = -1;
  const double now = steady_seconds();
  step_began_ = under_way_.empty() ? 0.0 : now;
  if (code != 0) fail(code);
  std::lock_guard lock(mutex_);
  smooth(step_ms_, (now - began) * 1e3);
  events_.insert(events_.end(), {kStep, static_cast<int64_t>((now - began) * 1e9)});
  return code == 0;
}

int32_t Engine::await(Plan& plan) {
  if (options_.device_begin) return options_.device_finish(options_.device_self);
  return options_.device(options_.device_self, &plan.step);
}

bool Engine::apply(Plan& plan) {
  int32_t* chosen = plan.chosen.data();
  const int32_t* tokens = plan.tokens.data();
  const float* scores = plan.scores.data();
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const CdRun& run = plan.runs[i];
    const Sequence* sequence = plan.runs_of[i];
    if (run.scores && sequence && !choose(*sequence, run, tokens, scores, chosen)) return false;
    if (run.scores) scores += static_cast<size_t>(run.samples) * options_.limits.vocabulary;
    tokens += run.length;
    chosen += run.samples;
  }
  std::lock_guard lock(mutex_);
  chosen = plan.chosen.data();
  tokens = plan.tokens.data();
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const CdRun& run = plan.runs[i];
    if (Sequence* sequence = plan.runs_of[i]) {
      const int32_t before = sequence->made();
      Finish ending = sequence->advance(run, tokens, chosen, options_.limits.context);
      if (ending == Finish::kNone) ending = sequence->ending;
      if (sequence->stream && sequence->made() > before) made(*sequence, before);
      if (ending != Finish::kNone) finish(*sequence, ending);
    }
    tokens += run.length;
    chosen += run.samples;
  }
  return true;
}

void Engine::fail(int32_t code) {
  if (failure_ == 0) failure_ = code;
  abandon();
  step_began_ = 0.0;
}

// Lets the device be done with what is under way, whatever it finds.
void Engine::abandon() {
  for (; !under_way_.empty(); under_way_.erase(under_way_.begin())) await(*under_way_.front());
}

void Engine::sweep(double now) {
  for (int64_t id : cancelled_)
    if (auto found = sequences_.find(id); found != sequences_.end()) end_early(*found->second, Finish::kCancelled);
  cancelled_.clear();
  std::vector<Sequence*> late;
  for (const auto& [turn, sequence] : waiting_)
    if (sequence->deadline <= now) late.push_back(sequence);
  for (Sequence* sequence : running_)
    if (sequence->deadline <= now) late.push_back(sequence);
  for (Sequence* sequence : late) end_early(*sequence, Finish::kDeadline);
}

// Ends a request now, or with what the step under way finds for it.
void Engine::end_early(Sequence& sequence, Finish how) {
  if (sequence.left) return;
  if (sequence.fed == 0) return finish(sequence, how);
  sequence.ending = how;
  leave(sequence);
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

// Lets go of those who end with a planned step for sure, because there is room for one token only: the next step may
// have others in their place, since it is computed after this one.
void Engine::see_off(const Plan& plan) {
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    Sequence& sequence = *plan.runs_of[i];
    if (plan.runs[i].samples > 0 && sequence.room_ahead(options_.limits.context) == 1) leave(sequence);
  }
}

bool Engine::choose(const Sequence& sequence, const CdRun& run, const int32_t* tokens, const float* scores,
                    int32_t* chosen) {
  if (options_.chooser == nullptr) return false;
  const int32_t* made_tokens = sequence.history.data() + sequence.prompt_length;
  const int32_t drafted = run.samples - 1;
  const int32_t count = options_.chooser(options_.chooser_self, sequence.id, run.samples, scores, sequence.made(),
                                         made_tokens, drafted, tokens + (run.length - drafted), chosen);
  if (count < 1 || count > run.samples) return false;
  std::fill(chosen + count, chosen + run.samples, -1);  // no token: agrees with no guess
  return true;
}

void Engine::leave(Sequence& sequence) {
  sequence.left = true;
  free_.insert(sequence.slot);
  released_.push_back(sequence.slot);
  cache_left_ += sequence.reserve(options_.limits.context);
  running_.erase(std::find(running_.begin(), running_.end(), &sequence));
}

void Engine::finish(Sequence& sequence, Finish finish) {
  const bool whole = finish == Finish::kStop || finish == Finish::kLength;
  if (whole) smooth(request_seconds_, steady_seconds() - sequence.admitted);
  const auto first = sequence.history.begin() + sequence.prompt_length;
  events_.insert(events_.end(), {kFinished, sequence.id, static_cast<int64_t>(finish), sequence.passes,
                                 sequence.drafted, sequence.accepted, sequence.stop_id, sequence.made()});
  events_.insert(events_.end(), first, sequence.history.end());
  news_ = true;
  if (sequence.slot < 0) {
    waiting_.erase(Turn{sequence.priority, sequence.id});
  } else {
    if (!sequence.left) leave(sequence);
    for (Plan* plan : under_way_)
      std::replace(plan->runs_of.begin(), plan->runs_of.end(), &sequence, static_cast<Sequence*>(nullptr));
  }
  sequences_.erase(sequence.id);
}

void Engine::made(const Sequence& sequence, int32_t before) {
  events_.insert(events_.end(), {kMade, sequence.id, sequence.made() - before});
  events_.insert(events_.end(), sequence.history.begin() + sequence.prompt_length + before, sequence.history.end());
  news_ = true;
}

void Engine::tell() {
  std::lock_guard lock(mutex_);
  publish();
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
