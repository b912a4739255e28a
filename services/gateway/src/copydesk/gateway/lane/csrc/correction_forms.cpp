// The answers of pods as the bodies of /v1/correct.
#include <charconv>
#include <cstring>
#include <string_view>

#include "correction_sentence.hpp"
#include "forms.hpp"
#include "json_text.hpp"
#include "msgpack.hpp"
#include "word_diff.hpp"

namespace copydesk {
namespace {

constexpr std::size_t kKnownFields = 5;  // of CorrectedSentence, with its tag
constexpr int kMostContainers = 64;      // in the fields of newer pods
constexpr long long kMostTokens = INT32_MAX;
constexpr std::size_t kLongestAnswer = 4 * kLongestSentence;
constexpr long long kLongestLatency = 1'000'000'000'000;  // microseconds, as a double exact to the last digit
constexpr std::size_t kMostDigits = 20;

std::string_view view(Bytes bytes) { return {bytes.data, bytes.size}; }

struct Corrected {
  Bytes text;
  Bytes outcome;
  long long prompt_tokens;
  long long completion_tokens;
};

bool read_tokens(msgpack::Reader& reader, long long& tokens) {
  return reader.integer(tokens) && tokens >= 0 && tokens <= kMostTokens;
}

bool read_corrected(Bytes payload, Corrected& answer) {
  msgpack::Reader reader(payload);
  std::size_t fields;
  Bytes tag;
  if (!reader.array_head(fields) || fields < kKnownFields) return false;
  if (!reader.text(tag) || view(tag) != "corrected") return false;
  if (!reader.text(answer.text) || !reader.text(answer.outcome)) return false;
  if (!read_tokens(reader, answer.prompt_tokens) || !read_tokens(reader, answer.completion_tokens)) return false;
  for (; fields > kKnownFields; --fields) {
    if (!reader.skip(kMostContainers)) return false;
  }
  return reader.at_end();
}

// A text with single spaces between its words, and none around them.
class Normalised {
 public:
  // False: not printable ASCII, or too long.
  bool set(Bytes text) {
    text_ = text;
    if (text.size > kLongestAnswer || !split_words(text, words_)) return false;
    if (words_.normalised) return true;
    text_ = {buffer_, copy(text)};
    words_.count = 0;
    words_.normalised = true;
    return split_words(text_, words_);
  }

  Bytes text() const { return text_; }
  const Words& words() const { return words_; }

 private:
  std::size_t copy(Bytes text) {
    std::size_t size = 0;
    for (std::size_t index = 0; index < text.size; ++index) {
      const char byte = text.data[index];
      if (byte != ' ' || (size > 0 && buffer_[size - 1] != ' ')) buffer_[size++] = byte;
    }
    return size > 0 && buffer_[size - 1] == ' ' ? size - 1 : size;
  }

  Bytes text_{nullptr, 0};
  Words words_;
  char buffer_[kLongestAnswer];
};

// Writes to a buffer that is large enough.
class JsonWriter {
 public:
  explicit JsonWriter(char* at) : at_(at) {}

  char* at() const { return at_; }

  void put(std::string_view text) {
    std::memcpy(at_, text.data(), text.size());
    at_ += text.size();
  }

  void integer(long long value) { at_ = std::to_chars(at_, at_ + kMostDigits, value).ptr; }

  // Printable ASCII.
  void string(std::string_view text) {
    *at_++ = '"';
    for (const char byte : text) {
      if (byte == '"' || byte == '\\') *at_++ = '\\';
      *at_++ = byte;
    }
    *at_++ = '"';
  }

  // Thousandths as a number with a fraction, without zeros that say nothing.
  void thousandths(long long value) {
    integer(value / 1000);
    *at_++ = '.';
    const auto digit = [&](long long power) { *at_++ = static_cast<char>('0' + value / power % 10); };
    digit(100);
    if (value % 100 != 0) digit(10);
    if (value % 10 != 0) digit(1);
  }

