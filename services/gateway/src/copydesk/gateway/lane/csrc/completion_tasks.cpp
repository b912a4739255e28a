// Plain requests to /v1/completions and /v1/chat/completions as tasks. What comes first in a task, its prompt, is
// written when it is read; what comes behind it, when all of the body is read.
#include <cstdint>
#include <cstring>
#include <string_view>

#include "forms.hpp"
#include "json_reader.hpp"
#include "msgpack.hpp"
#include "request_fields.hpp"

namespace copydesk {
namespace {

constexpr int kMostStops = 4;
constexpr std::size_t kMostStopBytes = 1'000;  // Python counts characters, which are not more
constexpr std::size_t kMostTagBytes = 1'024;
constexpr std::size_t kMostMessages = UINT16_MAX;
constexpr long long kCompletionTokens = 16;
constexpr long long kInt32 = INT32_MAX, kInt64 = INT64_MAX;

// An array of the 16 fields of GenerateText, the first of which is its tag.
constexpr std::string_view kTaskHead("\xDC\x00\x10\xADgenerate_text", 17);
constexpr std::string_view kTextHead("\x92\xA4text"), kChatHead("\x92\xA4" "chat");
constexpr std::size_t kMostParameterBytes = 82;  // nine numbers of nine bytes, and the head of the stops

struct Parameters {
  long long max_tokens = 0;        // 0: not given
  long long newer_max_tokens = 0;  // max_completion_tokens
  double temperature = 1;
  double top_p = 1;
  long long top_k = 0;
  double min_p = 0;
  bool seeded = false;
  long long seed = 0;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  double repetition_penalty = 1;
  JsonText stops[kMostStops];
  int stop_count = 0;
  bool ignore_eos = false;
};

// The text, if it has no escapes: nobody escapes what is compared with this.
std::string_view unescaped(const JsonText& text) { return {text.data, text.escaped() ? 0 : text.raw}; }

void append_packed(const JsonText& text, std::string& out) {
  msgpack::append_text_head(text.size, out);
  append_text(text, out);
}

bool read_switch(JsonReader& json, bool& value) {
  value = json.take_word("true");
  return value || json.take_word("false");
}

bool read_stop(JsonReader& json, Parameters& parameters) {
  if (parameters.stop_count == kMostStops) return false;
  JsonText& stop = parameters.stops[parameters.stop_count++];
  return json.text(stop) && stop.size >= 1 && stop.size <= kMostStopBytes;
}

bool read_stops(JsonReader& json, Parameters& parameters) {
  if (!json.take('[')) return read_stop(json, parameters);
  if (json.take(']')) return true;
  do {
    if (!read_stop(json, parameters)) return false;
  } while (json.take(','));
  return json.take(']');
}

// Which of the members of an object have been read; `read` is false the second time.
class Once {
 public:
  bool read(std::size_t member) {
    const std::uint64_t bit = std::uint64_t{1} << member;
    if ((seen_ & bit) != 0) return false;
    seen_ |= bit;
    return true;
  }

  bool has(std::size_t member) const { return (seen_ >> member & 1) != 0; }

 private:
  std::uint64_t seen_ = 0;
};

// One message of a chat.
struct Turn {
  enum Member : std::size_t { kRole, kContent };

  // Those from the third on are only taken as null, as clients send them back with an answer.
  static constexpr std::string_view kNames[] = {
      "role", "content", "refusal", "name", "tool_calls", "function_call", "audio", "tool_call_id", "annotations"};
  static constexpr std::size_t kMembers = sizeof kNames / sizeof kNames[0];

  static std::size_t member_of(std::string_view name) {
    std::size_t member = 0;
    while (member < kMembers && name != kNames[member]) ++member;
    return member;
  }

  bool read_member(JsonReader& json) {
    std::string_view name;
    if (!json.name(name)) return false;
    const std::size_t member = member_of(name);
    if (member == kMembers || !once.read(member)) return false;
    if (member == kRole) return json.text(role);
    if (member == kContent) return json.text(content);
    return json.take_word("null");
  }

