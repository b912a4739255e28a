// AMX: tile registers of 16 rows by 64 bytes (Intel, "Architecture Instruction Set Extensions", chapter 3).
#if defined(__AMX_INT8__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "int8_avx512.inl"
#include "int8_place.inl"

namespace copydesk {

namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_a_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

struct Tiles {
  Tiles() {
    static const TileConfig config;
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
};

// Weights come from memory, and a tile load waits for all of its sixteen lines: those of a later pair are asked for
// while this one is multiplied.
void prefetch(const int8_t* weights) {
  if (weights == nullptr) return;
  for (int line = 0; line < 2 * kTileOutputs * kTileInputs; line += 64) _mm_prefetch(weights + line, _MM_HINT_T0);
}

// Tiles 0 to 3 are sums: 16 rows by 16 outputs each, two by two. 4 and 5 hold rows, 6 and 7 weights.
void sums_of_32(const int8_t* rows, int stride, const int8_t* a, const int8_t* b, int tiles, const int8_t* later,
                int32_t* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const int8_t* lower = rows + static_cast<size_t>(16) * stride;
  for (int k = 0; k < tiles; ++k) {
    prefetch(later ? later + k * 2 * kTileOutputs * kTileInputs : nullptr);
    _tile_loadd(4, rows + k * 64, stride);
    _tile_loadd(6, a + k * 1024, 64);
    _tile_loadd(7, b + k * 1024, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(5, lower + k * 64, stride);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  constexpr int bytes = kPair * sizeof(int32_t);
  _tile_stored(0, sums, bytes);
  _tile_stored(1, sums + 16, bytes);
  _tile_stored(2, sums + 16 * kPair, bytes);
  _tile_stored(3, sums + 16 * kPair + 16, bytes);
}

void sums_of_16(const int8_t* rows, int stride, const int8_t* a, const int8_t* b, int tiles, const int8_t* later,
                int32_t* sums) {
  _tile_zero(0);
  _tile_zero(1);
  for (int k = 0; k < tiles; ++k) {
    prefetch(later ? later + k * 2 * kTileOutputs * kTileInputs : nullptr);
    _tile_loadd(4, rows + k * 64, stride);
    _tile_loadd(6, a + k * 1024, 64);
    _tile_loadd(7, b + k * 1024, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
  }
  constexpr int bytes = kPair * sizeof(int32_t);
  _tile_stored(0, sums, bytes);
  _tile_stored(1, sums + 16, bytes);
}

void multiply(const Product& product, int pair, int thread) {
  const Tiles configured;
  const Linear& linear = *product.linear;
  const Columns columns(linear, pair);
  const int8_t *a = tiles_of(linear, pair, 0), *b = tiles_of(linear, pair, 1);
  const int8_t* later = pair + product.ahead < linear.pairs() ? tiles_of(linear, pair + product.ahead, 0) : nullptr;
  alignas(64) int32_t sums[32 * kPair];
  for (int row = 0; row < product.count; row += 32) {
    const int8_t* rows = product.rows + static_cast<size_t>(row) * product.stride;
    const int left = product.count - row;
    if (left > 16)
      sums_of_32(rows, product.stride, a, b, linear.tiles(), row ? nullptr : later, sums);
    else
      sums_of_16(rows, product.stride, a, b, linear.tiles(), row ? nullptr : later, sums);
    finish_rows(product, pair, thread, row, row + (left < 32 ? left : 32), sums, columns);
  }
}

void store_bfloat16(uint16_t* target, __m512 value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), (__m256i)_mm512_cvtneps_pbh(value));
}

// Scores [16][positions] of up to 16 rows, for all positions up to `width`, those that a row may not see included.
void score(const Geometry& g, const Piece& piece, const uint16_t* queries, int width, float* scores) {
  const int row_bytes = g.width * 2;
  for (int p = 0; p < width; p += 32) {
    const uint16_t* keys = piece.cache.keys + static_cast<size_t>(p / 16) * g.width * 16;
    _tile_zero(0);
    _tile_zero(1);
    for (int d = 0; d < g.width; d += 32) {
      _tile_loadd(4, queries + d, row_bytes);
      _tile_loadd(6, keys + d * 16, 64);
      _tile_loadd(7, keys + (g.width + d) * 16, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, scores + p, g.positions * 4);
    _tile_stored(1, scores + p + 16, g.positions * 4);
  }
}

// Sums [16][width] of values by probabilities.
void weigh(const Geometry& g, const Piece& piece, const uint16_t* probabilities, int width, float* attended) {
  for (int d = 0; d < g.width; d += 32) {
    _tile_zero(0);
    _tile_zero(1);
    for (int p = 0; p < width; p += 32) {
      const uint16_t* values = piece.cache.values + static_cast<size_t>(p / 2) * g.width * 2 + d * 2;
      _tile_loadd(4, probabilities + p, g.positions * 2);
      _tile_loadd(6, values, g.width * 4);
      _tile_loadd(7, values + 32, g.width * 4);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, attended + d, g.width * 4);
    _tile_stored(1, attended + d + 16, g.width * 4);
  }
}

void attend(const Attention& attention, const Piece& piece, const Scratch& scratch) {
  const Tiles configured;
  const Geometry& g = attention.geometry;
  const int left = piece.length * g.group() - piece.row, rows = left < 16 ? left : 16;
  const int width = padded(piece.start + (piece.row + rows - 1) / g.group() + 1, 32);
  for (int row = 0; row < rows; ++row)
    std::memcpy(scratch.queries + row * g.width, query_of(attention, piece, piece.row + row), g.width * 2);
  score(g, piece, scratch.queries, width, scratch.scores);
  float totals[16];
  for (int row = 0; row < rows; ++row) {
    uint16_t* probabilities = scratch.probabilities + static_cast<size_t>(row) * g.positions;
    const int seen = piece.start + (piece.row + row) / g.group() + 1;
    totals[row] = softmax(scratch.scores + static_cast<size_t>(row) * g.positions, seen, width,
                          [&](int p, __m512 weight) { store_bfloat16(probabilities + p, weight); });
  }
  weigh(g, piece, scratch.probabilities, width, scratch.attended);
  for (int row = 0; row < rows; ++row)
    put_attended(attention, piece, piece.row + row, scratch.attended + row * g.width, totals[row]);
}

bool has_amx() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool tiles = d >> 24 & 1, int8 = d >> 25 & 1, bfloat16 = d >> 22 & 1;
  if (!tiles || !int8 || !bfloat16) return false;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a >> 5 & 1)) return false;  // AVX512_BF16
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const Kernels* amx_kernels() {
  static const Kernels kernels{"amx", norm_quantise, quantise, multiply, place, attend};
  static const bool able = avx512_kernels() != nullptr && has_amx();
  return able ? &kernels : nullptr;
}

}  // namespace copydesk
#else
#include "int8_kernels.hpp"

namespace copydesk {
const Kernels* amx_kernels() { return nullptr; }
}  // namespace copydesk
#endif
