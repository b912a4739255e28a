#include "int8_portable.inl"
#include "int8_place.inl"

namespace copydesk {

const Kernels* portable_kernels() {
  static const Kernels kernels{"portable", norm_quantise, quantise, multiply, place, attend};
  return &kernels;
}

}  // namespace copydesk
