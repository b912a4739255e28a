// AVX-512 for the parts that AMX does not do, and for all of them where there is no AMX. In an unnamed namespace, so
// that no other file ends up with these instructions.
#include <immintrin.h>

#include <cstring>

#include "int8_kernels.hpp"

namespace copydesk {
namespace {

constexpr float kLog2e = 1.4426950408889634f;

__mmask16 first(int count) { return count >= 16 ? 0xffff : static_cast<__mmask16>((1u << count) - 1); }

// 2^x by a polynomial of degree 6 on [-1/2, 1/2], to about 2e-7.
__m512 exp2(__m512 x) {
  const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, whole);
  __m512 p = _mm512_set1_ps(1.5403530e-4f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.3333558e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.6181291e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5504109e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022651e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, whole);
}

__m512 silu(__m512 x) {
  const __m512 e = exp2(_mm512_mul_ps(x, _mm512_set1_ps(-kLog2e)));
  return _mm512_div_ps(x, _mm512_add_ps(e, _mm512_set1_ps(1.0f)));
}

void quantise_vector(__m512 value, __m512 steps, int8_t* q) {
  const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(value, steps));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtsepi32_epi8(whole));
}

// `padded` is a multiple of 64, and what is behind `size` becomes zero: masked loads see to it.
void quantise(const float* row, int size, int8_t* q, int padded, float* scale) {
  __m512 largest = _mm512_setzero_ps();
  for (int i = 0; i < size; i += 16)
    largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_maskz_loadu_ps(first(size - i), row + i)));
  const float most = _mm512_reduce_max_ps(largest);
  *scale = most / 127.0f;
  const __m512 steps = _mm512_set1_ps(most > 0.0f ? 127.0f / most : 0.0f);
  for (int i = 0; i < padded; i += 16) {
    const __mmask16 mask = i < size ? first(size - i) : 0;
    quantise_vector(_mm512_maskz_loadu_ps(mask, row + i), steps, q + i);
  }
}

__m512 normed(const float* row, const float* weight, __m512 inverse, __mmask16 mask) {
  const __m512 value = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, row), inverse);
  return _mm512_mul_ps(value, _mm512_maskz_loadu_ps(mask, weight));
}

void norm_quantise(const float* row, const float* weight, float epsilon, int size, int8_t* q, int padded,
                   float* scale) {
  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < size; i += 16) {
    const __m512 value = _mm512_maskz_loadu_ps(first(size - i), row + i);
    sum = _mm512_fmadd_ps(value, value, sum);
  }
  const float mean = _mm512_reduce_add_ps(sum) / static_cast<float>(size);
  const __m512 inverse = _mm512_set1_ps(1.0f / __builtin_sqrtf(mean + epsilon));
  __m512 largest = _mm512_setzero_ps();
  for (int i = 0; i < size; i += 16)
    largest = _mm512_max_ps(largest, _mm512_abs_ps(normed(row + i, weight + i, inverse, first(size - i))));
  const float most = _mm512_reduce_max_ps(largest);
  *scale = most / 127.0f;
  const __m512 steps = _mm512_set1_ps(most > 0.0f ? 127.0f / most : 0.0f);
  for (int i = 0; i < padded; i += 16) {
    const __mmask16 mask = i < size ? first(size - i) : 0;
    quantise_vector(normed(row + i, weight + i, inverse, mask), steps, q + i);
  }
}

// The scales and biases of one pair of output tiles.
struct Columns {
  __m512 scale[2], bias[2];
  __mmask16 real[2];  // those that are outputs, and no padding

  Columns(const Linear& linear, int pair) {
    for (int half = 0; half < 2; ++half) {
      const int column = pair * kPair + half * kTileOutputs;
      scale[half] = _mm512_loadu_ps(linear.scale + column);
      bias[half] = linear.bias ? _mm512_loadu_ps(linear.bias + column) : _mm512_setzero_ps();
      real[half] = column < linear.outputs ? first(linear.outputs - column) : 0;
    }
  }
};

