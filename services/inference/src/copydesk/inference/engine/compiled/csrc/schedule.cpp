#include "schedule.hpp"

#include <algorithm>
#include <numeric>

namespace copydesk {
namespace {

constexpr int32_t kFreeShare = 12;

struct Portion {
  Sequence* sequence;
  int32_t count;
};

void portion_out(const std::vector<Sequence*>& running, int32_t prefill_tokens, std::vector<Portion>& portions) {
  std::vector<Sequence*> prompts;
  for (Sequence* sequence : running) {
    if (sequence->made_ahead() > 0)
      portions.push_back({sequence, 1});
    else
      prompts.push_back(sequence);
  }
  std::sort(prompts.begin(), prompts.end(), [](auto* a, auto* b) { return goes_before(*a, *b); });
  for (Sequence* sequence : prompts) {
    if (prefill_tokens <= 0) break;
    portions.push_back({sequence, std::min(sequence->pending_ahead(), prefill_tokens)});
    prefill_tokens -= portions.back().count;
  }
}

// How many tokens those who decode leave for drafts.
int32_t draft_budget(const std::vector<Sequence*>& running, const Limits& limits) {
  const auto decodes = [](const Sequence* sequence) { return sequence->made_ahead() > 0; };
  return limits.draft_tokens - static_cast<int32_t>(std::count_if(running.begin(), running.end(), decodes));
}

void draft(const std::vector<Portion>& portions, int32_t budget, const Limits& limits) {
  std::vector<Sequence*> sampling;
  for (const Portion& portion : portions) {
    portion.sequence->draft.clear();
    if (portion.count == portion.sequence->pending_ahead()) sampling.push_back(portion.sequence);
  }
  if (budget <= 0 || sampling.empty()) return;
  const int32_t free = budget / (kFreeShare * static_cast<int32_t>(sampling.size()));
  std::vector<int32_t> wanted;
  for (Sequence* sequence : sampling) {
    if (sequence->awaited < 0) sequence->guess(free, budget, limits.context, limits.vocabulary);
    wanted.push_back(static_cast<int32_t>(sequence->draft.size()));
  }
  const std::vector<int32_t> shares = share(budget, wanted);
  for (size_t i = 0; i < sampling.size(); ++i) sampling[i]->draft.resize(shares[i]);
}

void add_run(const Portion& portion, Plan& out) {
  const Sequence& s = *portion.sequence;
  const bool samples = portion.count == s.pending_ahead();
  if (s.awaited < 0) {
    const auto fresh = s.history.begin() + s.cached_ahead();
    out.tokens.insert(out.tokens.end(), fresh, fresh + portion.count);
  } else {
    out.tokens.push_back(-1 - s.awaited);
  }
  out.tokens.insert(out.tokens.end(), s.draft.begin(), s.draft.end());
  const auto drafted = static_cast<int32_t>(s.draft.size());
  out.runs_of.push_back(portion.sequence);
  out.runs.push_back({s.slot, s.cached_ahead(), portion.count + drafted, samples ? 1 + drafted : 0, samples && s.scores});
}

}  // namespace

void Plan::lay_out(int32_t vocabulary) {
  int32_t samples = 0, scored = 0;
  for (const CdRun& run : runs) {
    samples += run.samples;
    if (run.scores) scored += run.samples;
  }
  chosen.resize(samples);
  scores.resize(static_cast<size_t>(scored) * vocabulary);
  step = {static_cast<int32_t>(runs.size()), static_cast<int32_t>(tokens.size()), samples, scored, runs.data(),
          tokens.data(), chosen.data(), scored ? scores.data() : nullptr, static_cast<int32_t>(released.size()),
          released.data()};
}

bool goes_before(const Sequence& a, const Sequence& b) {
  return a.priority != b.priority ? a.priority < b.priority : a.id < b.id;
}

std::vector<int32_t> share(int32_t budget, const std::vector<int32_t>& wanted) {
  std::vector<size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return wanted[a] < wanted[b]; });
  std::vector<int32_t> given(wanted.size());
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const auto left = static_cast<int32_t>(order.size() - rank);
    given[order[rank]] = std::min(wanted[order[rank]], budget / left);
    budget -= given[order[rank]];
  }
  return given;
}

void foresee(const Plan* under_way, const std::vector<Sequence*>& running) {
  for (Sequence* sequence : running) {
    sequence->fed = 0;
    sequence->awaited = -1;
  }
  if (under_way == nullptr) return;
  int32_t sample = 0;
  for (size_t i = 0; i < under_way->runs.size(); ++i) {
    const CdRun& run = under_way->runs[i];
    if (Sequence* sequence = under_way->runs_of[i]) {
      sequence->fed = run.length;
      sequence->awaited = run.samples > 0 ? sample : -1;
    }
    sample += run.samples;
  }
}

bool can_look_ahead(const Plan& under_way, const std::vector<Sequence*>& running, const Limits& limits) {
  const bool drafting = draft_budget(running, limits) > 0;
  for (size_t i = 0; i < under_way.runs.size(); ++i) {
    const CdRun& run = under_way.runs[i];
    const Sequence* sequence = under_way.runs_of[i];
    if (sequence == nullptr || sequence->left || run.samples == 0) continue;
    if (run.samples > 1 || sequence->scores) return false;
    if (drafting && sequence->may_guess(limits.context)) return false;
  }
  return true;
}

void plan(const std::vector<Sequence*>& running, const Limits& limits, Plan& out) {
  out.runs_of.clear();
  out.runs.clear();
  out.tokens.clear();
  std::vector<Portion> portions;
  portions.reserve(running.size());
  portion_out(running, limits.prefill_tokens, portions);
  draft(portions, draft_budget(running, limits), limits);
  for (const Portion& portion : portions) add_run(portion, out);
}

}  // namespace copydesk
