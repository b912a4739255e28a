// From a checkpoint's tensors to the block that int8_model.hpp describes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "bfloat16.hpp"
#include "int8_model.hpp"

namespace copydesk {
namespace {

enum class Stored : int32_t { kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2 };

float from_half(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16, exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 0x1f) return from_bits(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * std::ldexp(static_cast<float>(mantissa), -24);
  return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

float read(const void* source, Stored stored, size_t index) {
  switch (stored) {
    case Stored::kFloat32:
      return static_cast<const float*>(source)[index];
    case Stored::kBfloat16:
      return widened(static_cast<const uint16_t*>(source)[index]);
    case Stored::kFloat16:
      return from_half(static_cast<const uint16_t*>(source)[index]);
  }
  return 0.0f;
}

// Where an output of the checkpoint goes: outputs first, then, for gate and up, the interleaving by sixteens.
int output_of(int row, int first, bool alternate) {
  if (!alternate) return first + row;
  return row / kTileOutputs * 2 * kTileOutputs + first * kTileOutputs + row % kTileOutputs;
}

void pack_row(const void* source, Stored stored, size_t row, const LinearPlace& place, int output, uint8_t* block) {
  const int inputs = place.inputs;
  std::vector<float> values(inputs);
  float largest = 0.0f;
  for (int k = 0; k < inputs; ++k) {
    values[k] = read(source, stored, row * inputs + k);
    largest = std::max(largest, std::fabs(values[k]));
  }
  const float scale = largest / 127.0f;
  auto* weight = reinterpret_cast<int8_t*>(block + place.weight);
  const int tiles = padded(inputs, kTileInputs) / kTileInputs;
  weight += static_cast<size_t>(output / kTileOutputs) * tiles * kTileOutputs * kTileInputs;
  int32_t sum = 0;
  for (int k = 0; k < inputs; ++k) {
    const float exact = scale > 0.0f ? std::nearbyint(values[k] / scale) : 0.0f;
    const auto rounded = static_cast<int8_t>(std::max(-127.0f, std::min(127.0f, exact)));
    const size_t quad = static_cast<size_t>(k / 4) * 64 + output % kTileOutputs * 4 + k % 4;
    weight[quad] = rounded;
    sum += rounded;
  }
  reinterpret_cast<float*>(block + place.scale)[output] = scale;
  reinterpret_cast<int32_t*>(block + place.sums)[output] = sum;
}

void copy_floats(const void* source, Stored stored, int count, uint8_t* target) {
  for (int i = 0; i < count; ++i) reinterpret_cast<float*>(target)[i] = read(source, stored, i);
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

// Puts rows [rows, inputs] of a tensor, or a vector of `rows`, into a zeroed block; `bias` says that it is one.
void cd_pack_put(const CdShape* shape, uint8_t* block, int32_t part, int32_t layer, int32_t bias, const void* source,
                 int32_t stored, int32_t rows) {
  using namespace copydesk;
  const Layout layout(*shape);
  const auto what = static_cast<Part>(part);
  const auto type = static_cast<Stored>(stored);
  if (what == Part::kNorm) return copy_floats(source, type, rows, block + layout.norm());
  if (what == Part::kAttentionNorm) return copy_floats(source, type, rows, block + layout.layer(layer).attention_norm);
  if (what == Part::kMlpNorm) return copy_floats(source, type, rows, block + layout.layer(layer).mlp_norm);
  if (what == Part::kEmbedding) {
    auto* target = reinterpret_cast<uint16_t*>(block + layout.embedding());
    const size_t count = static_cast<size_t>(rows) * shape->hidden;
    for (size_t i = 0; i < count; ++i) target[i] = narrowed(read(source, type, i));
    return;
  }
  const Target target = target_of(*shape, layout, what, layer);
  for (int32_t row = 0; row < rows; ++row) {
    const int output = output_of(row, target.first, target.alternate);
    if (bias)
      reinterpret_cast<float*>(block + target.place.bias)[output] = read(source, type, row);
    else
      pack_row(source, type, row, target.place, output, block);
  }
}

}  // extern "C"
