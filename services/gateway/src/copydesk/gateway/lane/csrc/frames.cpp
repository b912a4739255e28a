#include "frames.hpp"

#include <cstring>

namespace copydesk {
namespace {

constexpr unsigned char kRequestTag = 1, kResponseTag = 2, kCancelTag = 4;
constexpr int kDeepest = 32;

void append_big_endian(std::uint64_t value, int bytes, std::string& out) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
}

void append_unsigned(std::uint64_t value, std::string& out) {
  if (value < 0x80) {
    out.push_back(static_cast<char>(value));
  } else if (value <= 0xff) {
    out.push_back('\xcc');
    append_big_endian(value, 1, out);
  } else if (value <= 0xffff) {
    out.push_back('\xcd');
    append_big_endian(value, 2, out);
  } else if (value <= 0xffffffff) {
    out.push_back('\xce');
    append_big_endian(value, 4, out);
  } else {
    out.push_back('\xcf');
    append_big_endian(value, 8, out);
  }
}

std::size_t begin_frame(std::string& out) {
  out.append(kHeaderBytes, '\0');
  return out.size();
}

void end_frame(std::size_t start, std::string& out) {
  const auto size = static_cast<std::uint32_t>(out.size() - start);
  for (std::size_t i = 0; i < kHeaderBytes; ++i) {
    out[start - kHeaderBytes + i] = static_cast<char>(size >> (24 - 8 * i));
  }
}

// Walks over msgpack values; every step checks what is left.
class Walker {
 public:
  explicit Walker(Bytes body)
      : at_(reinterpret_cast<const unsigned char*>(body.data)), end_(at_ + body.size) {}

  const char* here() const { return reinterpret_cast<const char*>(at_); }
  bool done() const { return at_ == end_; }

  bool array(std::size_t& count) {
    if (at_ == end_ || (*at_ & 0xf0) != 0x90) return false;
    count = *at_++ & 0x0f;
    return true;
  }

  bool number(std::uint64_t& value) {
    if (at_ == end_) return false;
    const unsigned char first = *at_;
    if (first < 0x80) {
      value = first;
      ++at_;
      return true;
    }
    if (first < 0xcc || first > 0xcf) return false;
    ++at_;
    return big_endian(std::size_t{1} << (first - 0xcc), value);
  }

  bool skip(int depth = 0) {
    if (at_ == end_ || depth > kDeepest) return false;
    const unsigned char first = *at_++;
    if (first < 0x80 || first >= 0xe0) return true;
    if (first < 0x90) return skip_many(2 * (first & 0x0fu), depth);
    if (first < 0xa0) return skip_many(first & 0x0fu, depth);
    if (first < 0xc0) return advance(first & 0x1fu);
    return skip_tagged(first, depth);
  }

 private:
  bool skip_tagged(unsigned char first, int depth) {
    std::uint64_t size = 0;
    switch (first) {
      case 0xc0: case 0xc2: case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: return big_endian(std::size_t{1} << (first - 0xc4), size) && advance(size);
      case 0xca: return advance(4);
      case 0xcb: return advance(8);
      case 0xcc: case 0xcd: case 0xce: case 0xcf: return advance(std::uint64_t{1} << (first - 0xcc));
      case 0xd0: case 0xd1: case 0xd2: case 0xd3: return advance(std::uint64_t{1} << (first - 0xd0));
      case 0xd9: case 0xda: case 0xdb: return big_endian(std::size_t{1} << (first - 0xd9), size) && advance(size);
      case 0xdc: case 0xdd: return big_endian(first == 0xdc ? 2 : 4, size) && skip_many(size, depth);
      case 0xde: case 0xdf: return big_endian(first == 0xde ? 2 : 4, size) && skip_many(2 * size, depth);
      default: return false;
    }
  }

  bool skip_many(std::uint64_t count, int depth) {
    for (; count > 0; --count) {
      if (!skip(depth + 1)) return false;
    }
    return true;
  }

  bool advance(std::uint64_t count) {
    if (count > static_cast<std::uint64_t>(end_ - at_)) return false;
    at_ += count;
    return true;
  }

  bool big_endian(std::size_t bytes, std::uint64_t& value) {
    if (static_cast<std::size_t>(end_ - at_) < bytes) return false;
    value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | *at_++;
    return true;
  }

  const unsigned char* at_;
  const unsigned char* end_;
};

bool begin_response(Walker& walker, std::size_t& fields, std::uint64_t& id) {
  std::uint64_t tag = 0;
  return walker.array(fields) && fields >= 4 && walker.number(tag) && tag == kResponseTag && walker.number(id);
}

bool read_load(Walker& walker, Reply& reply) {
  std::size_t fields = 0;
  std::uint64_t running = 0, queued = 0, capacity = 0;
  constexpr std::uint64_t kMost = 1u << 30;
  if (!walker.array(fields) || fields < 3) return false;
  if (!walker.number(running) || !walker.number(queued) || !walker.number(capacity)) return false;
  if (running > kMost || queued > kMost || capacity > kMost) return false;
  reply.running = static_cast<long long>(running);
  reply.queued = static_cast<long long>(queued);
  reply.capacity = static_cast<long long>(capacity);
  for (; fields > 3; --fields) {
    if (!walker.skip()) return false;
  }
  return true;
}

}  // namespace

void append_request(std::uint64_t id, long long deadline_ms, int priority, Bytes payload, std::string& out) {
  const std::size_t start = begin_frame(out);
  out.push_back('\x96');
  out.push_back(static_cast<char>(kRequestTag));
  append_unsigned(id, out);
  append_unsigned(static_cast<std::uint64_t>(deadline_ms), out);
  append_unsigned(static_cast<std::uint64_t>(priority), out);
  out.append(payload.data, payload.size);
  out.push_back('\xa0');
  end_frame(start, out);
}

void append_cancel(std::uint64_t id, std::string& out) {
  const std::size_t start = begin_frame(out);
  out.push_back('\x92');
  out.push_back(static_cast<char>(kCancelTag));
  append_unsigned(id, out);
  end_frame(start, out);
}

bool response_id(Bytes body, std::uint64_t& id) {
  Walker walker(body);
  std::size_t fields = 0;
  return begin_response(walker, fields, id);
}

bool read_reply(Bytes body, Reply& reply) {
  Walker walker(body);
  std::size_t fields = 0;
  std::uint64_t status = 0;
  if (!begin_response(walker, fields, reply.id) || fields < 5) return false;
  if (!walker.number(status) || status != 0 || !read_load(walker, reply)) return false;
  const char* const payload = walker.here();
  if (!walker.skip()) return false;
  reply.payload = {payload, static_cast<std::size_t>(walker.here() - payload)};
  for (; fields > 5; --fields) {
    if (!walker.skip()) return false;
  }
  return walker.done();
}

std::uint32_t frame_size(const char* header) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(header);
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace copydesk
