// The 8-bit decoder: weights, caches and threads, and a step of many requests through them.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "int8_kernels.hpp"
#include "int8_model.hpp"
#include "pool.hpp"
#include "step.hpp"

namespace copydesk {

// Memory that the system hands out page by page when it is first touched, zeroed.
class Pages {
 public:
  Pages() = default;
  explicit Pages(size_t bytes);
  ~Pages();
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;

  template <class T>
  T* as() const {
    return static_cast<T*>(start_);
  }
  bool held() const { return start_ != nullptr; }
  // Gives the memory of the whole pages in a part back; they read as zeros then.
  void empty(size_t first, size_t bytes);

 private:
  void* start_ = nullptr;
  size_t bytes_ = 0;
};

struct DecoderOptions {
  CdShape shape;
  const uint8_t* block;    // as Layout describes it; the caller keeps it
  const float *cos, *sin;  // [context][head_dim / 2]; copied
  int32_t slots, context, threads;
  int32_t cache_tokens;  // whose keys and values are kept in memory at the most, as long as slots can be emptied
  const char* kernels;  // a name, or null for the best
};

class Decoder {
 public:
  // Null when there is no memory for the caches, or no such kernels.
  static std::unique_ptr<Decoder> open(const DecoderOptions& options);

  int32_t step(const CdStep& step);

 private:
  struct Layer {
    const float *attention_norm, *mlp_norm;
    Linear qkv, output, gate_up, down;
  };
  // Of a slot's cache: for how many tokens it is in memory, and how many of them its request has.
  struct Held {
    int tokens = 0, used = 0;
    int spare() const { return tokens - used; }
  };
  // One step's rows and the room that they need; grows, and is kept.
  struct Room {
    int rows = 0, samples = 0;
    Pages x, quantised, scales, qkv, queries, attended, gated, best, best_index;
  };

  Decoder(const DecoderOptions& options, const Kernels* kernels);
  bool allocate();
  bool make_room(int rows, int samples);
  void keep_within(const CdStep& step);
  void trim(int slot);
  void lay_out(const CdStep& step);
  void embed(const CdStep& step);
  void run_layer(const Layer& layer, int index);
  void norm(const float* weight, int count, const int32_t* rows);
  void quantise(const float* source, int stride, int size);
  void multiply(const Linear& linear, Then then, float* out, int out_stride, int count);
  static int row_bytes(int inputs);
  void place(int layer);
  void attend(int layer);
  void sample(const CdStep& step);
  Cache cache(int layer, int slot, int head) const;
  template <class Work>
  void for_rows(int count, int rows_a_piece, Work&& work);

  CdShape shape_;
  Geometry geometry_;
  const Kernels* kernels_;
  Pool pool_;
  const uint16_t* embedding_;
  const float* norm_;
  Linear head_;
  std::vector<Layer> layers_;
  std::vector<float> cos_, sin_;
  int context_, cache_tokens_;
  int hidden_stride_, qkv_stride_, gated_stride_, attended_stride_, quantised_stride_;
  size_t cache_numbers_;  // of one layer, slot and head, keys and values each
  size_t slot_bytes_ = 0;
  Pages caches_;
  std::vector<Held> held_;  // by slot
  std::vector<Pages> scratch_pages_;
  std::vector<Scratch> scratch_;
  Room room_;
  int count_ = 0;
  std::vector<int32_t> slot_of_, position_of_, sampled_;
  std::vector<Piece> pieces_;
  std::vector<int32_t> piece_slot_;
  std::vector<float*> scores_of_;
};

}  // namespace copydesk