  bool has_known_role() const {
    const std::string_view name = unescaped(role);
    return name == "user" || name == "system" || name == "assistant" || name == "developer";
  }

  bool read(JsonReader& json) {
    if (!json.take('{')) return false;
    do {
      if (!read_member(json)) return false;
    } while (json.take(','));
    return json.take('}') && once.has(kContent) && has_known_role();
  }

  Once once;
  JsonText role, content;
};

// The head of an array whose place was kept with one byte.
bool set_array_head(std::string& out, std::size_t place, std::size_t count) {
  if (count > kMostMessages) return false;
  char head[5];
  msgpack::Writer writer(head);
  writer.array_head(count);
  out.replace(place, 1, head, static_cast<std::size_t>(writer.at() - head));
  return true;
}

bool read_messages(JsonReader& json, std::string& payload) {
  payload += kChatHead;
  const std::size_t place = payload.size();
  payload.push_back('\0');
  std::size_t count = 0;
  if (!json.take('[')) return false;
  do {
    Turn turn;
    if (!turn.read(json)) return false;
    payload.push_back('\x92');
    append_packed(turn.role, payload);
    append_packed(turn.content, payload);
    ++count;
  } while (json.take(','));
  return json.take(']') && set_array_head(payload, place, count);
}

bool read_prompt(JsonReader& json, std::string& payload) {
  JsonText text;
  if (!json.text(text) || text.size == 0) return false;
  payload += kTextHead;
  append_packed(text, payload);
  return true;
}

class Request {
 public:
  Request(Bytes body, Bytes model, Api api, std::string& payload)
      : json_(body), model_(model), api_(api), payload_(payload) {}

  bool read() {
    payload_ += kTaskHead;
    if (!json_.take('{')) return false;
    do {
      if (!read_member()) return false;
    } while (json_.take(','));
    return prompted_ && json_.take('}') && json_.at_end();
  }

  const Parameters& parameters() const { return parameters_; }

 private:
  bool read_member() {
    std::string_view name;
    if (!json_.name(name)) return false;
    const std::size_t index = field_of(name);
    if (index == kFieldCount) return false;
    const Field& field = kFields[index];
    if ((field.apis & api_) == 0 || !once_.read(index)) return false;
    if (field.takes == Takes::kPrompt) return prompted_ = read_prompt(json_, payload_);
    if (field.takes == Takes::kMessages) return prompted_ = read_messages(json_, payload_);
    return json_.take_word("null") || read_parameter(field.takes);
  }

  bool read_parameter(Takes takes) {
    Parameters& own = parameters_;
    switch (takes) {
      case Takes::kMaxTokens: return json_.integer(1, kInt32, own.max_tokens);
      case Takes::kNewerMaxTokens: return json_.integer(1, kInt32, own.newer_max_tokens);
      case Takes::kTemperature: return json_.real(0, 100, own.temperature);
      case Takes::kTopP: return json_.real(0, 1, own.top_p) && own.top_p > 0;
      case Takes::kTopK: return json_.integer(-1, kInt32, own.top_k);
      case Takes::kMinP: return json_.real(0, 1, own.min_p);
      case Takes::kSeed: return own.seeded = json_.integer(-kInt64 - 1, kInt64, own.seed);
      case Takes::kPresencePenalty: return json_.real(-2, 2, own.presence_penalty);
      case Takes::kFrequencyPenalty: return json_.real(-2, 2, own.frequency_penalty);
      case Takes::kRepetitionPenalty:
        return json_.real(0, 10, own.repetition_penalty) && own.repetition_penalty > 0;
      case Takes::kStop: return read_stops(json_, own);
      case Takes::kIgnoreEos: return read_switch(json_, own.ignore_eos);
      default: return read_idle(takes);
    }
  }

