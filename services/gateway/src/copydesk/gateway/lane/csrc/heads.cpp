#include "heads.hpp"

#include <cstring>

namespace copydesk {
namespace {

constexpr std::size_t kMostIdBytes = 128;
constexpr std::size_t kMostDigits = 8;

enum class Line { kOther, kLength, kRequestId, kTrace };

bool is(const char* name, std::size_t size, const char* lower) {
  for (std::size_t i = 0; i < size; ++i) {
    if ((name[i] | 0x20) != lower[i]) return false;
  }
  return true;
}

Line kind_of(const char* name, std::size_t size) {
  switch (size) {
    case 11: return is(name, size, "traceparent") ? Line::kTrace : Line::kOther;
    case 12: return is(name, size, "x-request-id") ? Line::kRequestId : Line::kOther;
    case 14: return is(name, size, "content-length") ? Line::kLength : Line::kOther;
    default: return Line::kOther;
  }
}

bool visible(Bytes value) {
  for (std::size_t i = 0; i < value.size; ++i) {
    if (value.data[i] < 0x21 || value.data[i] > 0x7e) return false;
  }
  return value.size > 0;
}

bool to_length(Bytes value, std::size_t& length) {
  if (value.size == 0 || value.size > kMostDigits) return false;
  length = 0;
  for (std::size_t i = 0; i < value.size; ++i) {
    if (value.data[i] < '0' || value.data[i] > '9') return false;
    length = 10 * length + static_cast<std::size_t>(value.data[i] - '0');
  }
  return true;
}

// The state of one `take_apart`.
struct Taker {
  Head& head;
  bool has_length = false, has_id = false, has_trace = false;

  bool take(Line kind, Bytes value) {
    if (!visible(value)) return false;
    switch (kind) {
      case Line::kLength:
        if (has_length) return false;
        has_length = true;
        return to_length(value, head.length);
      case Line::kRequestId:
        if (has_id || value.size > kMostIdBytes) return false;
        has_id = true;
        head.request_id = value;
        return true;
      default:
        if (has_trace) return false;
        has_trace = true;
        return true;
    }
  }
};

}  // namespace

bool take_apart(Bytes bytes, Head& head) {
  head.key.clear();
  head.length = 0;
  head.request_id = {nullptr, 0};
  Taker taker{head};
  const char* const end = bytes.data + bytes.size;
  const char* kept = bytes.data;  // from here on nothing has been copied to the key
  for (const char* line = bytes.data; line < end;) {
    const char* const stop = static_cast<const char*>(std::memchr(line, '\n', static_cast<std::size_t>(end - line)));
    if (stop == nullptr || stop == line || stop[-1] != '\r' || *line == ' ' || *line == '\t') return false;
    const auto room = static_cast<std::size_t>(stop - line);
    const char* const colon = static_cast<const char*>(std::memchr(line, ':', room < 16 ? room : 16));
    const Line kind = colon == nullptr ? Line::kOther : kind_of(line, static_cast<std::size_t>(colon - line));
    if (kind != Line::kOther) {
      const char* value = colon + 1;
      if (*value == ' ') ++value;
      if (!taker.take(kind, {value, static_cast<std::size_t>(stop - 1 - value)})) return false;
      head.key.append(kept, static_cast<std::size_t>(colon + 1 - kept));
      kept = stop;
    }
    line = stop + 1;
  }
  head.key.append(kept, static_cast<std::size_t>(end - kept));
  return taker.has_length;
}

std::size_t Heads::Hash::operator()(const std::string& text) const {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  std::uint64_t state = text.size() * kMultiplier;
  const char* data = text.data();
  std::size_t left = text.size();
  for (; left >= 8; data += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, data, 8);
    state = (state ^ word) * kMultiplier;
    state ^= state >> 29;
  }
  std::uint64_t word = 0;
  std::memcpy(&word, data, left);
  state = (state ^ word) * kMultiplier;
  return static_cast<std::size_t>(state ^ (state >> 32));
}

}  // namespace copydesk
