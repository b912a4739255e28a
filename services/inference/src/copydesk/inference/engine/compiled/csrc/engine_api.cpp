// The engine's C interface, for ctypes; engine/native/compiled_engine.py is its other side.
#include <limits>
#include <new>

#include "engine.hpp"

using copydesk::Engine;
using copydesk::EngineOptions;
using copydesk::Sequence;

extern "C" {

struct CdRequest {
  int64_t id;
  double deadline;
  int32_t priority, max_tokens, scores, stream;
  int32_t prompt_length, source_length, stops_length;
  const int32_t *prompt, *source, *stops;
};

Engine* cd_engine_open(const EngineOptions* options) { return new (std::nothrow) Engine(*options); }

void cd_engine_close(Engine* engine) { delete engine; }

// 0: taken; 1: the queue is full.
int32_t cd_engine_submit(Engine* engine, const CdRequest* request) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = request->id;
  sequence->priority = request->priority;
  sequence->deadline = request->deadline;
  sequence->max_tokens = request->max_tokens;
  sequence->scores = request->scores != 0;
  sequence->stream = request->stream != 0;
  sequence->prompt_length = request->prompt_length;
  sequence->history.assign(request->prompt, request->prompt + request->prompt_length);
  sequence->source.assign(request->source, request->source + request->source_length);
  sequence->stops.assign(request->stops, request->stops + request->stops_length);
  return engine->submit(std::move(sequence)) ? 0 : 1;
}

void cd_engine_cancel(Engine* engine, int64_t id) { engine->cancel(id); }

int32_t cd_engine_step(Engine* engine, double now) { return engine->step(now); }

int32_t cd_engine_run(Engine* engine) { return engine->run(); }

void cd_engine_stop(Engine* engine) { engine->stop(); }

// Returns how many numbers `out` then points to; see Engine::Event for their meaning.
int64_t cd_engine_take(Engine* engine, const int64_t** out) {
  const auto& events = engine->take();
  *out = events.data();
  return static_cast<int64_t>(events.size());
}

void cd_engine_acknowledge(Engine* engine) { engine->acknowledge(); }

void cd_engine_load(Engine* engine, int32_t* running, int32_t* queued, double* step_ms) {
  engine->load(running, queued, step_ms);
}

int32_t cd_engine_cache_left(Engine* engine) { return engine->cache_left(); }

void cd_engine_outlook(Engine* engine, int32_t priority, int32_t* ahead, int32_t* free, int32_t* slots,
                       double* request_seconds) {
  engine->outlook(priority, ahead, free, slots, request_seconds);
}

double cd_engine_step_age(const Engine* engine, double now) { return engine->step_age(now); }

}  // extern "C"
