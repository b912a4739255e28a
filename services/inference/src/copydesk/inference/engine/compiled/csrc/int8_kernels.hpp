// What a pass of the decoder is made of. There is one set of these for each kind of processor; all of them get the
// same integer sums, and each of them computes a row of a step the same way whatever other rows there are:
// a row's numbers depend on its own tokens only, bit by bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "int8_model.hpp"
#include "step.hpp"

namespace copydesk {

enum class Then { kStore, kAdd, kGate, kArgmax };

// rows of 8-bit activations times one linear map, and what becomes of the products.
struct Product {
  const Linear* linear;
  const int8_t* rows;   // [count padded to 32][stride]
  const float* scales;  // [count]
  int count, stride;
  int ahead;            // which pair after this one the same thread will likely do next
  Then then;
  float* out;  // kStore, kAdd: [count][out_stride]; kGate: silu(gate) * up, half as wide
  int out_stride;
  // kArgmax, by thread and row; `scores` holds for each row where its scores go, or null.
  float* best;
  int32_t* best_index;
  float* const* scores;
};

// Keys and values of one layer, one slot and one head, in bfloat16, with head_dim padded to 32 (`width`):
// keys [positions / 16][width / 2][16 positions][2], values [positions / 2][width][2 positions].
struct Cache {
  uint16_t* keys;
  uint16_t* values;
};

struct Geometry {
  int heads, kv_heads, head_dim, width, positions;  // positions a slot, padded to 32
  int group() const { return heads / kv_heads; }
};

struct Attention {
  Geometry geometry;
  const uint16_t* queries;  // bfloat16 [tokens][heads][width], times log2(e) / sqrt(head_dim)
  float* out;               // [tokens][out_stride], heads side by side
  int out_stride;
};

// One piece of attention: up to 16 rows, each a token and one of the heads that share a key head.
struct Piece {
  Cache cache;
  int first_token;  // of the run, in the step
  int start;        // its position
  int length;       // tokens of the run
  int kv_head;
  int row;          // the first of the rows [length * group] that this piece does
};

// Room for one thread.
struct Scratch {
  float* scores;          // [16][positions]
  uint16_t* probabilities;  // [16][positions]
  uint16_t* queries;      // [16][width]
  float* attended;        // [16][width]
};

// One token's queries, keys and values, and where they go.
struct Placement {
  const float* source;     // queries, keys, values, heads side by side
  const float *cos, *sin;  // of its position, [head_dim / 2]
  float query_scale;
  int position;
  uint16_t* queries;   // bfloat16 [heads][width]
  Cache cache;         // of the first head
  size_t head_stride;  // from one head's cache to the next one's
};

struct Kernels {
  const char* name;
  // Root mean square norm (Zhang and Sennrich, arXiv 1910.07467), then 8-bit integers: q * scale is about the row.
  void (*norm_quantise)(const float* row, const float* weight, float epsilon, int size, int8_t* q, int padded,
                        float* scale);
  void (*quantise)(const float* row, int size, int8_t* q, int padded, float* scale);
  // One pair of output tiles, for all rows.
  void (*multiply)(const Product& product, int pair, int thread);
  void (*place)(const Geometry& geometry, const Placement& placement);
  void (*attend)(const Attention& attention, const Piece& piece, const Scratch& scratch);
};

// Null where the processor lacks what they need.
const Kernels* amx_kernels();
const Kernels* avx512_kernels();
const Kernels* avx2_kernels();
const Kernels* portable_kernels();

// The best that this processor has, or the one of that name; null when it has not.
const Kernels* choose_kernels(const char* name);

}  // namespace copydesk
