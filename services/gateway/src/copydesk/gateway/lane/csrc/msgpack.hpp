// MessagePack as msgspec writes it, each value in its shortest form, and a reader for all of its forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "forms.hpp"

namespace copydesk::msgpack {

// Writes to a buffer that the caller has made large enough: 9 bytes are the most for a number.
class Writer {
 public:
  explicit Writer(char* at) : at_(at) {}

  char* at() const { return at_; }

  void byte(unsigned value) { *at_++ = static_cast<char>(value); }
  void nil() { byte(0xC0); }
  void boolean(bool value) { byte(value ? 0xC3 : 0xC2); }

  void integer(long long value) {
    if (value < 0) return negative(value);
    if (value < 0x80) return byte(static_cast<unsigned>(value));
    if (value <= UINT8_MAX) return marked(0xCC, value, 1);
    if (value <= UINT16_MAX) return marked(0xCD, value, 2);
    if (value <= UINT32_MAX) return marked(0xCE, value, 4);
    marked(0xCF, value, 8);
  }

  void real(double value) {
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    marked(0xCB, static_cast<long long>(bits), 8);
  }

  // The heads of what has `size` bytes or items, at most 2^32 - 1.
  void text_head(std::size_t size) {
    if (size < 32) return byte(0xA0 | static_cast<unsigned>(size));
    if (size <= UINT8_MAX) return marked(0xD9, static_cast<long long>(size), 1);
    if (size <= UINT16_MAX) return marked(0xDA, static_cast<long long>(size), 2);
    marked(0xDB, static_cast<long long>(size), 4);
  }

  void array_head(std::size_t size) {
    if (size < 16) return byte(0x90 | static_cast<unsigned>(size));
    if (size <= UINT16_MAX) return marked(0xDC, static_cast<long long>(size), 2);
    marked(0xDD, static_cast<long long>(size), 4);
  }

 private:
  void negative(long long value) {
    if (value >= -32) return byte(static_cast<unsigned>(value) & 0xFF);
    if (value >= INT8_MIN) return marked(0xD0, value, 1);
    if (value >= INT16_MIN) return marked(0xD1, value, 2);
    if (value >= INT32_MIN) return marked(0xD2, value, 4);
    marked(0xD3, value, 8);
  }

  void marked(unsigned mark, long long value, int size) {
    byte(mark);
    for (int shift = 8 * (size - 1); shift >= 0; shift -= 8) byte(static_cast<unsigned>(value >> shift) & 0xFF);
  }

  char* at_;
};

inline void append_text_head(std::size_t size, std::string& out) {
  char head[5];
  Writer writer(head);
  writer.text_head(size);
  out.append(head, static_cast<std::size_t>(writer.at() - head));
}

// Reads values one after the other. False: what is next is something else, for which a caller may ask then.
class Reader {
 public:
  explicit Reader(Bytes bytes) : at_(bytes.data), end_(bytes.data + bytes.size) {}

  bool at_end() const { return at_ == end_; }

  bool take_nil() {
    if (at_ == end_ || mark() != 0xC0) return false;
    ++at_;
    return true;
  }

  bool array_head(std::size_t& size) {
    if (at_ == end_) return false;
    if ((mark() & 0xF0) == 0x90) {
      size = mark() & 0x0F;
      ++at_;
      return true;
    }
    return sized(0xDC, 2, size) || sized(0xDD, 4, size);
  }

  // The bytes of a text, which need not be UTF-8.
  bool text(Bytes& text) {
    if (at_ == end_) return false;
    const char* start = at_;
    std::size_t size;
    if ((mark() & 0xE0) == 0xA0) {
      size = mark() & 0x1F;
      ++at_;
    } else if (!sized(0xD9, 1, size) && !sized(0xDA, 2, size) && !sized(0xDB, 4, size)) {
      return false;
    }
    text = {at_, size};
    if (skip_bytes(size)) return true;
    at_ = start;
    return false;
  }

  // A whole number; false, and behind it, for one above 2^63 - 1.
  bool integer(long long& value) {
    if (at_ == end_) return false;
    const unsigned first = mark();
    if (first < 0x80 || first >= 0xE0) {
      value = static_cast<signed char>(first);
      ++at_;
      return true;
    }
    if (first < 0xCC || first > 0xD3) return false;
    const int size = 1 << ((first - 0xCC) & 3);
    std::uint64_t bits;
    if (!number(size, bits)) return false;
    const int unused = 64 - 8 * size;
    if (first >= 0xD0) value = static_cast<long long>(bits << unused) >> unused;
    else value = static_cast<long long>(bits);
    return first >= 0xD0 || value >= 0;
  }

  // Passes over any value of at most `containers` arrays and maps; not one whose first byte means nothing.
  bool skip(int containers) {
    for (std::uint64_t values = 1; values > 0; --values) {
      std::size_t size;
      if (at_ == end_ || mark() == 0xC1) return false;
      if (is_container(size)) {
        if (containers-- == 0) return false;
        values += size;
      } else if (!skip_scalar()) {
        return false;
      }
    }
    return true;
  }

 private:
  unsigned mark() const { return static_cast<unsigned char>(*at_); }

  bool skip_bytes(std::size_t size) {
    if (size > static_cast<std::size_t>(end_ - at_)) return false;
    at_ += size;
    return true;
  }

  // The big-endian number of `size` bytes behind the mark.
  bool number(int size, std::uint64_t& value) {
    if (end_ - at_ <= size) return false;
    value = 0;
    for (int index = 1; index <= size; ++index) value = value << 8 | static_cast<unsigned char>(at_[index]);
    at_ += 1 + size;
    return true;
  }

  bool sized(unsigned expected, int bytes, std::size_t& size) {
    std::uint64_t value;
    if (mark() != expected || !number(bytes, value)) return false;
    size = static_cast<std::size_t>(value);
    return true;
  }

  // Whether an array or a map is next: then its head is passed, and `size` how many values it has.
  bool is_container(std::size_t& size) {
    if (array_head(size)) return true;
    if ((mark() & 0xF0) == 0x80) {
      size = 2 * static_cast<std::size_t>(mark() & 0x0F);
      ++at_;
      return true;
    }
    if (!sized(0xDE, 2, size) && !sized(0xDF, 4, size)) return false;
    size *= 2;
    return true;
  }

  bool skip_scalar() {
    static constexpr unsigned char kFixed[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17};  // 0xCA to 0xD8
    const unsigned first = mark();
    std::size_t size;
    Bytes text_;
    if (first < 0x80 || first >= 0xE0 || first == 0xC0 || first == 0xC2 || first == 0xC3) return skip_bytes(1);
    if (first >= 0xCA && first <= 0xD8) return skip_bytes(1u + kFixed[first - 0xCA]);
    if (sized(0xC4, 1, size) || sized(0xC5, 2, size) || sized(0xC6, 4, size)) return skip_bytes(size);
    if (sized(0xC7, 1, size) || sized(0xC8, 2, size) || sized(0xC9, 4, size)) return skip_bytes(size + 1);
    return text(text_);
  }

  const char* at_;
  const char* end_;
};

}  // namespace copydesk::msgpack
