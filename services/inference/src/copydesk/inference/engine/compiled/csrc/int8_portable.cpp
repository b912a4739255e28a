// Plain loops, for any processor: slow, and the plainest statement of what the others compute.
#include <cmath>
#include <cstring>

#include "bfloat16.hpp"
#include "int8_kernels.hpp"
#include "int8_place.inl"

namespace copydesk {
namespace {

// `value(i)` is the number at i of the row.
template <class Value>
void quantise_row(Value&& value, int size, int8_t* q, int padded, float* scale) {
  float largest = 0.0f;
  for (int i = 0; i < size; ++i) largest = std::fabs(value(i)) > largest ? std::fabs(value(i)) : largest;
  *scale = largest / 127.0f;
  const float steps = largest > 0.0f ? 127.0f / largest : 0.0f;
  for (int i = 0; i < size; ++i) q[i] = static_cast<int8_t>(std::nearbyint(value(i) * steps));
  std::memset(q + size, 0, padded - size);
}

void quantise(const float* row, int size, int8_t* q, int padded, float* scale) {
  quantise_row([&](int i) { return row[i]; }, size, q, padded, scale);
}

void norm_quantise(const float* row, const float* weight, float epsilon, int size, int8_t* q, int padded,
                   float* scale) {
  float sum = 0.0f;
  for (int i = 0; i < size; ++i) sum += row[i] * row[i];
  const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(size) + epsilon);
  quantise_row([&](int i) { return row[i] * inverse * weight[i]; }, size, q, padded, scale);
}

// The integer sums of one row and one pair of output tiles.
void sums_of(const int8_t* row, const int8_t* tiles, int count, int32_t* sums) {
  std::memset(sums, 0, kTileOutputs * sizeof *sums);
  for (int quad = 0; quad < count * kTileInputs / 4; ++quad) {
    const int8_t* weights = tiles + quad * 64;
    const int32_t a = row[4 * quad], b = row[4 * quad + 1], c = row[4 * quad + 2], d = row[4 * quad + 3];
    for (int n = 0; n < kTileOutputs; ++n)
      sums[n] += a * weights[4 * n] + b * weights[4 * n + 1] + c * weights[4 * n + 2] + d * weights[4 * n + 3];
  }
}

void finish_row(const Product& product, int row, int pair, int thread, const float* values) {
  const int column = pair * kPair;
  float* out = product.out + static_cast<size_t>(row) * product.out_stride;
  switch (product.then) {
    case Then::kStore:
      std::memcpy(out + column, values, kPair * sizeof *values);
      return;
    case Then::kAdd:
      for (int n = 0; n < kPair; ++n) out[column + n] += values[n];
      return;
    case Then::kGate:
      for (int n = 0; n < kTileOutputs; ++n)
        out[column / 2 + n] = values[n] / (1.0f + std::exp(-values[n])) * values[kTileOutputs + n];
      return;
    case Then::kArgmax:
      break;
  }
  const int outputs = product.linear->outputs - column < kPair ? product.linear->outputs - column : kPair;
  if (product.scores[row]) std::memcpy(product.scores[row] + column, values, outputs * sizeof *values);
  const int place = thread * product.count + row;
  for (int n = 0; n < outputs; ++n) {
    const bool better = values[n] > product.best[place] ||
                        (values[n] == product.best[place] && column + n < product.best_index[place]);
    if (better) product.best[place] = values[n], product.best_index[place] = column + n;
  }
}

void multiply(const Product& product, int pair, int thread) {
  const Linear& linear = *product.linear;
  const int8_t* tiles = linear.weight + static_cast<size_t>(pair) * 2 * linear.tiles() * kTileOutputs * kTileInputs;
  const int8_t* others = tiles + static_cast<size_t>(linear.tiles()) * kTileOutputs * kTileInputs;
  int32_t sums[kPair];
  float values[kPair];
  for (int row = 0; row < product.count; ++row) {
    const int8_t* inputs = product.rows + static_cast<size_t>(row) * product.stride;
    sums_of(inputs, tiles, linear.tiles(), sums);
    sums_of(inputs, others, linear.tiles(), sums + kTileOutputs);
    for (int n = 0; n < kPair; ++n) {
      const int output = pair * kPair + n;
      values[n] = static_cast<float>(sums[n]) * linear.scale[output] * product.scales[row];
      if (linear.bias) values[n] += linear.bias[output];
    }
    finish_row(product, row, pair, thread, values);
  }
}

void attend_row(const Attention& attention, const Piece& piece, int token, int head, float* scores, float* attended) {
  const Geometry& g = attention.geometry;
  const uint16_t* query = attention.queries + (static_cast<size_t>(piece.first_token + token) * g.heads + head) * g.width;
  const int seen = piece.start + token + 1;
  float largest = -INFINITY, total = 0.0f;
  for (int p = 0; p < seen; ++p) {
    const uint16_t* key = piece.cache.keys + static_cast<size_t>(p / 16) * g.width * 16 + p % 16 * 2;
    float score = 0.0f;
    for (int d = 0; d < g.width; d += 2)
      score += widened(query[d]) * widened(key[d * 16]) + widened(query[d + 1]) * widened(key[d * 16 + 1]);
    scores[p] = score;
    largest = score > largest ? score : largest;
  }
  std::memset(attended, 0, g.width * sizeof *attended);
  for (int p = 0; p < seen; ++p) {
    const float weight = std::exp2(scores[p] - largest);
    total += weight;
    const uint16_t* value = piece.cache.values + static_cast<size_t>(p / 2) * g.width * 2 + p % 2;
    for (int d = 0; d < g.width; ++d) attended[d] += weight * widened(value[d * 2]);
  }
  float* out = attention.out + static_cast<size_t>(piece.first_token + token) * attention.out_stride + head * g.head_dim;
  for (int d = 0; d < g.head_dim; ++d) out[d] = attended[d] / total;
}

void attend(const Attention& attention, const Piece& piece, const Scratch& scratch) {
  const int group = attention.geometry.group();
  for (int row = piece.row; row < piece.row + 16 && row < piece.length * group; ++row)
    attend_row(attention, piece, row / group, piece.kv_head * group + row % group, scratch.scores, scratch.attended);
}

}  // namespace

const Kernels* portable_kernels() {
  static const Kernels kernels{"portable", norm_quantise, quantise, multiply, place, attend};
  return &kernels;
}

}  // namespace copydesk
