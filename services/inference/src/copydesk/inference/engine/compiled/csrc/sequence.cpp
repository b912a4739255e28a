#include "sequence.hpp"

#include <algorithm>

namespace copydesk {

int32_t Sequence::room(int32_t context) const {
  return std::min(max_tokens - made(), context - static_cast<int32_t>(history.size()));
}

int32_t Sequence::room_ahead(int32_t context) const { return room(context) - (awaited >= 0); }

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

bool Sequence::may_guess(int32_t context) const {
  if (room_ahead(context) <= 1) return false;
  return !source.empty() || may_echo(history);
}

Finish Sequence::advance(const CdRun& run, const int32_t* tokens, const int32_t* sampled, int32_t context) {
  const int32_t guesses = std::max(0, run.samples - 1);
  const int32_t* guess = tokens + (run.length - guesses);
  const auto right = static_cast<int32_t>(std::mismatch(guess, guess + guesses, sampled).first - guess);
  ++passes;
  drafted += guesses;
  accepted += right;
  cached += run.length - guesses + right;
  if (run.samples == 0) return Finish::kNone;
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
