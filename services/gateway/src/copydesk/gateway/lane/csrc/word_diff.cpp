// Longest common subsequence, bit-parallel, in one machine word: Hyyro, "Bit-Parallel LCS-length Computation
// Revisited" (AWOCA 2004). What both texts begin and end with is kept before; in copydesk.text.alignment are the same
// steps for texts of any length, which must lead to the same pairs.
#include "word_diff.hpp"

#include <algorithm>
#include <cstring>

#include "correction_characters.hpp"

namespace copydesk {
namespace {

constexpr std::size_t kMostLeft = 64;    // words that differ: one bit each
constexpr std::size_t kMostRight = 256;  // rows that are kept
constexpr unsigned kSlots = 256;

// Words told from each other by their first eight characters, mostly.
struct Word {
  const char* data;
  std::uint32_t size;
  std::uint64_t key;

  bool operator==(const Word& other) const {
    if (key != other.key || size != other.size) return false;
    return size <= sizeof key || std::memcmp(data, other.data, size) == 0;
  }

  unsigned slot() const {
    return static_cast<unsigned>((key + size) * 0x9E3779B97F4A7C15u >> 56);  // the golden ratio: Fibonacci hashing
  }
};

// The first `size` bytes in memory of eight, at least one, moved to one side.
std::uint64_t first_bytes(std::uint64_t eight, std::uint32_t size) {
  const std::uint32_t unused = 64 - 8 * size;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  return eight << unused;
#else
  return eight >> unused;
#endif
}

class Text {
 public:
  Text(Bytes text, const Words& words) : text_(text), words_(words) {}

  std::size_t count() const { return words_.count; }
  std::uint32_t start(std::size_t index) const { return words_.start[index]; }
  std::uint32_t end(std::size_t index) const { return words_.end[index]; }
  std::uint32_t size(std::size_t index) const { return end(index) - start(index); }
  const char* at(std::uint32_t place) const { return text_.data + place; }

  // Between two words, the first of which may be -1 and the second one too many.
  std::uint32_t gap_start(long before) const { return before < 0 ? 0 : end(static_cast<std::size_t>(before)); }
  std::uint32_t gap_end(long after) const {
    const auto index = static_cast<std::size_t>(after);
    return index < count() ? start(index) : static_cast<std::uint32_t>(text_.size);
  }

  Word word(std::size_t index) const {
    const std::uint32_t place = start(index);
    Word word{at(place), size(index), 0};
    if (place + sizeof word.key <= text_.size) std::memcpy(&word.key, word.data, sizeof word.key);
    else std::memcpy(&word.key, word.data, text_.size - place);
    if (word.size < sizeof word.key) word.key = first_bytes(word.key, word.size);
    return word;
  }

 private:
  Bytes text_;
  const Words& words_;
};

bool same(const Text& left, std::size_t i, const Text& right, std::size_t j) { return left.word(i) == right.word(j); }

// Where in the left text a word stands, by the word.
class Places {
 public:
  void add(const Word& word, std::size_t index) {
    const unsigned slot = slot_of(word);
    if (slots_[slot] == 0) {
      words_[distinct_] = word;
      places_[distinct_] = 0;
      slots_[slot] = static_cast<std::uint8_t>(++distinct_);
    }
    places_[slots_[slot] - 1] |= std::uint64_t{1} << index;
  }

  std::uint64_t of(const Word& word) const {
    const unsigned slot = slot_of(word);
    return slots_[slot] == 0 ? 0 : places_[slots_[slot] - 1];
  }

 private:
  unsigned slot_of(const Word& word) const {
    unsigned slot = word.slot();
    while (slots_[slot] != 0 && !(words_[slots_[slot] - 1] == word)) slot = (slot + 1) % kSlots;
    return slot;
  }

  std::uint8_t slots_[kSlots] = {};  // 0: free, else one more than an index of what follows
  Word words_[kMostLeft];
  std::uint64_t places_[kMostLeft];
  unsigned distinct_ = 0;
};

// Words that are kept: `kept[i]` is the index on the right of the left word `i`, or -1.
class Alignment {
 public:
  Alignment(const Text& left, const Text& right) : left_(left), right_(right) {}

