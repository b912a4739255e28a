#include "int8_portable.inl"

const Kernels* portable_kernels() {
  static const Kernels kernels{"portable", norm_quantise, quantise, multiply, attend};
  return &kernels;
}

}  // namespace copydesk
