#include "padded_layout.hpp"

#include <algorithm>

namespace copydesk {
namespace {

CdBucket sizes_of(const CdStep& step) {
  CdBucket sizes{step.tokens, 0, 0, 0, step.samples};
  for (int32_t r = 0; r < step.runs; ++r) {
    const CdRun& run = step.run[r];
    sizes.rows = std::max(sizes.rows, run.slot + 1);
    sizes.width = std::max(sizes.width, run.length);
    sizes.reach = std::max(sizes.reach, run.start + run.length);
  }
  return sizes;
}

bool fits(const CdBucket& sizes, const CdBucket& bucket) {
  return sizes.tokens <= bucket.tokens && sizes.rows <= bucket.rows && sizes.width <= bucket.width &&
         sizes.reach <= bucket.reach && sizes.samples <= bucket.samples;
}

// The lists that the numbers of a bucket consist of.
struct Lists {
  int64_t *token, *position, *row, *sampled, *cell, *source, *end;

  Lists(const CdBucket& bucket, int64_t* numbers) {
    const int64_t cells = bucket.width > 1 ? int64_t{bucket.rows} * bucket.width : 0;
    token = numbers;
    position = token + bucket.tokens;
    row = position + bucket.tokens;
    sampled = row + bucket.tokens;
    cell = sampled + bucket.samples;
    source = cell + (cells > 0 ? bucket.tokens : 0);
    end = source + cells;
  }
};

void write(const CdStep& step, const CdBucket& bucket, int32_t context, int64_t spare_row, const Lists& lists) {
  std::fill(lists.token, lists.end, 0);
  std::fill(lists.row, lists.sampled, spare_row);
  const bool wide = bucket.width > 1;
  const int32_t* token = step.token;
  int64_t next = 0, sample = 0;
  for (int32_t r = 0; r < step.runs; ++r) {
    const CdRun& run = step.run[r];
    const int64_t first = wide ? next : run.slot;
    for (int64_t i = 0; i < run.length; ++i) {
      lists.token[first + i] = *token++;
      lists.position[first + i] = run.start + i;
      lists.row[first + i] = int64_t{run.slot} * context + run.start + i;
      if (wide) lists.cell[first + i] = int64_t{run.slot} * bucket.width + i;
    }
    for (int64_t i = run.length - run.samples; i < run.length; ++i) lists.sampled[sample++] = first + i;
    if (wide)
      for (int64_t i = 0; i < bucket.width; ++i)
        lists.source[int64_t{run.slot} * bucket.width + i] = first + std::min<int64_t>(i, run.length - 1);
    next += run.length;
  }
}

}  // namespace

int32_t lay_out_padded(const CdStep& step, const CdBucket* buckets, int32_t count, int32_t context, int64_t spare_row,
                       int64_t* numbers) {
  const CdBucket sizes = sizes_of(step);
  const CdBucket* found = std::find_if(buckets, buckets + count, [&](const auto& each) { return fits(sizes, each); });
  if (found == buckets + count) return -1;
  write(step, *found, context, spare_row, Lists(*found, numbers));
  return static_cast<int32_t>(found - buckets);
}

}  // namespace copydesk

extern "C" {

// For ctypes; engine/native/cuda/padded_layout.py is its other side.
int32_t cd_lay_out_padded(const CdStep* step, const CdBucket* buckets, int32_t count, int32_t context,
                          int64_t spare_row, int64_t* numbers) {
  return copydesk::lay_out_padded(*step, buckets, count, context, spare_row, numbers);
}

}  // extern "C"
