#include "int8_model.hpp"

#include <initializer_list>

namespace copydesk {

Layout::Layout(const CdShape& shape) : shape_(shape) {
  const int queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
  layer_.attention_norm = take(sizeof(float) * shape.hidden);
  layer_.mlp_norm = take(sizeof(float) * shape.hidden);
  layer_.qkv = take_linear(queries + 2 * keys, shape.hidden, shape.qkv_bias);
  layer_.output = take_linear(shape.hidden, queries, shape.output_bias);
  layer_.gate_up = take_linear(2 * padded(shape.intermediate, kTileOutputs), shape.hidden, shape.mlp_bias);
  layer_.down = take_linear(shape.hidden, shape.intermediate, shape.mlp_bias);
  layer_bytes_ = size_;
  size_ = layer_bytes_ * shape.layers;
  norm_ = take(sizeof(float) * shape.hidden);
  head_ = take_linear(shape.vocabulary, shape.hidden, false);
  embedding_ = take(sizeof(uint16_t) * shape.vocabulary * shape.hidden);
}

LayerPlace Layout::layer(int index) const {
  LayerPlace place = layer_;
  const size_t offset = layer_bytes_ * index;
  place.attention_norm += offset;
  place.mlp_norm += offset;
  for (LinearPlace* linear : {&place.qkv, &place.output, &place.gate_up, &place.down}) {
    linear->weight += offset;
    linear->scale += offset;
    linear->sums += offset;
    linear->bias += offset;
  }
  return place;
}

size_t Layout::take(size_t bytes) {
  const size_t place = size_;
  size_ += (bytes + 63) / 64 * 64;
  return place;
}

LinearPlace Layout::take_linear(int outputs, int inputs, bool biased) {
  const size_t rows = padded(outputs, kPair), columns = padded(inputs, kTileInputs);
  LinearPlace place{};
  place.outputs = outputs;
  place.inputs = inputs;
  place.biased = biased;
  place.weight = take(rows * columns);
  place.scale = take(sizeof(float) * rows);
  place.sums = take(sizeof(int32_t) * rows);
  if (biased) place.bias = take(sizeof(float) * rows);
  return place;
}

Linear linear_at(const uint8_t* block, const LinearPlace& place) {
  return {reinterpret_cast<const int8_t*>(block + place.weight),
          reinterpret_cast<const float*>(block + place.scale),
          reinterpret_cast<const int32_t*>(block + place.sums),
          place.biased ? reinterpret_cast<const float*>(block + place.bias) : nullptr,
          place.outputs,
          place.inputs};
}

}  // namespace copydesk
