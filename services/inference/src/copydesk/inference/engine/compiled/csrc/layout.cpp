#include "layout.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace copydesk {
namespace {

constexpr int64_t kReachStep = 32;
constexpr int kShort = 3;
constexpr int64_t kGroupNumbers = sizeof(LayoutGroup) / sizeof(int64_t);

// A run, and where it, its tokens, its samples and those with scores are in the step.
struct Placed {
  CdRun run;
  int bucket;
  int64_t place, token, sample, scored;
  int64_t end() const { return int64_t{run.start} + run.length; }
};

using Runs = std::vector<Placed>;
using Groups = std::vector<LayoutGroup>;

int bucket_of(int64_t length) {
  int bits = kShort;
  while (length > int64_t{1} << bits) ++bits;
  return bits;
}

Runs ordered(const CdStep& step) {
  Runs runs;
  runs.reserve(step.runs);
  int64_t token = 0, sample = 0, scored = 0;
  for (int32_t r = 0; r < step.runs; ++r) {
    const CdRun& run = step.run[r];
    runs.push_back({run, bucket_of(run.length), r, token, sample, scored});
    token += run.length;
    sample += run.samples;
    if (run.scores) scored += run.samples;
  }
  std::sort(runs.begin(), runs.end(), [](const Placed& a, const Placed& b) {
    return a.bucket != b.bucket ? a.bucket < b.bucket : a.run.slot < b.run.slot;
  });
  return runs;
}

// All of a group but where its lists are.
LayoutGroup describe(const Placed* begin, const Placed* end, int64_t first, int32_t context) {
  const int64_t count = end - begin;
  const int64_t span = end[-1].run.slot - begin->run.slot + 1;
  LayoutGroup group{};
  int64_t tokens = 0, reach = 0;
  for (const Placed* placed = begin; placed != end; ++placed) {
    tokens += placed->run.length;
    group.width = std::max<int64_t>(group.width, placed->run.length);
    reach = std::max(reach, placed->end());
  }
  group.first = first;
  group.last = first + tokens;
  group.contiguous = 2 * span <= 3 * count;
  group.rows = group.contiguous ? span : count;
  group.reach = std::min<int64_t>(context, (reach + kReachStep - 1) / kReachStep * kReachStep);
  return group;
}

Groups grouped(const Runs& runs, int32_t context) {
  Groups groups;
  int64_t first = 0;
  for (size_t begin = 0, end = 0; begin < runs.size(); begin = end) {
    while (end < runs.size() && runs[end].bucket == runs[begin].bucket) ++end;
    groups.push_back(describe(&runs[begin], runs.data() + end, first, context));
    first = groups.back().last;
  }
  return groups;
}

// Gives the groups' lists their places from `next` on, and returns where they end.
int64_t place_lists(Groups& groups, int64_t next) {
  const auto take = [&](int64_t length) {
    next += length;
    return next - length;
  };
  for (LayoutGroup& group : groups) {
    const int64_t tokens = group.last - group.first, cells = group.rows * group.width;
    group.slots = take(group.rows);
    group.positions = take(cells);
    group.cells = tokens == cells ? -1 : take(tokens);
    group.sources = tokens == cells ? -1 : take(cells);
  }
  return next;
}

int64_t* write_tokens(const CdStep& step, const Runs& runs, int32_t context, int64_t* out) {
  int64_t *position = out + step.tokens, *row = position + step.tokens;
  for (const Placed& placed : runs) {
    const CdRun& run = placed.run;
    out = std::copy_n(step.token + placed.token, run.length, out);
    for (int64_t p = run.start; p < placed.end(); ++p) {
      *position++ = p;
      *row++ = int64_t{run.slot} * context + p;
    }
  }
  return row;
}

int64_t* write_samples(const CdStep& step, const Runs& runs, int64_t* out) {
  int64_t *places = out + step.samples, *scored = places + step.samples;
  int64_t token = 0, place = 0;
  for (const Placed& placed : runs) {
    token += placed.run.length;
    for (int64_t s = 0; s < placed.run.samples; ++s, ++place) {
      *out++ = token - placed.run.samples + s;
      places[placed.sample + s] = place;
      if (placed.run.scores) scored[placed.scored + s] = place;
    }
  }
  return scored + step.scored;
}

// Row by row; cells that stand for no token repeat one, so that all stay finite.
const Placed* write_group(const LayoutGroup& group, const Placed* placed, int64_t* numbers) {
  int64_t* slot = numbers + group.slots;
  int64_t* position = numbers + group.positions;
  int64_t* cell = group.cells < 0 ? nullptr : numbers + group.cells;
  int64_t* source = group.sources < 0 ? nullptr : numbers + group.sources;
  const int64_t lowest = placed->run.slot;
  int64_t token = 0;
  for (int64_t row = 0; row < group.rows; ++row) {
    *slot = group.contiguous ? lowest + row : placed->run.slot;
    const bool idle = *slot++ != placed->run.slot;
    const int64_t length = idle ? 0 : placed->run.length;
    for (int64_t i = 0; i < group.width; ++i) {
      const int64_t within = std::min(i, length - 1);
      *position++ = idle ? 0 : placed->run.start + within;
      if (source) *source++ = idle ? 0 : token + within;
      if (cell && i < length) *cell++ = row * group.width + i;
    }
    token += length;
    if (!idle) ++placed;
  }
  return placed;
}

}  // namespace

int64_t lay_out(const CdStep& step, int32_t context, int64_t* numbers, int64_t room) {
  const Runs runs = ordered(step);
  Groups groups = grouped(runs, context);
  const auto count = static_cast<int64_t>(groups.size());
  const int64_t lists = 1 + count * kGroupNumbers + int64_t{3} * step.tokens + int64_t{2} * step.samples + step.scored +
                        step.runs;
  const int64_t needed = place_lists(groups, lists);
  if (needed > room) return needed;
  numbers[0] = count;
  std::memcpy(numbers + 1, groups.data(), groups.size() * sizeof(LayoutGroup));
  int64_t* next = write_tokens(step, runs, context, numbers + 1 + count * kGroupNumbers);
  next = write_samples(step, runs, next);
  for (const Placed& placed : runs) *next++ = placed.place;
  const Placed* placed = runs.data();
  for (const LayoutGroup& group : groups) placed = write_group(group, placed, numbers);
  return needed;
}

}  // namespace copydesk

extern "C" {

// For ctypes; engine/native/flat_layout.py is its other side.
int64_t cd_lay_out(const CdStep* step, int32_t context, int64_t* numbers, int64_t room) {
  return copydesk::lay_out(*step, context, numbers, room);
}

}  // extern "C"
