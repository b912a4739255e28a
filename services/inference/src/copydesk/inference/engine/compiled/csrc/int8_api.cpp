// The decoder's C interface, for ctypes; engine/native/int8/decoder.py is its other side.
#include <cstring>

#include "int8_decoder.hpp"

using copydesk::Decoder;
using copydesk::DecoderOptions;
using copydesk::Kernels;

namespace copydesk {

const Kernels* choose_kernels(const char* name) {
  const Kernels* all[] = {amx_kernels(), avx512_kernels(), avx2_kernels(), portable_kernels()};
  for (const Kernels* kernels : all)
    if (kernels != nullptr && (name == nullptr || std::strcmp(name, kernels->name) == 0)) return kernels;
  return nullptr;
}

}  // namespace copydesk

extern "C" {

Decoder* cd_decoder_open(const DecoderOptions* options) { return Decoder::open(*options).release(); }

void cd_decoder_close(Decoder* decoder) { delete decoder; }

int32_t cd_decoder_step(void* self, const CdStep* step) { return static_cast<Decoder*>(self)->step(*step); }

// The name of the kernels that would be taken, or of those called `name`; null when this processor has them not.
const char* cd_kernels(const char* name) {
  const Kernels* kernels = copydesk::choose_kernels(name);
  return kernels == nullptr ? nullptr : kernels->name;
}

// Quantises rows [count][size] and multiplies them with one linear map, for tests of the kernels alone.
int32_t cd_kernels_multiply(const char* name, const CdShape* shape, const uint8_t* block, const float* rows, int32_t count, float* out) {
  using namespace copydesk;
  const Kernels* kernels = choose_kernels(name);
  if (kernels == nullptr) return 1;
  const Layout layout(*shape);
  const Linear linear = linear_at(block, layout.layer(0).down);
  const int stride = padded(linear.inputs, kTileInputs), wide = padded(linear.outputs, kPair);
  Pages quantised(static_cast<size_t>(padded(count, 32) + 32) * stride), products(static_cast<size_t>(count) * wide * sizeof(float));
  std::vector<float> scales(padded(count, 32));
  for (int row = 0; row < count; ++row)
    kernels->quantise(rows + static_cast<size_t>(row) * linear.inputs, linear.inputs,
                      quantised.as<int8_t>() + static_cast<size_t>(row) * stride, stride, &scales[row]);
  const Product product{&linear, quantised.as<int8_t>(), scales.data(), count, stride, 1, Then::kStore,
                        products.as<float>(), wide, nullptr, nullptr, nullptr};
  for (int pair = 0; pair < linear.pairs(); ++pair) kernels->multiply(product, pair, 0);
  for (int row = 0; row < count; ++row)
    std::memcpy(out + static_cast<size_t>(row) * linear.outputs, products.as<float>() + static_cast<size_t>(row) * wide, linear.outputs * sizeof(float));
  return 0;
}

}  // extern "C"
