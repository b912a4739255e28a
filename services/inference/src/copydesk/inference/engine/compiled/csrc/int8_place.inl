// Queries and keys are turned to their positions (Su et al., arXiv 2104.09864), and keys and values put into the
// cache. Plain loops that the compiler vectorises; included once for each set of instructions, in an unnamed namespace.
#include <cstring>

#include "bfloat16.hpp"
#include "int8_kernels.hpp"

namespace copydesk {
namespace {

constexpr int kWidest = 512;  // of a head

void narrow(const float* source, int size, uint16_t* target) {
  for (int i = 0; i < size; ++i) target[i] = narrowed(source[i]);
}

void rotate(const float* source, const float* cos, const float* sin, int half, float scale, float* target) {
  for (int d = 0; d < half; ++d) {
    target[d] = (source[d] * cos[d] - source[d + half] * sin[d]) * scale;
    target[d + half] = (source[d + half] * cos[d] + source[d] * sin[d]) * scale;
  }
}

void place(const Geometry& g, const Placement& p) {
  alignas(64) float turned[kWidest];
  alignas(64) uint16_t halved[kWidest] = {};
  const int half = g.head_dim / 2;
  const float* source = p.source;
  for (int head = 0; head < g.heads; ++head, source += g.head_dim) {
    rotate(source, p.cos, p.sin, half, p.query_scale, turned);
    narrow(turned, g.head_dim, p.queries + static_cast<size_t>(head) * g.width);
  }
  const float* values = source + static_cast<size_t>(g.kv_heads) * g.head_dim;
  for (int head = 0; head < g.kv_heads; ++head, source += g.head_dim, values += g.head_dim) {
    const Cache cache{p.cache.keys + p.head_stride * head, p.cache.values + p.head_stride * head};
    rotate(source, p.cos, p.sin, half, 1.0f, turned);
    narrow(turned, g.head_dim, halved);
    uint16_t* keys = cache.keys + static_cast<size_t>(p.position / 16) * g.width * 16 + p.position % 16 * 2;
    for (int d = 0; d < g.head_dim; d += 2) std::memcpy(keys + d * 16, halved + d, 2 * sizeof *keys);
    narrow(values, g.head_dim, halved);
    uint16_t* kept = cache.values + static_cast<size_t>(p.position / 2) * g.width * 2 + p.position % 2;
    for (int d = 0; d < g.head_dim; ++d) kept[d * 2] = halved[d];
  }
}

}  // namespace
}  // namespace copydesk
