// AVX2 and FMA: most desktops and laptops.
#if defined(__AVX2__)
#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "bfloat16.hpp"
#include "int8_kernels.hpp"
#include "int8_place.inl"

namespace copydesk {
namespace {

constexpr int kRows = 2;  // as many as keep their sums in registers
constexpr float kLog2e = 1.4426950408889634f;

float sum_of(__m256 v) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

float largest_of(__m256 v) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

__m256 absolute(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

// 2^x by a polynomial of degree 6 on [-1/2, 1/2]; below the smallest number it is zero.
__m256 exp2(__m256 x) {
  x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-127.0f)), _mm256_set1_ps(127.0f));
  const __m256 whole = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 f = _mm256_sub_ps(x, whole);
  __m256 p = _mm256_set1_ps(1.5403530e-4f);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.3333558e-3f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(9.6181291e-3f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(5.5504109e-2f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(2.4022651e-1f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(6.9314718e-1f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
}

void store_quantised(__m256 value, int8_t* q) {
  const __m256i whole = _mm256_cvtps_epi32(value);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(q), _mm_packs_epi16(words, words));
}

// `value(i)` gives eight numbers of the row from i on, `single(i)` one; whole eights first, then what is left.
template <class Value, class Single>
void quantise_row(Value&& value, Single&& single, int size, int8_t* q, int padded, float* scale) {
  const int eights = size / 8 * 8;
  __m256 most = _mm256_setzero_ps();
  for (int i = 0; i < eights; i += 8) most = _mm256_max_ps(most, absolute(value(i)));
  float largest = largest_of(most);
  for (int i = eights; i < size; ++i) largest = std::fabs(single(i)) > largest ? std::fabs(single(i)) : largest;
  *scale = largest / 127.0f;
  const float steps = largest > 0.0f ? 127.0f / largest : 0.0f;
  for (int i = 0; i < eights; i += 8) store_quantised(_mm256_mul_ps(value(i), _mm256_set1_ps(steps)), q + i);
  for (int i = eights; i < size; ++i) q[i] = static_cast<int8_t>(std::nearbyint(single(i) * steps));
  std::memset(q + size, 0, padded - size);
}

void quantise(const float* row, int size, int8_t* q, int padded, float* scale) {
  quantise_row([&](int i) { return _mm256_loadu_ps(row + i); }, [&](int i) { return row[i]; }, size, q, padded, scale);
}

void norm_quantise(const float* row, const float* weight, float epsilon, int size, int8_t* q, int padded,
                   float* scale) {
  const int eights = size / 8 * 8;
  __m256 squares = _mm256_setzero_ps();
  for (int i = 0; i < eights; i += 8) {
    const __m256 value = _mm256_loadu_ps(row + i);
    squares = _mm256_fmadd_ps(value, value, squares);
  }
  float sum = sum_of(squares);
  for (int i = eights; i < size; ++i) sum += row[i] * row[i];
  const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(size) + epsilon);
  const __m256 spread = _mm256_set1_ps(inverse);
  quantise_row([&](int i) { return _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(row + i), spread), _mm256_loadu_ps(weight + i)); },
               [&](int i) { return row[i] * inverse * weight[i]; }, size, q, padded, scale);
}

