// The upper half of a float32, rounded to the nearest even one. In an unnamed namespace: each file compiles these for
// its own instructions.
#pragma once

#include <cstdint>
#include <cstring>

namespace copydesk {
namespace {

[[maybe_unused]] inline float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

[[maybe_unused]] inline float widened(uint16_t bfloat16) { return from_bits(uint32_t{bfloat16} << 16); }

[[maybe_unused]] inline uint16_t narrowed(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace
}  // namespace copydesk
