#include "int8_decoder.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "bfloat16.hpp"

namespace copydesk {
namespace {

constexpr int kRowsAPiece = 4, kAttentionRows = 16, kLargestStep = 32;
constexpr int kPlacedRows = 16;  // neighbours share cache lines of the keys

}  // namespace

Pages::Pages(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
  void* start = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return;
  start_ = start;
  madvise(start, bytes_, MADV_NOHUGEPAGE);  // a huge page would take memory for positions that nobody has
}

Pages::~Pages() {
  if (start_ != nullptr) munmap(start_, bytes_);
}

Pages::Pages(Pages&& other) noexcept : start_(std::exchange(other.start_, nullptr)), bytes_(other.bytes_) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Pages::empty(size_t first, size_t bytes) {
  const size_t page = sysconf(_SC_PAGESIZE);
  const size_t begin = (first + page - 1) / page * page, end = (first + bytes) / page * page;
  if (begin < end) madvise(as<char>() + begin, end - begin, MADV_DONTNEED);
}

std::unique_ptr<Decoder> Decoder::open(const DecoderOptions& options) {
  const Kernels* kernels = choose_kernels(options.kernels);
  if (kernels == nullptr) return nullptr;
  std::unique_ptr<Decoder> decoder(new Decoder(options, kernels));
  return decoder->allocate() ? std::move(decoder) : nullptr;
}

Decoder::Decoder(const DecoderOptions& options, const Kernels* kernels)
    : shape_(options.shape),
      kernels_(kernels),
      pool_(options.threads),
      context_(options.context),
      cache_tokens_(options.cache_tokens),
      held_(options.slots) {
  const CdShape& s = shape_;
  const Layout layout(s);
  geometry_ = {s.heads, s.kv_heads, s.head_dim, padded(s.head_dim, 32), padded(context_, 32)};
  embedding_ = reinterpret_cast<const uint16_t*>(options.block + layout.embedding());
  norm_ = reinterpret_cast<const float*>(options.block + layout.norm());
  head_ = linear_at(options.block, layout.head());
  for (int i = 0; i < s.layers; ++i) {
    const LayerPlace place = layout.layer(i);
    layers_.push_back({reinterpret_cast<const float*>(options.block + place.attention_norm),
                       reinterpret_cast<const float*>(options.block + place.mlp_norm),
                       linear_at(options.block, place.qkv), linear_at(options.block, place.output),
                       linear_at(options.block, place.gate_up), linear_at(options.block, place.down)});
  }
  const size_t angles = static_cast<size_t>(context_) * s.head_dim / 2;
  cos_.assign(options.cos, options.cos + angles);
  sin_.assign(options.sin, options.sin + angles);
  const int queries = s.heads * s.head_dim, keys = s.kv_heads * s.head_dim;
  hidden_stride_ = padded(s.hidden, kTileInputs);
  qkv_stride_ = padded(queries + 2 * keys, kPair);
  attended_stride_ = padded(queries, kTileInputs);
  gated_stride_ = padded(s.intermediate, kTileInputs);
  quantised_stride_ = row_bytes(std::max({s.hidden, queries, s.intermediate}));
  cache_numbers_ = static_cast<size_t>(geometry_.positions) * geometry_.width;
}

bool Decoder::allocate() {
  const size_t page = sysconf(_SC_PAGESIZE);
  slot_bytes_ = 2 * cache_numbers_ * sizeof(uint16_t) * shape_.layers * shape_.kv_heads;
  slot_bytes_ = (slot_bytes_ + page - 1) / page * page;  // so that no page is shared, and each slot can be emptied
  caches_ = Pages(slot_bytes_ * held_.size());
  const size_t room = kAttentionRows * geometry_.positions, width = kAttentionRows * geometry_.width;
  for (int thread = 0; thread < pool_.size(); ++thread) {
    Pages pages((room + width) * (sizeof(float) + sizeof(uint16_t)));
    if (!pages.held()) return false;
    float* scores = pages.as<float>();
    float* attended = scores + room;
    auto* probabilities = reinterpret_cast<uint16_t*>(attended + width);
    scratch_.push_back({scores, probabilities, probabilities + room, attended});
    scratch_pages_.push_back(std::move(pages));
  }
  return caches_.held();
}

Cache Decoder::cache(int layer, int slot, int head) const {
  auto* slots = caches_.as<char>() + slot_bytes_ * slot;
  const size_t place = static_cast<size_t>(layer) * shape_.kv_heads + head;
  uint16_t* keys = reinterpret_cast<uint16_t*>(slots) + 2 * cache_numbers_ * place;
  return {keys, keys + cache_numbers_};
}

int32_t Decoder::step(const CdStep& step) {
  if (!make_room(step.tokens, step.samples)) return 1;
  keep_within(step);
  lay_out(step);
  embed(step);
  for (int i = 0; i < shape_.layers; ++i) run_layer(layers_[i], i);
  if (step.samples > 0) sample(step);
  return 0;
}

bool Decoder::make_room(int rows, int samples) {
  count_ = rows;
  if (rows <= room_.rows && samples <= room_.samples) return true;
  // Products are computed for 32 rows at a time: there is room for those that are not wanted.
  const size_t n = padded(std::max(rows, room_.rows), kLargestStep) + kLargestStep;
  const size_t threads = pool_.size(), s = std::max(samples, room_.samples);
  Room room{static_cast<int>(n) - kLargestStep,
            static_cast<int>(s),
            Pages(n * hidden_stride_ * sizeof(float)),
            Pages(n * quantised_stride_),
            Pages(n * sizeof(float)),
            Pages(n * qkv_stride_ * sizeof(float)),
            Pages(n * geometry_.heads * geometry_.width * sizeof(uint16_t)),
            Pages(n * attended_stride_ * sizeof(float)),
            Pages(n * gated_stride_ * sizeof(float)),
            Pages(threads * s * sizeof(float)),
            Pages(threads * s * sizeof(int32_t))};
  for (const Pages* pages : {&room.x, &room.quantised, &room.scales, &room.qkv, &room.queries, &room.attended,
                             &room.gated, &room.best, &room.best_index})
    if (!pages->held()) return false;
  room_ = std::move(room);
  return true;
}

// The system's page tables take the place of a table of blocks (as in vAttention, arXiv 2405.04437): a slot has
// addresses for its whole context, and memory for as much of it as was ever used. What a request leaves behind stays
// there for the next one in its slot, until it is wanted elsewhere.
void Decoder::keep_within(const CdStep& step) {
  for (int i = 0; i < step.released; ++i) held_[step.release[i]].used = 0;
  for (int r = 0; r < step.runs; ++r) {
    Held& held = held_[step.run[r].slot];
    held.used = padded(step.run[r].start + step.run[r].length, kPageTokens);
    held.tokens = std::max(held.tokens, held.used);
  }
  int64_t tokens = 0;
  for (const Held& held : held_) tokens += held.tokens;
  while (tokens > cache_tokens_) {
    const auto most = std::max_element(held_.begin(), held_.end(),
                                       [](const Held& a, const Held& b) { return a.spare() < b.spare(); });
    if (most->spare() == 0) return;
    tokens -= most->spare();
    trim(static_cast<int>(most - held_.begin()));
  }
}

void Decoder::trim(int slot) {
  Held& held = held_[slot];
  const size_t region = cache_numbers_ * sizeof(uint16_t);  // keys, or values, of a layer and head
  const size_t used = held.used == 0 ? 0 : static_cast<size_t>(held.used) * geometry_.width * sizeof(uint16_t);
  const size_t regions = used == 0 ? 1 : size_t{2} * shape_.layers * shape_.kv_heads;
  const size_t bytes = used == 0 ? slot_bytes_ : region;
  for (size_t i = 0; i < regions; ++i) caches_.empty(slot_bytes_ * slot + i * bytes + used, bytes - used);
  held.tokens = held.used;
}

void Decoder::lay_out(const CdStep& step) {
  slot_of_.clear();
  position_of_.clear();
  sampled_.clear();
  pieces_.clear();
  piece_slot_.clear();
  int token = 0;
  for (int r = 0; r < step.runs; ++r) {
    const CdRun& run = step.run[r];
    for (int head = 0; head < shape_.kv_heads; ++head)
      for (int row = 0; row < run.length * geometry_.group(); row += kAttentionRows) {
        pieces_.push_back({{}, token, run.start, run.length, head, row});
        piece_slot_.push_back(run.slot);
      }
    for (int i = 0; i < run.length; ++i, ++token) {
      slot_of_.push_back(run.slot);
      position_of_.push_back(run.start + i);
      if (i >= run.length - run.samples) sampled_.push_back(token);
    }
  }
}

template <class Work>
void Decoder::for_rows(int count, int rows_a_piece, Work&& work) {
  pool_.run((count + rows_a_piece - 1) / rows_a_piece, [&](int piece, int) {
    const int end = std::min(count, (piece + 1) * rows_a_piece);
    for (int row = piece * rows_a_piece; row < end; ++row) work(row);
  });
}

void Decoder::embed(const CdStep& step) {
  for_rows(count_, kRowsAPiece, [&](int row) {
    const uint16_t* source = embedding_ + static_cast<size_t>(step.token[row]) * shape_.hidden;
    float* x = room_.x.as<float>() + static_cast<size_t>(row) * hidden_stride_;
    for (int i = 0; i < shape_.hidden; ++i) x[i] = widened(source[i]);
  });
}

void Decoder::run_layer(const Layer& layer, int index) {
  float* x = room_.x.as<float>();
  norm(layer.attention_norm, count_, nullptr);
  multiply(layer.qkv, Then::kStore, room_.qkv.as<float>(), qkv_stride_, count_);
  place(index);
  attend(index);
  quantise(room_.attended.as<float>(), attended_stride_, layer.output.inputs);
  multiply(layer.output, Then::kAdd, x, hidden_stride_, count_);
  norm(layer.mlp_norm, count_, nullptr);
  multiply(layer.gate_up, Then::kGate, room_.gated.as<float>(), gated_stride_, count_);
  quantise(room_.gated.as<float>(), gated_stride_, layer.down.inputs);
  multiply(layer.down, Then::kAdd, x, hidden_stride_, count_);
}

// How far apart rows of 8-bit activations lie: an odd number of cache lines, so that rows do not fall on each other.
int Decoder::row_bytes(int inputs) { return padded(inputs, kTileInputs) | kTileInputs; }

void Decoder::norm(const float* weight, int count, const int32_t* rows) {
  for_rows(count, kRowsAPiece, [&](int row) {
    const float* x = room_.x.as<float>() + static_cast<size_t>(rows ? rows[row] : row) * hidden_stride_;
    kernels_->norm_quantise(x, weight, shape_.norm_epsilon, shape_.hidden,
                            room_.quantised.as<int8_t>() + static_cast<size_t>(row) * row_bytes(shape_.hidden), hidden_stride_,
                            room_.scales.as<float>() + row);
  });
}

void Decoder::quantise(const float* source, int stride, int size) {
  for_rows(count_, kRowsAPiece, [&](int row) {
    kernels_->quantise(source + static_cast<size_t>(row) * stride, size,
                       room_.quantised.as<int8_t>() + static_cast<size_t>(row) * row_bytes(size), stride,
                       room_.scales.as<float>() + row);
  });
}

void Decoder::multiply(const Linear& linear, Then then, float* out, int out_stride, int count) {
  const Product product{&linear,
                        room_.quantised.as<int8_t>(),
                        room_.scales.as<float>(),
                        count,
                        row_bytes(linear.inputs),
                        pool_.size(),
                        then,
                        out,
                        out_stride,
                        room_.best.as<float>(),
                        room_.best_index.as<int32_t>(),
                        scores_of_.data()};
  pool_.run(linear.pairs(), [&](int pair, int thread) { kernels_->multiply(product, pair, thread); });
}

void Decoder::place(int layer) {
  const Geometry& g = geometry_;
  const size_t half = g.head_dim / 2;
  const float scale = 1.4426950408889634f / std::sqrt(static_cast<float>(g.head_dim));
  for_rows(count_, kPlacedRows, [&](int row) {
    const int position = position_of_[row];
    kernels_->place(g, {room_.qkv.as<float>() + static_cast<size_t>(row) * qkv_stride_, cos_.data() + position * half,
                        sin_.data() + position * half, scale, position,
                        room_.queries.as<uint16_t>() + static_cast<size_t>(row) * g.heads * g.width,
                        cache(layer, slot_of_[row], 0), 2 * cache_numbers_});
  });
}

void Decoder::attend(int layer) {
  const Attention attention{geometry_, room_.queries.as<uint16_t>(), room_.attended.as<float>(), attended_stride_};
  pool_.run(static_cast<int>(pieces_.size()), [&](int index, int thread) {
    Piece piece = pieces_[index];
    piece.cache = cache(layer, piece_slot_[index], piece.kv_head);
    kernels_->attend(attention, piece, scratch_[thread]);
  });
}

void Decoder::sample(const CdStep& step) {
  const int count = step.samples;
  scores_of_.assign(padded(count, kLargestStep), nullptr);
  float* scores = step.scores;
  for (int r = 0, sample = 0; r < step.runs; ++r) {
    const CdRun& run = step.run[r];
    for (int i = 0; run.scores && i < run.samples; ++i, scores += shape_.vocabulary) scores_of_[sample + i] = scores;
    sample += run.samples;
  }
  float* best = room_.best.as<float>();
  int32_t* best_index = room_.best_index.as<int32_t>();
  std::fill(best, best + static_cast<size_t>(pool_.size()) * count, -INFINITY);
  std::fill(best_index, best_index + static_cast<size_t>(pool_.size()) * count, 0);
  norm(norm_, count, sampled_.data());
  multiply(head_, Then::kArgmax, nullptr, 0, count);
  for (int row = 0; row < count; ++row) {
    int winner = row;
    for (int thread = 1; thread < pool_.size(); ++thread) {
      const int other = thread * count + row;
      const bool better = best[other] > best[winner] ||
                          (best[other] == best[winner] && best_index[other] < best_index[winner]);
      if (better) winner = other;
    }
    step.chosen[row] = best_index[winner];
  }
}

}  // namespace copydesk
