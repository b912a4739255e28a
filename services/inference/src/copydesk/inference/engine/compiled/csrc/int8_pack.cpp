// From a checkpoint's tensors to the block that int8_model.hpp describes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "bfloat16.hpp"
#include "int8_model.hpp"

namespace copydesk {
namespace {

enum class Stored : int32_t { kFloat32 = 0, kBfloat16, kFloat16, kE4m3, kInt8 };

// A tensor as it is stored; numbers of 8 bits count `scale` each, one for each row or one for all.
struct Source {
  const void* data;
  Stored stored;
  const float* scale;
  int32_t scales;

  float scale_of(size_t row) const { return scales == 0 ? 1.0f : scale[scales == 1 ? 0 : row]; }
};

float from_half(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16, exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 0x1f) return from_bits(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * std::ldexp(static_cast<float>(mantissa), -24);
  return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

// FP8 as in Micikevicius et al., 2022: exponents of four bits, mantissas of three, and no infinities.
float from_e4m3(uint8_t byte) {
  const uint32_t sign = uint32_t{byte & 0x80u} << 24, exponent = byte >> 3 & 0xf, mantissa = byte & 0x7;
  if ((byte & 0x7f) == 0x7f) return from_bits(sign | 0x7fc00000u);
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * std::ldexp(static_cast<float>(mantissa), -9);
  return from_bits(sign | (exponent + 120) << 23 | mantissa << 20);
}

// The number at `index`, without its scale.
float read(const Source& source, size_t index) {
  switch (source.stored) {
    case Stored::kFloat32:
      return static_cast<const float*>(source.data)[index];
    case Stored::kBfloat16:
      return widened(static_cast<const uint16_t*>(source.data)[index]);
    case Stored::kFloat16:
      return from_half(static_cast<const uint16_t*>(source.data)[index]);
    case Stored::kE4m3:
      return from_e4m3(static_cast<const uint8_t*>(source.data)[index]);
    case Stored::kInt8:
      return static_cast<const int8_t*>(source.data)[index];
  }
  return 0.0f;
}

// Where an output of the checkpoint goes: outputs first, then, for gate and up, the interleaving by sixteens.
int output_of(int row, int first, bool alternate) {
  if (!alternate) return first + row;
  return row / kTileOutputs * 2 * kTileOutputs + first * kTileOutputs + row % kTileOutputs;
}

// Writes one output: its integers, where `integer(k)` says the one at input k, and its scale.
template <class Integer>
void put_row(Integer&& integer, float scale, const LinearPlace& place, int output, uint8_t* block) {
  auto* weight = reinterpret_cast<int8_t*>(block + place.weight);
  const int tiles = padded(place.inputs, kTileInputs) / kTileInputs;
  weight += static_cast<size_t>(output / kTileOutputs) * tiles * kTileOutputs * kTileInputs;
  int32_t sum = 0;
  for (int k = 0; k < place.inputs; ++k) {
    const int8_t number = integer(k);
    weight[static_cast<size_t>(k / 4) * 64 + output % kTileOutputs * 4 + k % 4] = number;
    sum += number;
  }
  reinterpret_cast<float*>(block + place.scale)[output] = scale;
  reinterpret_cast<int32_t*>(block + place.sums)[output] = sum;
}

// Integers are taken as they are stored, with their scale; everything else is rounded, with one scale a row.
void pack_row(const Source& source, size_t row, const LinearPlace& place, int output, uint8_t* block) {
  const size_t inputs = place.inputs;
  const float stored_scale = source.scale_of(row);
  if (source.stored == Stored::kInt8) {
    const auto* numbers = static_cast<const int8_t*>(source.data) + row * inputs;
    return put_row([&](int k) { return numbers[k]; }, stored_scale, place, output, block);
  }
  std::vector<float> values(inputs);
  float largest = 0.0f;
  for (size_t k = 0; k < inputs; ++k) {
    values[k] = read(source, row * inputs + k) * stored_scale;
    largest = std::max(largest, std::fabs(values[k]));
  }
  const float scale = largest / 127.0f;
  const auto rounded = [&](int k) {
    const float exact = scale > 0.0f ? std::nearbyint(values[k] / scale) : 0.0f;
    return static_cast<int8_t>(std::max(-127.0f, std::min(127.0f, exact)));
  };
  put_row(rounded, scale, place, output, block);
}

void copy_floats(const Source& source, int count, uint8_t* target) {
  for (int i = 0; i < count; ++i) reinterpret_cast<float*>(target)[i] = read(source, i);
}

}  // namespace

// What `cd_pack_put` is given.
enum class Part : int32_t {
  kEmbedding = 0, kNorm, kHead, kAttentionNorm, kMlpNorm, kQuery, kKey, kValue, kOutput, kGate, kUp, kDown,
};

namespace {

struct Target {
  LinearPlace place;
  int first;       // the first output
  bool alternate;  // by sixteens
};

Target target_of(const CdShape& shape, const Layout& layout, Part part, int layer) {
  const int queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
  const LayerPlace place = layout.layer(layer);
  switch (part) {
    case Part::kQuery: return {place.qkv, 0, false};
    case Part::kKey: return {place.qkv, queries, false};
    case Part::kValue: return {place.qkv, queries + keys, false};
    case Part::kOutput: return {place.output, 0, false};
    case Part::kGate: return {place.gate_up, 0, true};
    case Part::kUp: return {place.gate_up, 1, true};
    case Part::kDown: return {place.down, 0, false};
    default: return {layout.head(), 0, false};
  }
}

}  // namespace
}  // namespace copydesk

extern "C" {

uint64_t cd_pack_size(const CdShape* shape) { return copydesk::Layout(*shape).size(); }

// Puts rows [rows, inputs] of a tensor, or a vector of `rows`, into a zeroed block; `bias` says that it is one. Only
// weights of linear maps have scales: one, or `rows` of them.
void cd_pack_put(const CdShape* shape, uint8_t* block, int32_t part, int32_t layer, int32_t bias, const void* data,
                 int32_t stored, int32_t rows, const float* scale, int32_t scales) {
  using namespace copydesk;
  const Layout layout(*shape);
  const auto what = static_cast<Part>(part);
  const Source source{data, static_cast<Stored>(stored), scale, scales};
  if (what == Part::kNorm) return copy_floats(source, rows, block + layout.norm());
  if (what == Part::kAttentionNorm) return copy_floats(source, rows, block + layout.layer(layer).attention_norm);
  if (what == Part::kMlpNorm) return copy_floats(source, rows, block + layout.layer(layer).mlp_norm);
  if (what == Part::kEmbedding) {
    auto* target = reinterpret_cast<uint16_t*>(block + layout.embedding());
    const size_t count = static_cast<size_t>(rows) * shape->hidden;
    for (size_t i = 0; i < count; ++i) target[i] = narrowed(read(source, i));
    return;
  }
  const Target target = target_of(*shape, layout, what, layer);
  for (int32_t row = 0; row < rows; ++row) {
    const int output = output_of(row, target.first, target.alternate);
    if (bias)
      reinterpret_cast<float*>(block + target.place.bias)[output] = read(source, row);
    else
      pack_row(source, row, target.place, output, block);
  }
}

}  // extern "C"
