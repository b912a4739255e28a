#include "draft.hpp"

#include <algorithm>

namespace copydesk {
namespace {

constexpr int32_t kFirstWindow = 4;
constexpr struct {
  int32_t length, reach;
} kSuffixes[] = {{2, 12}, {1, 4}};
constexpr int32_t kLookBack = 512;
constexpr int32_t kShortestEcho = 2, kLongestEcho = 4;

int32_t next_window(int32_t window, int32_t drafted, int32_t accepted) {
  if (accepted == drafted) return std::max(window, 2 * drafted);
  return std::min(kFirstWindow, std::max({1, accepted, drafted / 2}));
}

bool ends_at(const Tokens& source, int32_t end, const int32_t* suffix, int32_t length) {
  if (end < length || end > static_cast<int32_t>(source.size())) return false;
  return std::equal(suffix, suffix + length, source.begin() + (end - length));
}

int32_t realigned(const Tokens& source, const int32_t* answer, int32_t length, int32_t near) {
  if (source.empty()) return 0;
  for (const auto& [wanted, reach] : kSuffixes) {
    if (length < wanted) continue;
    const int32_t* suffix = answer + (length - wanted);
    for (int32_t distance = 0; distance < reach; ++distance)
      for (int32_t end : {near + distance + 1, near - distance + 1})
        if (ends_at(source, end, suffix, wanted)) return end;
  }
  return std::min(near + 1, static_cast<int32_t>(source.size()));
}

int32_t common_suffix(const Tokens& history, int32_t end) {
  const auto last = static_cast<int32_t>(history.size()) - 1;
  int32_t length = 1;
  while (length < std::min(kLongestEcho, end) && history[end - 1 - length] == history[last - length]) ++length;
  return length;
}

int32_t after_echo(const Tokens& history) {
  const auto size = static_cast<int32_t>(history.size());
  int32_t best = size, longest = kShortestEcho - 1;
  auto place = history.begin() + std::max(0, size - kLookBack);
  const auto stop = history.end() - 1;
  while ((place = std::find(place, stop, history.back())) != stop) {
    ++place;
    const auto end = static_cast<int32_t>(place - history.begin());
    const int32_t length = common_suffix(history, end);
    if (length >= std::max(longest, kShortestEcho)) best = end, longest = length;
  }
  return best;
}

void append(const Tokens& tokens, int32_t start, int32_t count, Tokens& draft) {
  const auto size = static_cast<int32_t>(tokens.size());
  if (start >= size) return;
  draft.insert(draft.end(), tokens.begin() + start, tokens.begin() + std::min(size, start + count));
}

}  // namespace

Course outset(const Tokens& source) { return {0, std::max(static_cast<int32_t>(source.size()), kFirstWindow)}; }

void from_source(const Tokens& source, int32_t position, int32_t count, Tokens& draft) {
  append(source, position, count, draft);
}

void from_history(const Tokens& history, int32_t count, Tokens& draft) {
  append(history, after_echo(history), count, draft);
}

// An echo is of two tokens at the least, so that the last of those that are known must have come up before.
bool may_echo(const Tokens& history) {
  const auto size = static_cast<int32_t>(history.size());
  const auto last = history.end() - 1;
  return std::find(history.begin() + std::max(0, size - kLookBack), last, *last) != last;
}

Course proceed(Course course, const Tokens& source, const int32_t* answer, int32_t length, int32_t drafted,
               int32_t accepted) {
  return {realigned(source, answer, length, course.position + accepted),
          next_window(course.window, drafted, accepted)};
}

}  // namespace copydesk
