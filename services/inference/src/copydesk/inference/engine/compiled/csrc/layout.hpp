// How torch wants the runs of a step: the compiled counterpart of layout.py, which says why it is so, and of the numbers
// that step.py makes of that.
#pragma once

#include <cstdint>

#include "step.hpp"

namespace copydesk {

// Runs that attend together. `slots` [rows], `positions` [rows * width], `cells` [last - first] and `sources`
// [rows * width] say where in the numbers these lists begin; the last two are -1 when token and cell are the same.
struct LayoutGroup {
  int64_t first, last, rows, width, reach, contiguous, slots, positions, cells, sources;
};

// Lays out a step, no two runs of which have the same slot, and returns how many numbers that takes. They are written
// if there is room for so many. In their order:
//   how many groups there are, and the groups;
//   by token: what it is, its position, and its row of the cache;
//   by sample: the token it comes after; then, in the order of the step, its place among the samples, and the same for
//   samples of runs with scores alone;
//   by run: its place in the step;
//   the lists of each group.
// Runs, tokens and samples are in the order of the layout, unless it says otherwise.
int64_t lay_out(const CdStep& step, int32_t context, int64_t* numbers, int64_t room);

}  // namespace copydesk
