// AVX-512 VNNI, without AMX.
#if defined(__AVX512F__)
#include "bfloat16.hpp"
#include "int8_avx512.inl"
#include "int8_place.inl"

namespace copydesk {

namespace {

constexpr int kRows = 6;  // as many as keep their sums in registers

// Sums of up to kRows rows. The instruction multiplies unsigned by signed, so that 128 is added to each activation,
// and 128 times the sum of the weights taken off again.
template <int rows>
void sums_of(const int8_t* inputs, int stride, const int8_t* a, const int8_t* b, int quads, const int32_t* sums,
             int32_t* out) {
  __m512i acc[rows][2];
  for (int row = 0; row < rows; ++row) acc[row][0] = acc[row][1] = _mm512_setzero_si512();
  const __m512i flip = _mm512_set1_epi32(static_cast<int32_t>(0x80808080u));
  for (int quad = 0; quad < quads; ++quad) {
    const __m512i left = _mm512_loadu_si512(a + quad * 64), right = _mm512_loadu_si512(b + quad * 64);
    for (int row = 0; row < rows; ++row) {
      int32_t four;
      std::memcpy(&four, inputs + static_cast<size_t>(row) * stride + quad * 4, sizeof four);
      const __m512i spread = _mm512_xor_si512(_mm512_set1_epi32(four), flip);
      acc[row][0] = _mm512_dpbusd_epi32(acc[row][0], spread, left);
      acc[row][1] = _mm512_dpbusd_epi32(acc[row][1], spread, right);
    }
  }
  for (int half = 0; half < 2; ++half) {
    const __m512i excess = _mm512_slli_epi32(_mm512_loadu_si512(sums + half * kTileOutputs), 7);
    for (int row = 0; row < rows; ++row)
      _mm512_store_si512(out + row * kPair + half * kTileOutputs, _mm512_sub_epi32(acc[row][half], excess));
  }
}

void multiply(const Product& product, int pair, int thread) {
  const Linear& linear = *product.linear;
  const Columns columns(linear, pair);
  const int8_t *a = tiles_of(linear, pair, 0), *b = tiles_of(linear, pair, 1);
  const int quads = linear.tiles() * kTileInputs / 4;
  alignas(64) int32_t sums[kRows * kPair];
  for (int row = 0; row < product.count; row += kRows) {
    const int8_t* inputs = product.rows + static_cast<size_t>(row) * product.stride;
    const int32_t* weights = linear.sums + pair * kPair;
    const int rows = product.count - row < kRows ? product.count - row : kRows;
    switch (rows) {
      case 1: sums_of<1>(inputs, product.stride, a, b, quads, weights, sums); break;
      case 2: sums_of<2>(inputs, product.stride, a, b, quads, weights, sums); break;
      case 3: sums_of<3>(inputs, product.stride, a, b, quads, weights, sums); break;
      case 4: sums_of<4>(inputs, product.stride, a, b, quads, weights, sums); break;
      case 5: sums_of<5>(inputs, product.stride, a, b, quads, weights, sums); break;
      default: sums_of<kRows>(inputs, product.stride, a, b, quads, weights, sums); break;
    }
    finish_rows(product, pair, thread, row, row + rows, sums, columns);
  }
}

__m512 even(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
__m512 odd(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u))));
}

void score(const Geometry& g, const Piece& piece, const uint16_t* query, int seen, float* scores) {
  for (int p = 0; p < seen; p += 16) {
    const uint16_t* keys = piece.cache.keys + static_cast<size_t>(p / 16) * g.width * 16;
    __m512 sum = _mm512_setzero_ps();
    for (int d = 0; d < g.width; d += 2) {
      const __m512i pairs = _mm512_loadu_si512(keys + d * 16);
      sum = _mm512_fmadd_ps(even(pairs), _mm512_set1_ps(widened(query[d])), sum);
      sum = _mm512_fmadd_ps(odd(pairs), _mm512_set1_ps(widened(query[d + 1])), sum);
    }
    _mm512_store_ps(scores + p, sum);
  }
}

void weigh(const Geometry& g, const Piece& piece, const float* weights, int seen, float* attended) {
  for (int d = 0; d < g.width; d += 16) {
    __m512 sum = _mm512_setzero_ps();
    for (int p = 0; p < seen; p += 2) {
      const __m512i pairs = _mm512_loadu_si512(piece.cache.values + static_cast<size_t>(p / 2) * g.width * 2 + d * 2);
      sum = _mm512_fmadd_ps(even(pairs), _mm512_set1_ps(weights[p]), sum);
      sum = _mm512_fmadd_ps(odd(pairs), _mm512_set1_ps(weights[p + 1]), sum);
    }
    _mm512_store_ps(attended + d, sum);
  }
}

void attend(const Attention& attention, const Piece& piece, const Scratch& scratch) {
  const Geometry& g = attention.geometry;
  for (int row = piece.row; row < piece.row + 16 && row < piece.length * g.group(); ++row) {
    const int seen = piece.start + row / g.group() + 1;
    float* scores = scratch.scores;
    score(g, piece, query_of(attention, piece, row), seen, scores);
    const float total = softmax(scores, seen, padded(seen, 16), [&](int p, __m512 w) { _mm512_store_ps(scores + p, w); });
    weigh(g, piece, scores, seen, scratch.attended);
    put_attended(attention, piece, row, scratch.attended, total);
  }
}

}  // namespace

const Kernels* avx512_kernels() {
  static const Kernels kernels{"avx512", norm_quantise, quantise, multiply, place, attend};
  const bool able = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vnni");
  return able ? &kernels : nullptr;
}

}  // namespace copydesk
#else
#include "int8_kernels.hpp"

namespace copydesk {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace copydesk
#endif