void take_best(const Product& product, int row, int column, int thread, const Columns& columns, const __m512* value) {
  if (float* scores = product.scores[row])
    for (int half = 0; half < 2; ++half)
      _mm512_mask_storeu_ps(scores + column + half * kTileOutputs, columns.real[half], value[half]);
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  const __m512 a = _mm512_mask_mov_ps(lowest, columns.real[0], value[0]);
  const __m512 b = _mm512_mask_mov_ps(lowest, columns.real[1], value[1]);
  const int place = thread * product.count + row;
  const __m512 known = _mm512_set1_ps(product.best[place]);
  const __m512 larger = _mm512_max_ps(a, b);
  if (_mm512_cmp_ps_mask(larger, known, _CMP_GE_OQ) == 0) return;
  const float most = _mm512_reduce_max_ps(larger);
  const __m512 spread = _mm512_set1_ps(most);
  const uint32_t where = _mm512_cmp_ps_mask(a, spread, _CMP_EQ_OQ) |
                         static_cast<uint32_t>(_mm512_cmp_ps_mask(b, spread, _CMP_EQ_OQ)) << 16;
  if (where == 0) return;
  const int32_t index = column + __builtin_ctz(where);
  if (most == product.best[place] && index > product.best_index[place]) return;
  product.best[place] = most;
  product.best_index[place] = index;
}

// Turns integer sums [rows][32], rows `begin` to `end` of the product, into what the product is for.
void finish_rows(const Product& product, int pair, int thread, int begin, int end, const int32_t* sums,
                 const Columns& columns) {
  for (int row = begin; row < end; ++row, sums += kPair) {
    const __m512 row_scale = _mm512_set1_ps(product.scales[row]);
    __m512 value[2];
    for (int half = 0; half < 2; ++half) {
      const __m512 whole = _mm512_cvtepi32_ps(_mm512_load_si512(sums + half * kTileOutputs));
      value[half] = _mm512_fmadd_ps(_mm512_mul_ps(whole, columns.scale[half]), row_scale, columns.bias[half]);
    }
    float* out = product.out + static_cast<size_t>(row) * product.out_stride + pair * kPair;
    switch (product.then) {
      case Then::kStore:
        _mm512_storeu_ps(out, value[0]);
        _mm512_storeu_ps(out + 16, value[1]);
        break;
      case Then::kAdd:
        _mm512_storeu_ps(out, _mm512_add_ps(_mm512_loadu_ps(out), value[0]));
        _mm512_storeu_ps(out + 16, _mm512_add_ps(_mm512_loadu_ps(out + 16), value[1]));
        break;
      case Then::kGate:
        _mm512_storeu_ps(out - pair * kTileOutputs, _mm512_mul_ps(silu(value[0]), value[1]));
        break;
      case Then::kArgmax:
        take_best(product, row, pair * kPair, thread, columns, value);
        break;
    }
  }
}

const int8_t* tiles_of(const Linear& linear, int pair, int half) {
  return linear.weight + (static_cast<size_t>(pair) * 2 + half) * linear.tiles() * kTileOutputs * kTileInputs;
}

// Scores [positions] of one row become probabilities, not yet divided by their sum, which is returned;
// of `width` positions `seen` are looked at, and the others get none.
template <class Store>
float softmax(const float* scores, int seen, int width, Store&& store) {
  __m512 largest = _mm512_set1_ps(-__builtin_inff());
  for (int p = 0; p < seen; p += 16)
    largest = _mm512_mask_max_ps(largest, first(seen - p), largest, _mm512_load_ps(scores + p));
  const __m512 most = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
  __m512 sum = _mm512_setzero_ps();
  for (int p = 0; p < width; p += 16) {
    const __mmask16 mask = p < seen ? first(seen - p) : 0;
    const __m512 e = exp2(_mm512_maskz_sub_ps(mask, _mm512_load_ps(scores + p), most));
    const __m512 weight = _mm512_maskz_mov_ps(mask, e);
    sum = _mm512_add_ps(sum, weight);
    store(p, weight);
  }
  return _mm512_reduce_add_ps(sum);
}

// Divides a row of sums by the total and puts it where it belongs.
void put_attended(const Attention& attention, const Piece& piece, int row, const float* attended, float total) {
  const Geometry& g = attention.geometry;
  const int token = piece.first_token + row / g.group(), head = piece.kv_head * g.group() + row % g.group();
  float* out = attention.out + static_cast<size_t>(token) * attention.out_stride + head * g.head_dim;
  const __m512 divisor = _mm512_set1_ps(total);
  for (int d = 0; d < g.head_dim; d += 16) {
    const __m512 value = _mm512_div_ps(_mm512_loadu_ps(attended + d), divisor);
    _mm512_mask_storeu_ps(out + d, first(g.head_dim - d), value);
  }
}

const uint16_t* query_of(const Attention& attention, const Piece& piece, int row) {
  const Geometry& g = attention.geometry;
  const size_t token = piece.first_token + row / g.group();
  return attention.queries + (token * g.heads + piece.kv_head * g.group() + row % g.group()) * g.width;
}

}  // namespace
}  // namespace copydesk
