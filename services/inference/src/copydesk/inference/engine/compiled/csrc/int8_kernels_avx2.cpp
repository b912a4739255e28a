#include "int8_portable.inl"
#include "int8_place.inl"

namespace copydesk {

const Kernels* avx2_kernels() {
#if defined(__AVX2__)
  static const Kernels kernels{"avx2", norm_quantise, quantise, multiply, place, attend};
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kernels : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace copydesk
