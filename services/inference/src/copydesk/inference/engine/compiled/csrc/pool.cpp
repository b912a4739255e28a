#include "pool.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace copydesk {
namespace {

constexpr int kSpins = 4000;          // about 50 microseconds
constexpr int kSpinsBeforeYield = 200;  // of the caller, for the last pieces of others

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, nullptr, nullptr, 0);
}

constexpr uint64_t kField = (uint64_t{1} << 24) - 1;
uint64_t next_of(uint64_t turn) { return turn & kField; }
uint64_t pieces_of(uint64_t turn) { return (turn >> 24) & kField; }

}  // namespace

Pool::Pool(int threads) {
  for (int thread = 1; thread < threads; ++thread) threads_.emplace_back([this, thread] { serve(thread); });
}

Pool::~Pool() {
  ending_ = true;
  bell_.fetch_add(1);
  futex(&bell_, FUTEX_WAKE_PRIVATE, INT32_MAX);
  for (std::thread& thread : threads_) thread.join();
}

void Pool::spread(int pieces, Job job) {
  job_ = job;
  done_.store(0, std::memory_order_relaxed);
  number_ = (number_ + 1) & 0xffff;
  turn_.store(number_ << 48 | static_cast<uint64_t>(pieces) << 24);
  if (asleep_.load() > 0) {
    bell_.fetch_add(1);
    futex(&bell_, FUTEX_WAKE_PRIVATE, INT32_MAX);
  }
  while (take_one(0)) {
  }
  for (int spins = 0; done_.load(std::memory_order_acquire) < pieces; ++spins) {
    relax();
    if (spins >= kSpinsBeforeYield) sched_yield();
  }
}

bool Pool::take_one(int thread) {
  uint64_t turn = turn_.load(std::memory_order_acquire);
  if (next_of(turn) >= pieces_of(turn)) return false;
  turn = turn_.fetch_add(1, std::memory_order_acq_rel);
  if (next_of(turn) >= pieces_of(turn)) return false;
  job_.call(job_.work, static_cast<int>(next_of(turn)), thread);
  done_.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

void Pool::serve(int thread) {
  int spins = 0;
  while (!ending_.load(std::memory_order_relaxed)) {
    if (take_one(thread)) {
      spins = 0;
      continue;
    }
    relax();
    if (++spins < kSpins) continue;
    const uint32_t bell = bell_.load();
    asleep_.fetch_add(1);
    const uint64_t turn = turn_.load();
    if (next_of(turn) >= pieces_of(turn) && !ending_.load()) futex(&bell_, FUTEX_WAIT_PRIVATE, bell);
    asleep_.fetch_sub(1);
    spins = 0;
  }
}

}  // namespace copydesk
