// The answers of pods as the bodies of /v1/completions and /v1/chat/completions.
#include <charconv>
#include <string_view>

#include "forms.hpp"
#include "json_text.hpp"
#include "msgpack.hpp"

namespace copydesk {
namespace {

constexpr std::size_t kFewestFields = 6, kKnownFields = 9;  // of GeneratedText, with its tag
constexpr int kMostContainers = 64;                         // in the fields of newer pods
constexpr long long kMostTokens = INT32_MAX;

struct StopReason {
  enum Kind { kNone, kText, kToken } kind = kNone;
  Bytes text{nullptr, 0};
  long long token = 0;
};

struct Generated {
  Bytes text;
  Bytes finish;
  StopReason reason;
  long long prompt_tokens;
  long long completion_tokens;
};

std::string_view view(Bytes bytes) { return {bytes.data, bytes.size}; }

bool read_reason(msgpack::Reader& reader, StopReason& reason) {
  if (reader.take_nil()) return true;
  reason.kind = reader.text(reason.text) ? StopReason::kText : StopReason::kToken;
  return reason.kind == StopReason::kText || reader.integer(reason.token);
}

bool read_tokens(msgpack::Reader& reader, long long& tokens) {
  return reader.integer(tokens) && tokens >= 0 && tokens <= kMostTokens;
}

// The fields that answers do not tell: those that are known must be whole numbers or nil.
bool skip_rest(msgpack::Reader& reader, std::size_t fields) {
  long long ignored;
  for (std::size_t field = kFewestFields; field < fields; ++field) {
    const bool known = field < kKnownFields;
    const bool right = known ? reader.take_nil() || reader.integer(ignored) : reader.skip(kMostContainers);
    if (!right) return false;
  }
  return reader.at_end();
}

bool read_generated(Bytes payload, Generated& answer) {
  msgpack::Reader reader(payload);
  std::size_t fields;
  Bytes tag;
  if (!reader.array_head(fields) || fields < kFewestFields) return false;
  if (!reader.text(tag) || view(tag) != "generated_text") return false;
  if (!reader.text(answer.text) || !reader.text(answer.finish)) return false;
  if (view(answer.finish) != "stop" && view(answer.finish) != "length") return false;
  if (!read_reason(reader, answer.reason)) return false;
  if (!read_tokens(reader, answer.prompt_tokens) || !read_tokens(reader, answer.completion_tokens)) return false;
  return skip_rest(reader, fields);
}

void append(std::string_view text, std::string& out) { out.append(text.data(), text.size()); }

void append_integer(long long value, std::string& out) {
  char digits[20];
  const std::to_chars_result written = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, static_cast<std::size_t>(written.ptr - digits));
}

// What the two APIs' answers have around the same things.
struct Shape {
  std::string_view before_id, before_created, before_text, behind_text, behind_reason;
};

constexpr Shape kCompletion{
    "{\"id\":\"cmpl-",
    "\",\"object\":\"text_completion\",\"created\":",
    ",\"choices\":[{\"index\":0,\"text\":\"",
    "\",\"logprobs\":null,\"finish_reason\":\"",
    "}],\"usage\":{\"prompt_tokens\":",
};

constexpr Shape kChat{
    "{\"id\":\"chatcmpl-",
    "\",\"object\":\"chat.completion\",\"created\":",
    ",\"choices\":[{\"index\":0,\"message\":{\"content\":\"",
    "\",\"role\":\"assistant\",\"refusal\":null},\"finish_reason\":\"",
    ",\"logprobs\":null}],\"usage\":{\"prompt_tokens\":",
};

bool append_heading(const Heading& heading, const Shape& shape, std::string& out) {
  append(shape.before_id, out);
  if (!append_escaped(heading.request_id, out)) return false;
  append(shape.before_created, out);
  append_integer(heading.created, out);
  append(",\"model\":", out);
  append(view(heading.model_json), out);
  return true;
}

bool append_reason(const StopReason& reason, std::string& out) {
  if (reason.kind == StopReason::kNone) append("null", out);
  if (reason.kind == StopReason::kToken) append_integer(reason.token, out);
  if (reason.kind != StopReason::kText) return true;
  out.push_back('"');
  const bool valid = append_escaped(reason.text, out);
  out.push_back('"');
  return valid;
}

bool append_choice(const Generated& answer, const Shape& shape, std::string& out) {
  append(shape.before_text, out);
  if (!append_escaped(answer.text, out)) return false;
  append(shape.behind_text, out);
  append(view(answer.finish), out);
  append("\",\"stop_reason\":", out);
  return append_reason(answer.reason, out);
}

void append_usage(const Generated& answer, const Shape& shape, std::string& out) {
  append(shape.behind_reason, out);
  append_integer(answer.prompt_tokens, out);
  append(",\"completion_tokens\":", out);
  append_integer(answer.completion_tokens, out);
  append(",\"total_tokens\":", out);
  append_integer(answer.prompt_tokens + answer.completion_tokens, out);
  out.push_back('}');
}

void append_digest(Bytes digest_json, std::string& out) {
  if (digest_json.size == 0) return;
  append(",\"system_fingerprint\":", out);
  append(view(digest_json), out);
}

bool append_answer(Bytes payload, const Heading& heading, const Shape& shape, std::string& out) {
  const std::size_t start = out.size();
  Generated answer;
  if (!read_generated(payload, answer)) return false;
  if (!append_heading(heading, shape, out) || !append_choice(answer, shape, out)) {
    out.resize(start);
    return false;
  }
  append_usage(answer, shape, out);
  append_digest(heading.digest_json, out);
  out.push_back('}');
  return true;
}

}  // namespace

bool completion_answer(Bytes payload, const Heading& heading, std::string& body) {
  return append_answer(payload, heading, kCompletion, body);
}

bool chat_answer(Bytes payload, const Heading& heading, std::string& body) {
  return append_answer(payload, heading, kChat, body);
}

}  // namespace copydesk
