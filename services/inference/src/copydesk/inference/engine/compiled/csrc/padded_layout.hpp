// How a device that runs a step only in fixed sizes wants it: the compiled counterpart of native/cuda/padded_layout.py,
// which says why it is so.
#pragma once

#include <cstdint>

#include "step.hpp"

extern "C" {

// The most that a step of this size may have: tokens, slots counted from 0, tokens of one run, positions, samples.
struct CdBucket {
  int32_t tokens, rows, width, reach, samples;
};
}

namespace copydesk {

// Finds the first of `count` buckets that the step fits into, lays it out there, and returns which it is; -1 when there
// is none. `numbers` has room for the largest of the buckets. What stands for no token is stored at `spare_row`.
// In their order, each padded:
//   by token: what it is, its position, its row of the cache;
//   by sample, in the order of the step: the token it comes after;
//   where runs may be longer than a token: by token its cell; by cell the token that fills it.
int32_t lay_out_padded(const CdStep& step, const CdBucket* buckets, int32_t count, int32_t context, int64_t spare_row,
                       int64_t* numbers);

}  // namespace copydesk
