#include "json_text.hpp"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace copydesk {
namespace {

constexpr std::uint64_t kOnes = 0x0101010101010101u;
constexpr std::uint64_t kHighs = 0x8080808080808080u;

unsigned byte_at(const char* at) { return static_cast<unsigned char>(*at); }

std::uint64_t eight_at(const char* at) {
  std::uint64_t eight;
  std::memcpy(&eight, at, sizeof eight);
  return eight;
}

bool is_plain_ascii(unsigned byte) { return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\'; }

// Whether all of eight bytes are plain ASCII. A byte is zero where subtracting one borrows from its high bit; a
// borrow from the byte below can only be wrong beside a byte that is not plain.
bool are_plain_ascii(std::uint64_t eight) {
  const std::uint64_t quotes = eight ^ (kOnes * '"'), slashes = eight ^ (kOnes * '\\');
  const std::uint64_t found = (eight - kOnes * 0x20) | (quotes - kOnes) | (slashes - kOnes) | eight;
  return (found & kHighs) == 0;
}

const char* plain_ascii_run(const char* at, const char* end) {
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), space = _mm_set1_epi8(0x20);
  for (; end - at >= 16; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    // As signed numbers, what is below a space are control characters and all that is not ASCII.
    const __m128i special = _mm_or_si128(_mm_cmplt_epi8(bytes, space),
                                         _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, slash)));
    const int found = _mm_movemask_epi8(special);
    if (found != 0) return at + __builtin_ctz(static_cast<unsigned>(found));
  }
#endif
  while (end - at >= 8 && are_plain_ascii(eight_at(at))) at += 8;
  while (at != end && is_plain_ascii(byte_at(at))) ++at;
  return at;
}

bool continues(const char* at, unsigned low = 0x80, unsigned high = 0xBF) {
  return byte_at(at) >= low && byte_at(at) <= high;
}

// The length of the character of two to four bytes at `at`, 0 if it is none (RFC 3629, section 4).
std::size_t character(const char* at, const char* end) {
  const unsigned lead = byte_at(at);
  const std::ptrdiff_t left = end - at;
  if (lead < 0xE0) return lead >= 0xC2 && left >= 2 && continues(at + 1) ? 2 : 0;
  if (lead < 0xF0) {
    if (left < 3 || !continues(at + 1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF)) return 0;
    return continues(at + 2) ? 3 : 0;
  }
  if (lead > 0xF4 || left < 4) return 0;
  if (!continues(at + 1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF)) return 0;
  return continues(at + 2) && continues(at + 3) ? 4 : 0;
}

// Behind the characters from `at` that are not ASCII; `end`, an ASCII byte, or one that is not UTF-8.
const char* beyond_ascii_run(const char* at, const char* end) {
  while (at != end && byte_at(at) >= 0x80) {
    const std::size_t size = character(at, end);
    if (size == 0) return at;
    at += size;
  }
  return at;
}

int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

// The number of four hexadecimal digits, -1 if they are none.
int hex_four(const char* at, const char* end) {
  if (end - at < 4) return -1;
  int value = 0;
  for (int index = 0; index < 4; ++index) {
    const int digit = hex_digit(at[index]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// The character of \uXXXX, or of a pair of them, from behind the first u; 0 if there is none, or a lone surrogate,
// or NUL.
char32_t read_unicode(const char*& at, const char* end) {
  const int first = hex_four(at, end);
  if (first <= 0) return 0;
  at += 4;
  if (first < 0xD800 || first > 0xDFFF) return static_cast<char32_t>(first);
  if (first > 0xDBFF || end - at < 6 || at[0] != '\\' || at[1] != 'u') return 0;
  const int second = hex_four(at + 2, end);
  if (second < 0xDC00 || second > 0xDFFF) return 0;
  at += 6;
  return static_cast<char32_t>(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00));
}

// The character that one letter behind a backslash stands for, 0 if for none.
char short_escape(char letter) {
  switch (letter) {
    case '"': case '\\': case '/': return letter;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return 0;
  }
}

// The character of an escape, from behind its backslash; 0 if it is none.
char32_t read_escape(const char*& at, const char* end) {
  if (at == end) return 0;
  const char letter = *at++;
  return letter == 'u' ? read_unicode(at, end) : static_cast<char32_t>(short_escape(letter));
}

std::size_t utf8_size(char32_t character) {
  return character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
}

void append_utf8(char32_t character, std::string& out) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((character >> shift) & 0x3F)); };
  const std::size_t size = utf8_size(character);
  if (size == 1) return out.push_back(static_cast<char>(character));
  const unsigned leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
  out.push_back(static_cast<char>(leads[size] | (character >> (6 * (size - 1)))));
  for (int shift = 6 * (static_cast<int>(size) - 2); shift >= 0; shift -= 6) out.push_back(tail(shift));
}

