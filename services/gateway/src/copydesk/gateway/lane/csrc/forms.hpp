// From the body of a plain request to the task that a pod is given, and from a pod's answer to the body of the
// response: what copydesk.gateway.openai.validation and .forms do, byte for byte, for the requests of nearly all
// clients. Whatever is not plain is refused here and decided in Python, so that nothing has to be known here about
// what is wrong with a request.
#pragma once

#include <cstddef>
#include <string>

namespace copydesk {

struct Bytes {
  const char* data;
  std::size_t size;
};

// The payload of a plain request (msgpack, copydesk.common.tasks.GenerateText), appended to `payload`. `model` is
// the one served. False: not plain, or wrong, and `payload` is as it was.
bool completion_task(Bytes body, Bytes model, std::string& payload);
bool chat_task(Bytes body, Bytes model, std::string& payload);

// What an answer repeats. `created` is in Unix seconds; `model_json` and `digest_json` are JSON strings with their
// quotes. Of size 0, `digest_json` stands for a pod that does not tell its weights.
struct Heading {
  Bytes request_id;
  long long created;
  Bytes model_json;
  Bytes digest_json;
};

// The JSON body of an answer, made of a pod's payload (msgpack, copydesk.common.tasks.GeneratedText), appended to
// `body`. False: not what is expected, and `body` is as it was.
bool completion_answer(Bytes payload, const Heading& heading, std::string& body);
bool chat_answer(Bytes payload, const Heading& heading, std::string& body);

// `text` as a JSON string with its quotes, as msgspec writes it; `text` must be valid UTF-8.
void append_json_string(Bytes text, std::string& out);

bool valid_utf8(Bytes text);

// The payload of a plain request to /v1/correct (msgpack, copydesk.common.tasks.CorrectSentence), appended to
// `payload`, and its one sentence to `sentence`. `most_characters` is the smaller of what a sentence and what a
// request may have. False: not plain, or wrong, and both are as they were.
bool correction_task(Bytes body, Bytes model, std::size_t most_characters, std::string& payload,
                     std::string& sentence);

// The JSON body of the answer (copydesk.gateway.schemas.TextAnswer) to a `sentence` that correction_task gave, made
// of a pod's payload (msgpack, copydesk.common.tasks.CorrectedSentence), appended to `body`. `latency_us` is what
// becomes latency_ms. False: not what is expected, and `body` is as it was.
bool correction_answer(Bytes payload, Bytes sentence, const Heading& heading, long long latency_us,
                       std::string& body);

}  // namespace copydesk