// Integer sums of up to kRows rows and sixteen outputs. Bytes are widened to words, whose products of pairs never
// saturate; four outputs by two halves of four inputs stand in each register, and the halves are added at the end.
template <int rows>
void sums_of(const int8_t* inputs, int stride, const int8_t* tiles, int quads, int32_t* sums) {
  __m256i acc[rows][4];
  for (int row = 0; row < rows; ++row)
    for (int part = 0; part < 4; ++part) acc[row][part] = _mm256_setzero_si256();
  for (int quad = 0; quad < quads; ++quad) {
    __m256i spread[rows];
    for (int row = 0; row < rows; ++row) {
      int32_t four;
      std::memcpy(&four, inputs + static_cast<size_t>(row) * stride + quad * 4, sizeof four);
      spread[row] = _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(four)));
    }
    for (int part = 0; part < 4; ++part) {
      const auto* bytes = reinterpret_cast<const __m128i*>(tiles + quad * 64 + part * 16);
      const __m256i weights = _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes));
      for (int row = 0; row < rows; ++row)
        acc[row][part] = _mm256_add_epi32(acc[row][part], _mm256_madd_epi16(weights, spread[row]));
    }
  }
  for (int row = 0; row < rows; ++row)
    for (int pair = 0; pair < 2; ++pair) {
      // hadd works in halves of 128 bits: outputs come as 0 1 4 5 2 3 6 7.
      const __m256i mixed = _mm256_hadd_epi32(acc[row][2 * pair], acc[row][2 * pair + 1]);
      const __m256i ordered = _mm256_permute4x64_epi64(mixed, 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + row * kPair + pair * 8), ordered);
    }
}

__m256 silu(__m256 x) {
  const __m256 e = exp2(_mm256_mul_ps(x, _mm256_set1_ps(-kLog2e)));
  return _mm256_div_ps(x, _mm256_add_ps(e, _mm256_set1_ps(1.0f)));
}

void take_best(const Product& product, int row, int column, int thread, const float* values) {
  const int left = product.linear->outputs - column, outputs = left < kPair ? left : kPair;
  if (product.scores[row]) std::memcpy(product.scores[row] + column, values, outputs * sizeof *values);
  const int place = thread * product.count + row;
  float best = product.best[place];
  int32_t index = product.best_index[place];
  for (int n = 0; n < outputs; ++n)
    if (values[n] > best || (values[n] == best && column + n < index)) best = values[n], index = column + n;
  product.best[place] = best;
  product.best_index[place] = index;
}

void finish_row(const Product& product, int row, int pair, int thread, const int32_t* sums) {
  const Linear& linear = *product.linear;
  const int column = pair * kPair;
  alignas(32) float values[kPair];
  const __m256 scale = _mm256_set1_ps(product.scales[row]);
  for (int n = 0; n < kPair; n += 8) {
    const __m256i whole = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums + n));
    const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(whole), _mm256_loadu_ps(linear.scale + column + n));
    const __m256 bias = linear.bias ? _mm256_loadu_ps(linear.bias + column + n) : _mm256_setzero_ps();
    _mm256_store_ps(values + n, _mm256_fmadd_ps(scaled, scale, bias));
  }
  float* out = product.out + static_cast<size_t>(row) * product.out_stride + column;
  switch (product.then) {
    case Then::kStore:
      std::memcpy(out, values, sizeof values);
      break;
    case Then::kAdd:
      for (int n = 0; n < kPair; n += 8)
        _mm256_storeu_ps(out + n, _mm256_add_ps(_mm256_loadu_ps(out + n), _mm256_load_ps(values + n)));
      break;
    case Then::kGate:
      for (int n = 0; n < kTileOutputs; n += 8)
        _mm256_storeu_ps(out - column / 2 + n,
                         _mm256_mul_ps(silu(_mm256_load_ps(values + n)), _mm256_load_ps(values + kTileOutputs + n)));
      break;
    case Then::kArgmax:
      take_best(product, row, column, thread, values);
      break;
  }
}

void multiply(const Product& product, int pair, int thread) {
  const Linear& linear = *product.linear;
  const int8_t* tiles = linear.weight + static_cast<size_t>(pair) * 2 * linear.tiles() * kTileOutputs * kTileInputs;
  const int8_t* others = tiles + static_cast<size_t>(linear.tiles()) * kTileOutputs * kTileInputs;
  const int quads = linear.tiles() * kTileInputs / 4;
  int32_t sums[kRows * kPair];
  for (int row = 0; row < product.count; row += kRows) {
    const int8_t* inputs = product.rows + static_cast<size_t>(row) * product.stride;
    const int rows = product.count - row < kRows ? product.count - row : kRows;
    if (rows == kRows) {
      sums_of<kRows>(inputs, product.stride, tiles, quads, sums);
      sums_of<kRows>(inputs, product.stride, others, quads, sums + kTileOutputs);
    } else {
      sums_of<1>(inputs, product.stride, tiles, quads, sums);
      sums_of<1>(inputs, product.stride, others, quads, sums + kTileOutputs);
    }
    for (int i = 0; i < rows; ++i) finish_row(product, row + i, pair, thread, sums + i * kPair);
  }
}