void append_escape(char byte, std::string& out) {
  switch (byte) {
    case '"': out.append("\\\"", 2); return;
    case '\\': out.append("\\\\", 2); return;
    case '\b': out.append("\\b", 2); return;
    case '\f': out.append("\\f", 2); return;
    case '\n': out.append("\\n", 2); return;
    case '\r': out.append("\\r", 2); return;
    case '\t': out.append("\\t", 2); return;
    default: break;
  }
  const char hex[] = "0123456789abcdef";
  const char escape[] = {'\\', 'u', '0', '0', hex[(byte >> 4) & 0xF], hex[byte & 0xF]};
  out.append(escape, sizeof escape);
}

}  // namespace

const char* plain_run(const char* at, const char* end) {
  for (;;) {
    at = plain_ascii_run(at, end);
    if (at == end || byte_at(at) < 0x80) return at;
    const char* behind = beyond_ascii_run(at, end);
    if (behind == end || byte_at(behind) >= 0x80) return behind;
    at = behind;
  }
}

bool read_text(const char*& at, const char* end, JsonText& text) {
  const char* start = at;
  std::size_t saved = 0;
  for (;;) {
    const char* stop = plain_run(at, end);
    if (stop == end) return false;
    at = stop + 1;
    if (*stop == '"') {
      const auto raw = static_cast<std::size_t>(stop - start);
      text = {start, raw, raw - saved};
      return true;
    }
    if (*stop != '\\') return false;
    const char32_t character = read_escape(at, end);
    if (character == 0) return false;
    saved += static_cast<std::size_t>(at - stop) - utf8_size(character);
  }
}

void append_text(const JsonText& text, std::string& out) {
  const char *at = text.data, *end = at + text.raw;
  if (text.escaped()) {
    while (const void* found = std::memchr(at, '\\', static_cast<std::size_t>(end - at))) {
      const char* slash = static_cast<const char*>(found);
      out.append(at, static_cast<std::size_t>(slash - at));
      at = slash + 1;
      append_utf8(read_escape(at, end), out);
    }
  }
  out.append(at, static_cast<std::size_t>(end - at));
}

bool append_escaped(Bytes text, std::string& out) {
  const char *at = text.data, *end = at + text.size;
  for (;;) {
    const char* stop = plain_run(at, end);
    out.append(at, static_cast<std::size_t>(stop - at));
    if (stop == end) return true;
    if (byte_at(stop) >= 0x80) return false;
    append_escape(*stop, out);
    at = stop + 1;
  }
}

void append_json_string(Bytes text, std::string& out) {
  out.push_back('"');
  append_escaped(text, out);
  out.push_back('"');
}

bool valid_utf8(Bytes text) {
  const char *at = text.data, *end = at + text.size;
  while (at != end) {
    while (end - at >= 8 && (eight_at(at) & kHighs) == 0) at += 8;
    while (at != end && byte_at(at) < 0x80) ++at;
    at = beyond_ascii_run(at, end);
    if (at != end && byte_at(at) >= 0x80) return false;
  }
  return true;
}

}  // namespace copydesk
