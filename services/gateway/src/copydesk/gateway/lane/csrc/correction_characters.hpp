// Which of the characters of an ASCII text are what, as bit masks: one bit a character, 64 of them a block.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace copydesk {

constexpr std::size_t kBlock = 64;

struct CharacterMasks {
  std::uint64_t word = 0;        // letters, digits, and the underscore
  std::uint64_t space = 0;       // the plain space
  std::uint64_t apostrophe = 0;  // '
  std::uint64_t quiet = 0;       // commas, double quotes and hyphens
  std::uint64_t strange = 0;     // what is not printable ASCII
};

#ifdef __SSE2__

// Adds 16 characters, the first of which has bit `shift`.
inline void add_characters(const char* at, unsigned shift, CharacterMasks& masks) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  const auto is = [&](char letter) { return _mm_cmpeq_epi8(bytes, _mm_set1_epi8(letter)); };
  const auto within = [](__m128i value, char low, char high) {
    return _mm_and_si128(_mm_cmpgt_epi8(value, _mm_set1_epi8(static_cast<char>(low - 1))),
                         _mm_cmplt_epi8(value, _mm_set1_epi8(static_cast<char>(high + 1))));
  };
  const auto either = [](__m128i left, __m128i right) { return _mm_or_si128(left, right); };
  const auto bits = [shift](__m128i found) {
    return static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(found))) << shift;
  };
  const __m128i letters = within(either(bytes, _mm_set1_epi8(0x20)), 'a', 'z');
  masks.word |= bits(either(either(letters, within(bytes, '0', '9')), is('_')));
  masks.space |= bits(is(' '));
  masks.apostrophe |= bits(is('\''));
  masks.quiet |= bits(either(either(is(','), is('"')), is('-')));
  // As signed numbers, what is below a space are control characters and all that is not ASCII.
  masks.strange |= bits(either(_mm_cmplt_epi8(bytes, _mm_set1_epi8(' ')), is('\x7F')));
}

#else

inline void add_characters(const char* at, unsigned shift, CharacterMasks& masks) {
  for (unsigned index = 0; index < 16; ++index) {
    const unsigned char byte = static_cast<unsigned char>(at[index]), lower = byte | 0x20;
    const bool letter = byte < 0x80 && lower >= 'a' && lower <= 'z';
    const auto bit = [place = shift + index](bool set) { return std::uint64_t{set} << place; };
    masks.word |= bit(letter || (byte >= '0' && byte <= '9') || byte == '_');
    masks.space |= bit(byte == ' ');
    masks.apostrophe |= bit(byte == '\'');
    masks.quiet |= bit(byte == ',' || byte == '"' || byte == '-');
    masks.strange |= bit(byte < ' ' || byte >= 0x7F);
  }
}

#endif

// The masks of the first 64 of `left` characters; what is beyond them is in no mask.
inline CharacterMasks masks_at(const char* at, std::size_t left) {
  CharacterMasks masks;
  const std::size_t size = std::min(left, kBlock);
  std::size_t done = 0;
  for (; done + 16 <= size; done += 16) add_characters(at + done, static_cast<unsigned>(done), masks);
  if (done == size) return masks;
  char rest[16];
  std::memset(rest, '.', sizeof rest);  // in no mask
  std::memcpy(rest, at + done, size - done);
  add_characters(rest, static_cast<unsigned>(done), masks);
  return masks;
}

// The bits of the first `size` of 64.
inline std::uint64_t first_bits(std::size_t size) {
  return size >= kBlock ? ~std::uint64_t{0} : (std::uint64_t{1} << size) - 1;
}

}  // namespace copydesk