__m256 even(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
__m256 odd(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u))));
}
__m256i pairs_at(const uint16_t* numbers) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers)); }

// Scores of all positions of the blocks of 16 that hold `seen` of them.
void score(const Geometry& g, const Piece& piece, const uint16_t* query, int seen, float* scores) {
  for (int p = 0; p < seen; p += 8) {
    const uint16_t* keys = piece.cache.keys + static_cast<size_t>(p / 16) * g.width * 16 + p % 16 * 2;
    __m256 sum = _mm256_setzero_ps();
    for (int d = 0; d < g.width; d += 2) {
      const __m256i pairs = pairs_at(keys + d * 16);
      sum = _mm256_fmadd_ps(even(pairs), _mm256_set1_ps(widened(query[d])), sum);
      sum = _mm256_fmadd_ps(odd(pairs), _mm256_set1_ps(widened(query[d + 1])), sum);
    }
    _mm256_storeu_ps(scores + p, sum);
  }
}

float softmax(float* scores, int seen) {
  const int width = padded(seen, 8);
  for (int p = seen; p < width; ++p) scores[p] = -INFINITY;
  __m256 largest = _mm256_set1_ps(-INFINITY);
  for (int p = 0; p < width; p += 8) largest = _mm256_max_ps(largest, _mm256_loadu_ps(scores + p));
  const __m256 most = _mm256_set1_ps(largest_of(largest));
  __m256 sum = _mm256_setzero_ps();
  for (int p = 0; p < width; p += 8) {
    const __m256 weight = exp2(_mm256_sub_ps(_mm256_loadu_ps(scores + p), most));
    _mm256_storeu_ps(scores + p, weight);
    for (int i = p; i < p + 8; ++i)
      if (i >= seen) scores[i] = 0.0f;
    sum = _mm256_add_ps(sum, _mm256_loadu_ps(scores + p));
  }
  return sum_of(sum);
}

void weigh(const Geometry& g, const Piece& piece, const float* weights, int seen, float* attended) {
  for (int d = 0; d < g.width; d += 8) {
    __m256 sum = _mm256_setzero_ps();
    for (int p = 0; p < seen; p += 2) {
      const __m256i pairs = pairs_at(piece.cache.values + static_cast<size_t>(p / 2) * g.width * 2 + d * 2);
      sum = _mm256_fmadd_ps(even(pairs), _mm256_set1_ps(weights[p]), sum);
      sum = _mm256_fmadd_ps(odd(pairs), _mm256_set1_ps(weights[p + 1]), sum);
    }
    _mm256_storeu_ps(attended + d, sum);
  }
}

void attend(const Attention& attention, const Piece& piece, const Scratch& scratch) {
  const Geometry& g = attention.geometry;
  for (int row = piece.row; row < piece.row + 16 && row < piece.length * g.group(); ++row) {
    const size_t token = piece.first_token + row / g.group();
    const int head = piece.kv_head * g.group() + row % g.group(), seen = piece.start + row / g.group() + 1;
    score(g, piece, attention.queries + (token * g.heads + head) * g.width, seen, scratch.scores);
    const float total = softmax(scratch.scores, seen);
    weigh(g, piece, scratch.scores, seen, scratch.attended);
    float* out = attention.out + token * attention.out_stride + head * g.head_dim;
    for (int d = 0; d < g.head_dim; ++d) out[d] = scratch.attended[d] / total;
  }
}

}  // namespace

const Kernels* avx2_kernels() {
  static const Kernels kernels{"avx2", norm_quantise, quantise, multiply, place, attend};
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kernels : nullptr;
}

}  // namespace copydesk
#else
#include "int8_kernels.hpp"

namespace copydesk {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace copydesk
#endif
