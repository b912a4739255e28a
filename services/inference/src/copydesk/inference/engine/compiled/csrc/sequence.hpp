// One request on its way; the compiled counterpart of generation.py.
#pragma once

#include <cstdint>

#include "draft.hpp"
#include "step.hpp"

namespace copydesk {

enum class Finish : int32_t { kNone = -1, kStop = 0, kLength = 1, kCancelled = 2, kDeadline = 3, kDisplaced = 4 };

struct Sequence {
  int64_t id = 0;
  int32_t priority = 0;
  double deadline = 0.0;  // seconds, on the engine's clock
  int32_t max_tokens = 0, prompt_length = 0;
  bool scores = false;  // the tokens are chosen by the host, from the model's scores
  bool stream = false;
  Tokens source, stops;
  Tokens history;  // prompt, then the tokens made

  int32_t slot = -1;
  int32_t cached = 0;  // tokens whose keys and values are in the slot
  int32_t passes = 0, drafted = 0, accepted = 0;
  int32_t stop_id = -1;  // the stop token that ended it
  double admitted = 0.0;  // when it got its slot, in steady seconds
  Course course;
  Tokens draft;  // of the step that is being planned

  // What a step that is under way has of it while the next one is planned (`foresee` in schedule.hpp): how many
  // tokens it feeds, and at which of its samples the next one is chosen; 0 and -1: nothing.
  int32_t fed = 0, awaited = -1;
  bool left = false;              // its last run is under way, and its slot is free for others in later steps
  Finish ending = Finish::kNone;  // how it ends after that run, unless its tokens end it

  int32_t made() const { return static_cast<int32_t>(history.size()) - prompt_length; }
  int32_t room(int32_t context) const;

  // Seen from behind the step that is under way.
  int32_t made_ahead() const { return made() + (awaited >= 0); }
  int32_t cached_ahead() const { return cached + fed; }
  int32_t pending_ahead() const { return prompt_length + made_ahead() - cached_ahead(); }
  int32_t room_ahead(int32_t context) const;
  // How many tokens' keys and values it may come to have, in whole pages.
  int32_t reserve(int32_t context) const;
  bool stops_at(int32_t token) const;

  // Fills `draft` with guesses: `free` cost next to nothing, `most` is the limit.
  void guess(int32_t free, int32_t most, int32_t context, int32_t vocabulary);

  // Whether `guess` may find anything after the token that is awaited, whichever that is.
  bool may_guess(int32_t context) const;

  // Takes what a step made of a run of these tokens; kNone: go on.
  Finish advance(const CdRun& run, const int32_t* tokens, const int32_t* sampled, int32_t context);

 private:
  Finish accept(int32_t token, int32_t context);
};

}  // namespace copydesk