  // What has no effect on the task.
  bool read_idle(Takes takes) {
    bool ignored_switch;
    long long ignored;
    JsonText text;
    switch (takes) {
      case Takes::kModel: return json_.text(text) && is_model(text);
      case Takes::kOff: return json_.take_word("false");
      case Takes::kSwitch: return read_switch(json_, ignored_switch);
      case Takes::kOne: return json_.integer(1, 1, ignored);
      case Takes::kZero: return json_.integer(0, 0, ignored);
      case Takes::kEmpty: return json_.text(text) && text.raw == 0;
      case Takes::kEmptyList: return json_.take('[') && json_.take(']');
      case Takes::kTag: return json_.text(text) && text.size <= kMostTagBytes;
      default: return false;
    }
  }

  // Some clients escape the slash of a name; it is written to the payload for a moment.
  bool is_model(const JsonText& text) {
    if (text.size != model_.size) return false;
    const std::size_t start = payload_.size();
    append_text(text, payload_);
    const bool same = std::memcmp(payload_.data() + start, model_.data, model_.size) == 0;
    payload_.resize(start);
    return same;
  }

  JsonReader json_;
  Bytes model_;
  Api api_;
  std::string& payload_;
  Once once_;
  bool prompted_ = false;
  Parameters parameters_;
};

void optional(bool given, long long value, msgpack::Writer& writer) {
  if (given) writer.integer(value);
  else writer.nil();
}

// What GenerateText has behind its prompt. `max_tokens` 0: None.
void append_parameters(const Parameters& own, long long max_tokens, std::string& out) {
  char buffer[kMostParameterBytes];
  msgpack::Writer writer(buffer);
  optional(max_tokens != 0, max_tokens, writer);
  writer.real(own.temperature);
  writer.real(own.top_p);
  writer.integer(own.top_k);
  writer.real(own.min_p);
  optional(own.seeded, own.seed, writer);
  writer.real(own.presence_penalty);
  writer.real(own.frequency_penalty);
  writer.real(own.repetition_penalty);
  writer.array_head(static_cast<std::size_t>(own.stop_count));
  out.append(buffer, static_cast<std::size_t>(writer.at() - buffer));
  for (int index = 0; index < own.stop_count; ++index) append_packed(own.stops[index], out);
  msgpack::Writer rest(buffer);
  rest.array_head(0);   // stop_ids
  rest.integer(1);      // n
  rest.boolean(false);  // stream
  rest.boolean(own.ignore_eos);
  out.append(buffer, static_cast<std::size_t>(rest.at() - buffer));
}

bool append_completion(Bytes body, Bytes model, std::string& payload) {
  Request request(body, model, kCompletions, payload);
  if (!request.read()) return false;
  const Parameters& own = request.parameters();
  append_parameters(own, own.max_tokens == 0 ? kCompletionTokens : own.max_tokens, payload);
  return true;
}

bool append_chat(Bytes body, Bytes model, std::string& payload) {
  Request request(body, model, kChats, payload);
  if (!request.read()) return false;
  const Parameters& own = request.parameters();
  const long long older = own.max_tokens, newer = own.newer_max_tokens;
  if (older != 0 && newer != 0 && older != newer) return false;
  append_parameters(own, newer == 0 ? older : newer, payload);
  return true;
}

bool whole_or_nothing(bool written, std::string& out, std::size_t start) {
  if (!written) out.resize(start);
  return written;
}

}  // namespace

bool completion_task(Bytes body, Bytes model, std::string& payload) {
  const std::size_t start = payload.size();
  return whole_or_nothing(body.size <= UINT32_MAX && append_completion(body, model, payload), payload, start);
}

bool chat_task(Bytes body, Bytes model, std::string& payload) {
  const std::size_t start = payload.size();
  return whole_or_nothing(body.size <= UINT32_MAX && append_chat(body, model, payload), payload, start);
}

}  // namespace copydesk
