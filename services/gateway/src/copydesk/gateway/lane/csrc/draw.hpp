// Which version of a model answers a request, during a rollout: as `copydesk.routing.split` draws it, to the bit.
#pragma once

#include <cstdint>

#include "frames.hpp"

namespace copydesk {

enum class Draw : int { kNone = 0, kBaseline = 1, kCopied = 2, kCandidate = 3 };

class Division {
 public:
  void set(std::uint64_t seed, double share, double copied) {
    seed_ = seed;
    share_ = share;
    copied_ = copied;
    on = share > 0.0 || copied > 0.0;
  }

  // What has a key is drawn by it, the rest by `chance`, any 64 random bits.
  Draw draw(Bytes key, std::uint64_t chance) const {
    const std::uint64_t hashed = key.size != 0 ? absorb(key) : chance;
    if (unit(hashed) < share_) return Draw::kCandidate;
    return unit(hashed ^ kSecond) < copied_ ? Draw::kCopied : Draw::kBaseline;
  }

  bool on = false;

 private:
  static constexpr std::uint64_t kSecond = 0x9e3779b97f4a7c15;

  // FNV-1a
  std::uint64_t absorb(Bytes key) const {
    std::uint64_t state = seed_;
    for (std::size_t i = 0; i < key.size; ++i) {
      state = (state ^ static_cast<unsigned char>(key.data[i])) * 0x100000001b3;
    }
    return state;
  }

  // MurmurHash3's finaliser
  static double unit(std::uint64_t hashed) {
    hashed ^= hashed >> 33;
    hashed *= 0xff51afd7ed558ccd;
    hashed ^= hashed >> 33;
    hashed *= 0xc4ceb9fe1a85ec53;
    hashed ^= hashed >> 33;
    return static_cast<double>(hashed >> 11) * 0x1.0p-53;
  }

  std::uint64_t seed_ = 0;
  double share_ = 0.0, copied_ = 0.0;
};

}  // namespace copydesk
