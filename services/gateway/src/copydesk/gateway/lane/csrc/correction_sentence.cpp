// Printable ASCII on one line with single spaces is one segment unless something in it ends a sentence (the library
// sentencex), or numbers the items of a list (sentencex, and copydesk.text.blocks). Sentences are ended by full
// stops, exclamation and question marks. Those at the end of the text are fine; others are where the text goes on
// at once (3.5, example.com, e.g., well... no).
#include "correction_sentence.hpp"

#include <cstdint>
#include <cstring>

#include "correction_characters.hpp"

namespace copydesk {
namespace {

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_lower(char byte) { return byte >= 'a' && byte <= 'z'; }
bool is_letter(char byte) { return is_lower(static_cast<char>(byte | 0x20)) && byte >= 'A'; }
bool is_ender(char byte) { return byte == '.' || byte == '!' || byte == '?'; }
bool goes_on(char byte) { return is_lower(byte) || is_digit(byte); }

bool is_roman(char letter) { return std::strchr("ivxlcdm", letter | 0x20) != nullptr; }

bool may_start(char byte) { return is_letter(byte) || is_digit(byte) || byte == '"' || byte == '\'' || byte == '('; }

bool is_harmless(char byte) { return byte != 0 && std::strchr("(;:/&%$+=*@#", byte) != nullptr; }

// Whether a run of enders, followed by something, ends no sentence.
bool is_inner_run(const char* start, const char* at, const char* behind, const char* end) {
  const bool attached = at != start && at[-1] != ' ';
  if (attached && goes_on(*behind)) return true;
  if (behind - at == 1) return attached && *behind == ',';
  return *behind == ' ' && end - behind >= 2 && goes_on(behind[1]);
}

// Whether the bracket at `at` closes a word that is no number of an item: "(a)", "2)", "(iv)".
bool closes_word(const char* start, const char* at) {
  const char* word = at;
  bool known = false;
  for (; word != start && word[-1] != ' ' && word[-1] != '('; --word) {
    known = known || (is_letter(word[-1]) && !is_roman(word[-1]));
  }
  return known && at - word >= 3;
}

// Looks at what is neither a word nor a quiet mark.
class Marks {
 public:
  explicit Marks(Bytes text) : start_(text.data), end_(text.data + text.size) {}

  bool allows(const char* at) {
    if (at < beyond_run_) return true;
    if (*at == ')') return closes_word(start_, at);
    if (!is_ender(*at)) return is_harmless(*at);
    beyond_run_ = at + 1;
    while (beyond_run_ != end_ && is_ender(*beyond_run_)) ++beyond_run_;
    return beyond_run_ == end_ || is_inner_run(start_, at, beyond_run_, end_);
  }

 private:
  const char* start_;
  const char* end_;
  const char* beyond_run_ = nullptr;
};

bool has_letter(Bytes text) {
  for (std::size_t index = 0; index < text.size; ++index) {
    if (is_letter(text.data[index])) return true;
  }
  return false;
}

// A text without a space may be an address, which is not corrected.
bool is_word(Bytes text) {
  std::size_t index = 0;
  while (index < text.size && (is_letter(text.data[index]) || std::strchr("'-", text.data[index]) != nullptr)) {
    ++index;
  }
  return index == text.size || (index + 1 == text.size && is_ender(text.data[index]));
}

}  // namespace

bool is_plain_sentence(Bytes text) {
  if (text.size == 0 || text.size > kLongestSentence) return false;
  if (!may_start(text.data[0]) || text.data[text.size - 1] == ' ') return false;
  Marks marks(text);
  std::uint64_t spaces = 0, spaced = 0;
  for (std::size_t done = 0; done < text.size; done += kBlock) {
    const CharacterMasks masks = masks_at(text.data + done, text.size - done);
    if ((masks.space & (masks.space << 1 | spaced)) != 0) return false;
    spaced = masks.space >> (kBlock - 1);
    spaces |= masks.space;
    std::uint64_t others = ~(masks.word | masks.space | masks.apostrophe | masks.quiet);
    for (others &= first_bits(text.size - done); others != 0; others &= others - 1) {
      if (!marks.allows(text.data + done + __builtin_ctzll(others))) return false;
    }
  }
  return spaces != 0 ? has_letter(text) : has_letter(text) && is_word(text);
}

}  // namespace copydesk
