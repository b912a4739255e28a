// A few threads that share out the pieces of one job after another.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace copydesk {

// The caller is one of the threads. Pieces are taken one by one, and only pieces are waited for: a thread that the
// system keeps off its core holds up nobody, unless it has just taken one. Idle threads spin for some microseconds,
// since the next job of a step follows at once, and then sleep.
class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls work(piece, thread) for every piece from 0 to `pieces`, each once; returns when all are done.
  template <class Work>
  void run(int pieces, Work&& work) {
    if (pieces == 1 || threads_.empty()) {
      for (int piece = 0; piece < pieces; ++piece) work(piece, 0);
      return;
    }
    const auto call = [](void* itself, int piece, int thread) { (*static_cast<Work*>(itself))(piece, thread); };
    spread(pieces, {call, &work});
  }

 private:
  struct Job {
    void (*call)(void* work, int piece, int thread);
    void* work;
  };

  void spread(int pieces, Job job);
  bool take_one(int thread);
  void serve(int thread);

  // Job number (high 16 bits), pieces (24) and next piece (24) in one word: who takes a piece knows at once whether
  // there was one, and only then looks at the job, which cannot change before that piece is done.
  alignas(64) std::atomic<uint64_t> turn_{0};
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<uint32_t> bell_{0};
  std::atomic<int> asleep_{0};
  std::atomic<bool> ending_{false};
  Job job_{};
  uint64_t number_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace copydesk
