#include "sequence.hpp"

#include <algorithm>

namespace copydesk {

int32_t Sequence::room(int32_t context) const {
  return std::min(max_tokens - made(), context - static_cast<int32_t>(history.size()));
}

int32_t Sequence::reserve(int32_t context) const {
  const int32_t most = std::min(context, prompt_length + max_tokens);
  return (most + kPageTokens - 1) / kPageTokens * kPageTokens;
}

bool Sequence::stops_at(int32_t token) const { return std::find(stops.begin(), stops.end(), token) != stops.end(); }

void Sequence::guess(int32_t free, int32_t most, int32_t context, int32_t vocabulary) {
  draft.clear();
  const int32_t count = std::min({std::max(course.window, free), most, room(context) - 1});
  if (count <= 0) return;
  if (source.empty())
    from_history(history, count, draft);
  else
    from_source(source, course.position, count, draft);
  // A stop token ends the answer: nothing needs to be fed after it.
  const auto usable = [&](int32_t token) { return token >= 0 && token < vocabulary && !stops_at(token); };
  draft.erase(std::find_if_not(draft.begin(), draft.end(), usable), draft.end());
}

Finish Sequence::advance(int32_t fed, int32_t samples, const int32_t* sampled, int32_t context) {
  const auto guesses = static_cast<int32_t>(draft.size());
  int32_t right = 0;
  while (right < guesses && draft[right] == sampled[right]) ++right;
  ++passes;
  drafted += guesses;
  accepted += right;
  cached += fed - guesses + right;
  if (samples == 0) return Finish::kNone;
  for (int32_t place = 0; place <= right; ++place) {
    const Finish finish = accept(sampled[place], context);
    if (finish != Finish::kNone) return finish;
  }
  course = proceed(course, source, history.data() + prompt_length, made(), guesses, right);
  return Finish::kNone;
}

Finish Sequence::accept(int32_t token, int32_t context) {
  if (stops_at(token)) {
    stop_id = token;
    return Finish::kStop;
  }
  history.push_back(token);
  return room(context) > 0 ? Finish::kNone : Finish::kLength;
}

}  // namespace copydesk