  bool find() {
    const std::size_t lefts = left_.count(), rights = right_.count(), shorter = std::min(lefts, rights);
    while (head_ < shorter && same(left_, head_, right_, head_)) ++head_;
    std::size_t tail = 0;
    while (tail < shorter - head_ && same(left_, lefts - 1 - tail, right_, rights - 1 - tail)) ++tail;
    left_end_ = lefts - tail;
    right_end_ = rights - tail;
    if (head_ == left_end_ || head_ == right_end_) return true;
    if (left_end_ - head_ > kMostLeft || right_end_ - head_ > kMostRight) return false;
    trace();
    return true;
  }

  std::size_t head() const { return head_; }
  std::size_t left_end() const { return left_end_; }
  std::size_t right_end() const { return right_end_; }

  // Which words between the common ends are kept, by their indices from the head.
  std::uint64_t kept() const { return kept_; }
  std::size_t partner(std::size_t index) const { return partners_[index]; }

 private:
  // One row for each word on the right: bit `i` is 0 where the length grows at the left word `i`.
  void fill_rows(std::uint64_t* rows) const {
    Places places;
    for (std::size_t i = head_; i < left_end_; ++i) places.add(left_.word(i), i - head_);
    std::uint64_t row = ~std::uint64_t{0};
    for (std::size_t j = head_; j < right_end_; ++j) {
      const std::uint64_t hits = row & places.of(right_.word(j));
      rows[j - head_] = row = (row + hits) | (row - hits);
    }
  }

  void trace() {
    std::uint64_t rows[kMostRight];
    fill_rows(rows);
    std::size_t i = left_end_ - head_, j = right_end_ - head_;
    while (j > 0) {
      const std::uint64_t growing = ~rows[j - 1] & first_bits(i);
      if (growing == 0) return;
      i = kBlock - static_cast<std::size_t>(__builtin_clzll(growing));
      const std::uint64_t bit = std::uint64_t{1} << (i - 1);
      while (j > 1 && (rows[j - 2] & bit) == 0) --j;
      kept_ |= bit;
      partners_[--i] = static_cast<std::uint16_t>(--j);
    }
  }

  const Text& left_;
  const Text& right_;
  std::size_t head_ = 0, left_end_ = 0, right_end_ = 0;
  std::uint64_t kept_ = 0;
  std::uint16_t partners_[kMostLeft];
};

// Makes edits of what lies between words that are kept.
class Regions {
 public:
  Regions(const Text& left, const Text& right, WordEdits& edits) : left_(left), right_(right), edits_(edits) {}

  // On to the next pair that is kept.
  void go_to(long i, long j) {
    const long width = i - i_ - 1;
    if (width > 1 && width == j - j_ - 1) word_by_word(i);
    else gap(i_, i, j_, j);
    i_ = i;
    j_ = j;
  }

 private:
  void word_by_word(long end) {
    const long shift = j_ - i_;
    for (long i = i_; i < end; ++i) {
      if (i > i_) replace(static_cast<std::size_t>(i), static_cast<std::size_t>(i + shift));
      gap(i, i + 1, i + shift, i + shift + 1);
    }
  }

  void replace(std::size_t i, std::size_t j) {
    if (!same(left_, i, right_, j)) add({left_.start(i), left_.end(i), right_.start(j), right_.end(j)});
  }

  // What lies between two words, less the spaces that both sides begin or end with.
  void gap(long before, long after, long target_before, long target_after) {
    WordEdit edit{left_.gap_start(before), left_.gap_end(after), right_.gap_start(target_before),
                  right_.gap_end(target_after)};
    if (starts_spaced(edit)) {
      ++edit.start;
      ++edit.target_start;
    }
    if (ends_spaced(edit)) {
      --edit.end;
      --edit.target_end;
    }
    if (edit.start < edit.end || edit.target_start < edit.target_end) add(edit);
  }

  static bool has_both(const WordEdit& edit) { return edit.start < edit.end && edit.target_start < edit.target_end; }

  bool starts_spaced(const WordEdit& edit) const {
    return has_both(edit) && *left_.at(edit.start) == ' ' && *right_.at(edit.target_start) == ' ';
  }

