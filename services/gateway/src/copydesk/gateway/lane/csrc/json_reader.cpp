#include "json_reader.hpp"

#include <charconv>
#include <cstdint>

namespace copydesk {
namespace {

constexpr std::ptrdiff_t kLongestNumber = 32;  // nobody writes longer ones

bool is_digit(const char* at, const char* end) { return at != end && *at >= '0' && *at <= '9'; }

const char* beyond_digits(const char* at, const char* end) {
  while (is_digit(at, end)) ++at;
  return at;
}

// Behind the whole number at `at`, without a sign; null if it is none (RFC 8259, section 6).
const char* beyond_whole(const char* at, const char* end) {
  if (!is_digit(at, end)) return nullptr;
  return *at == '0' ? at + 1 : beyond_digits(at, end);
}

// Behind a fraction and an exponent, which may both be missing; null if one of them has no digits.
const char* beyond_rest(const char* at, const char* end) {
  if (at != end && *at == '.') {
    if (!is_digit(++at, end)) return nullptr;
    at = beyond_digits(at, end);
  }
  if (at != end && (*at == 'e' || *at == 'E')) {
    if (++at != end && (*at == '+' || *at == '-')) ++at;
    if (!is_digit(at, end)) return nullptr;
    at = beyond_digits(at, end);
  }
  return at;
}

// The double nearest to a number in JSON's grammar, whatever the locale.
bool nearest(const char* at, const char* behind, double& value) {
#ifdef __cpp_lib_to_chars
  const std::from_chars_result read = std::from_chars(at, behind, value);
  return read.ec == std::errc() && read.ptr == behind;
#else
  static_cast<void>(at), static_cast<void>(behind), static_cast<void>(value);
  return false;
#endif
}

}  // namespace

bool JsonReader::name(std::string_view& name) {
  if (!take('"')) return false;
  const char* start = at_;
  at_ = plain_run(start, end_);
  if (at_ == end_ || *at_ != '"') return false;
  name = {start, static_cast<std::size_t>(at_ - start)};
  ++at_;
  return take(':');
}

bool JsonReader::integer(long long low, long long high, long long& value) {
  const bool negative = take('-');
  if (!negative) skip_space();
  const char* behind = beyond_whole(at_, end_);
  if (behind == nullptr || behind - at_ > 19) return false;  // 19 digits are below 2^64
  std::uint64_t size = 0;
  for (; at_ != behind; ++at_) size = size * 10 + static_cast<unsigned>(*at_ - '0');
  if (size > std::uint64_t{INT64_MAX} + negative || (negative && size == 0)) return false;
  value = static_cast<long long>(negative ? 0 - size : size);
  return value >= low && value <= high;
}

bool JsonReader::real(double low, double high, double& value) {
  skip_space();
  const char* start = at_;
  const bool negative = at_ != end_ && *at_ == '-';
  const char* whole = beyond_whole(at_ + negative, end_);
  const char* behind = whole == nullptr ? nullptr : beyond_rest(whole, end_);
  if (behind == nullptr || behind - start > kLongestNumber) return false;
  at_ = behind;
  if (!nearest(start, behind, value) || (negative && value == 0)) return false;
  return value >= low && value <= high;
}

}  // namespace copydesk