 private:
  char* at_;
};

bool append_heading(const Heading& heading, std::string& out) {
  out += "{\"id\":\"";
  if (!append_escaped(heading.request_id, out)) return false;
  out += "\",\"model\":";
  out += view(heading.model_json);
  out += ",\"model_digest\":";
  out += view(heading.digest_json);
  return true;
}

void put_usage(const Corrected& answer, JsonWriter& writer) {
  writer.put("],\"usage\":{\"prompt_tokens\":");
  writer.integer(answer.prompt_tokens);
  writer.put(",\"completion_tokens\":");
  writer.integer(answer.completion_tokens);
  writer.put(",\"total_tokens\":");
  writer.integer(answer.prompt_tokens + answer.completion_tokens);
  writer.put(",\"sentences\":1},\"latency_ms\":");
}

void put_edit(const WordEdit& edit, Bytes target, JsonWriter& writer) {
  writer.put("{\"start\":");
  writer.integer(edit.start);
  writer.put(",\"end\":");
  writer.integer(edit.end);
  writer.put(",\"replacement\":");
  writer.string(view(target).substr(edit.target_start, edit.target_end - edit.target_start));
  writer.put("}");
}

// What an answer may become is at most this long behind its heading: every character with a backslash, once in the
// text and once in an edit, and what stands around them.
std::size_t longest_body(std::size_t text, std::size_t edits) {
  constexpr std::size_t kFrame = 256, kEdit = 40 + 2 * kMostDigits;
  return kFrame + 4 * text + kEdit * edits;
}

// Calls `put` with a writer to the end of `out`, for at most `most` bytes.
template <class Put>
void append_written(std::size_t most, std::string& out, const Put& put) {
  const std::size_t start = out.size();
  out.resize(start + most);
  JsonWriter writer(out.data() + start);
  put(writer);
  out.resize(static_cast<std::size_t>(writer.at() - out.data()));
}

void append_whole(const Corrected& answer, Bytes text, const WordEdits& edits, long long latency_us,
                  std::string& out) {
  append_written(longest_body(text.size, edits.count), out, [&](JsonWriter& writer) {
    writer.put(",\"corrected\":");
    writer.string(view(text));
    writer.put(",\"edits\":[");
    for (std::size_t index = 0; index < edits.count; ++index) {
      if (index > 0) writer.put(",");
      put_edit(edits.at[index], text, writer);
    }
    writer.put("],\"skipped\":[");
    put_usage(answer, writer);
    writer.thousandths(latency_us);
    writer.put("}");
  });
}

void append_skipped(const Corrected& answer, Bytes sentence, long long latency_us, std::string& out) {
  append_written(longest_body(sentence.size, 1), out, [&](JsonWriter& writer) {
    writer.put(",\"corrected\":");
    writer.string(view(sentence));
    writer.put(",\"edits\":[],\"skipped\":[{\"start\":0,\"end\":");
    writer.integer(static_cast<long long>(sentence.size));
    writer.put(",\"reason\":\"");
    writer.put(view(answer.outcome));
    writer.put("\"}");
    put_usage(answer, writer);
    writer.thousandths(latency_us);
    writer.put("}");
  });
}

bool append_corrected(const Corrected& answer, Bytes sentence, long long latency_us, std::string& out) {
  WordEdits edits;
  if (view(answer.text) == view(sentence)) {
    append_whole(answer, sentence, edits, latency_us, out);
    return true;
  }
  Words words;
  Normalised target;
  if (!split_words(sentence, words) || !target.set(answer.text)) return false;
  if (!diff_words(sentence, words, target.text(), target.words(), edits)) return false;
  append_whole(answer, target.text(), edits, latency_us, out);
  return true;
}

bool is_skipped(std::string_view outcome) {
  return outcome == "dissimilar" || outcome == "truncated" || outcome == "too_long";
}

// A text that is not used must be one all the same.
bool append_outcome(const Corrected& answer, Bytes sentence, long long latency_us, std::string& out) {
  if (view(answer.outcome) == "corrected") return append_corrected(answer, sentence, latency_us, out);
  if (!is_skipped(view(answer.outcome)) || !valid_utf8(answer.text)) return false;
  append_skipped(answer, sentence, latency_us, out);
  return true;
}

}  // namespace

bool correction_answer(Bytes payload, Bytes sentence, const Heading& heading, long long latency_us,
                       std::string& body) {
  Corrected answer;
  if (heading.digest_json.size == 0 || latency_us < 0 || latency_us > kLongestLatency) return false;
  if (!read_corrected(payload, answer)) return false;
  const std::size_t start = body.size();
  if (append_heading(heading, body) && append_outcome(answer, sentence, latency_us, body)) return true;
  body.resize(start);
  return false;
}

}  // namespace copydesk