  bool ends_spaced(const WordEdit& edit) const {
    return has_both(edit) && *left_.at(edit.end - 1) == ' ' && *right_.at(edit.target_end - 1) == ' ';
  }

  void add(const WordEdit& edit) { edits_.at[edits_.count++] = edit; }

  const Text& left_;
  const Text& right_;
  WordEdits& edits_;
  long i_ = -1, j_ = -1;
};

// Finds words in blocks of 64 characters, from left to right. An apostrophe between two letters belongs to their word.
class Splitter {
 public:
  Splitter(Bytes text, Words& words) : text_(text), words_(words) {}

  bool split() {
    for (std::size_t done = 0; done < text_.size; done += kBlock) {
      if (words_.count + kBlock > kMostWords || !split_block(done)) return false;
    }
    if ((in_word_ | on_mark_) != 0) words_.end[ends_++] = static_cast<std::uint32_t>(text_.size);
    if (on_space_ != 0) words_.normalised = false;
    return true;
  }

 private:
  bool split_block(std::size_t done) {
    const std::size_t left = text_.size - done;
    const CharacterMasks masks = masks_at(text_.data + done, left);
    if (masks.strange != 0) return false;
    const std::uint64_t letter_next = left > kBlock && is_letter(text_.data[done + kBlock]);
    const std::uint64_t before = masks.word << 1 | on_letter_, after = masks.word >> 1 | letter_next << kLast;
    const std::uint64_t word = masks.word | (masks.apostrophe & before & after);
    const std::uint64_t mark = ~(word | masks.space) & first_bits(left);
    const std::uint64_t word_before = word << 1 | in_word_, mark_before = mark << 1 | on_mark_;
    append((word & ~word_before) | mark, done, words_.start, words_.count);
    append((word_before & ~word) | mark_before, done, words_.end, ends_);
    if ((masks.space & (masks.space << 1 | on_space_)) != 0) words_.normalised = false;
    on_letter_ = masks.word >> kLast;
    in_word_ = word >> kLast;
    on_mark_ = mark >> kLast;
    on_space_ = left >= kBlock ? masks.space >> kLast : masks.space >> (left - 1) & 1;
    return true;
  }

  static bool is_letter(char byte) {
    const char lower = static_cast<char>(byte | 0x20);
    return (lower >= 'a' && lower <= 'z' && byte >= 'A') || (byte >= '0' && byte <= '9') || byte == '_';
  }

  static void append(std::uint64_t bits, std::size_t offset, std::uint32_t* places, std::size_t& count) {
    for (; bits != 0; bits &= bits - 1) {
      places[count++] = static_cast<std::uint32_t>(offset) + static_cast<std::uint32_t>(__builtin_ctzll(bits));
    }
  }

  static constexpr unsigned kLast = kBlock - 1;

  Bytes text_;
  Words& words_;
  std::size_t ends_ = 0;
  // What the last character before the block is; a text must not begin with a space.
  std::uint64_t on_letter_ = 0, in_word_ = 0, on_mark_ = 0, on_space_ = 1;
};

}  // namespace

bool split_words(Bytes text, Words& words) { return text.size == 0 || Splitter(text, words).split(); }

bool diff_words(Bytes source, const Words& left, Bytes target, const Words& right, WordEdits& edits) {
  const Text from(source, left), to(target, right);
  Alignment alignment(from, to);
  if (!alignment.find()) return false;
  Regions regions(from, to, edits);
  std::size_t i = 0;
  for (; i < alignment.head(); ++i) regions.go_to(static_cast<long>(i), static_cast<long>(i));
  for (std::uint64_t kept = alignment.kept(); kept != 0; kept &= kept - 1) {
    const auto bit = static_cast<std::size_t>(__builtin_ctzll(kept));
    regions.go_to(static_cast<long>(alignment.head() + bit),
                  static_cast<long>(alignment.head() + alignment.partner(bit)));
  }
  std::size_t j = alignment.right_end();
  for (i = alignment.left_end(); i < left.count; ++i, ++j) regions.go_to(static_cast<long>(i), static_cast<long>(j));
  regions.go_to(static_cast<long>(left.count), static_cast<long>(right.count));
  return true;
}

}  // namespace copydesk
