// A Llama-family decoder whose linear maps are 8-bit integers: its shape, and where its parts lie in one block of
// memory that can be written to a file and mapped again.
//
// Weights are symmetric with one scale an output; a map [outputs, inputs] is stored in tiles of 16 outputs by 64
// inputs, [16 (inputs / 4)][16 outputs][4 inputs]: what one AMX tile register takes, and, row by row, what one
// AVX-512 VNNI instruction multiplies with four inputs. Outputs are padded to 32 and inputs to 64, with zeros.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct CdShape {
  int32_t vocabulary, hidden, intermediate, layers, heads, kv_heads, head_dim;
  int32_t qkv_bias, output_bias, mlp_bias;
  float norm_epsilon;
};
}

namespace copydesk {

constexpr int kTileOutputs = 16, kTileInputs = 64, kPair = 32;

inline int padded(int size, int step) { return (size + step - 1) / step * step; }

struct Linear {
  const int8_t* weight;     // [padded outputs / 16][padded inputs / 64][16][16][4]
  const float* scale;       // [padded outputs]
  const int32_t* sums;      // [padded outputs]: the sum of each output's weights
  const float* bias;        // [padded outputs], or null
  int outputs, inputs;      // without padding
  int pairs() const { return padded(outputs, kPair) / kPair; }
  int tiles() const { return padded(inputs, kTileInputs) / kTileInputs; }
};

// Offsets in bytes.
struct LinearPlace {
  size_t weight, scale, sums, bias;
  int outputs, inputs;
  bool biased;
};

struct LayerPlace {
  size_t attention_norm, mlp_norm;
  LinearPlace qkv, output, gate_up, down;
};

// Gate and up are one map whose outputs alternate by sixteens: a pair of tiles holds both of what is multiplied.
class Layout {
 public:
  explicit Layout(const CdShape& shape);

  size_t size() const { return size_; }
  size_t embedding() const { return embedding_; }  // bfloat16 [vocabulary, hidden]
  size_t norm() const { return norm_; }
  const LinearPlace& head() const { return head_; }
  LayerPlace layer(int index) const;

 private:
  size_t take(size_t bytes);
  LinearPlace take_linear(int outputs, int inputs, bool biased);

  CdShape shape_;
  size_t size_ = 0, first_layer_ = 0, layer_bytes_ = 0, embedding_ = 0, norm_ = 0;
  LayerPlace layer_{};
  LinearPlace head_{};
};

Linear linear_at(const uint8_t* block, const LinearPlace& place);

}  // namespace copydesk
