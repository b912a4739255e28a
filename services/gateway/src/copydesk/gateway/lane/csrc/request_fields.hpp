// The names that a request may have, and how their values are taken; copydesk.gateway.openai.schemas is the truth.
// All but the prompt and the messages may be null.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace copydesk {

enum class Takes : std::uint8_t {
  kPrompt,
  kMessages,
  kModel,
  kMaxTokens,
  kNewerMaxTokens,
  kTemperature,
  kTopP,
  kTopK,
  kMinP,
  kSeed,
  kPresencePenalty,
  kFrequencyPenalty,
  kRepetitionPenalty,
  kStop,
  kIgnoreEos,
  kOff,        // false
  kSwitch,     // true or false, without an effect
  kOne,        // 1
  kZero,       // 0
  kEmpty,      // ""
  kEmptyList,  // []
  kTag,        // a text without an effect
  kNull,       // what Python has to look at unless it is null
};

enum Api : unsigned { kCompletions = 1, kChats = 2, kBoth = 3 };

struct Field {
  std::string_view name;
  Takes takes;
  unsigned apis;
};

constexpr Field kFields[] = {
    {"prompt", Takes::kPrompt, kCompletions},
    {"messages", Takes::kMessages, kChats},
    {"model", Takes::kModel, kBoth},
    {"max_tokens", Takes::kMaxTokens, kBoth},
    {"max_completion_tokens", Takes::kNewerMaxTokens, kChats},
    {"temperature", Takes::kTemperature, kBoth},
    {"top_p", Takes::kTopP, kBoth},
    {"top_k", Takes::kTopK, kBoth},
    {"min_p", Takes::kMinP, kBoth},
    {"seed", Takes::kSeed, kBoth},
    {"presence_penalty", Takes::kPresencePenalty, kBoth},
    {"frequency_penalty", Takes::kFrequencyPenalty, kBoth},
    {"repetition_penalty", Takes::kRepetitionPenalty, kBoth},
    {"stop", Takes::kStop, kBoth},
    {"ignore_eos", Takes::kIgnoreEos, kBoth},
    {"stream", Takes::kOff, kBoth},
    {"echo", Takes::kOff, kCompletions},
    {"logprobs", Takes::kOff, kBoth},
    {"store", Takes::kOff, kChats},
    {"parallel_tool_calls", Takes::kSwitch, kChats},
    {"n", Takes::kOne, kBoth},
    {"best_of", Takes::kOne, kCompletions},
    {"top_logprobs", Takes::kZero, kChats},
    {"suffix", Takes::kEmpty, kCompletions},
    {"stop_token_ids", Takes::kEmptyList, kBoth},
    {"tools", Takes::kEmptyList, kChats},
    {"functions", Takes::kEmptyList, kChats},
    {"user", Takes::kTag, kBoth},
    {"prompt_cache_key", Takes::kTag, kChats},
    {"safety_identifier", Takes::kTag, kChats},
    {"stream_options", Takes::kNull, kBoth},
    {"priority", Takes::kNull, kBoth},
    {"logit_bias", Takes::kNull, kBoth},
    {"metadata", Takes::kNull, kChats},
    {"response_format", Takes::kNull, kChats},
    {"service_tier", Takes::kNull, kChats},
    {"tool_choice", Takes::kNull, kChats},
    {"function_call", Takes::kNull, kChats},
    {"modalities", Takes::kNull, kChats},
    {"audio", Takes::kNull, kChats},
    {"prediction", Takes::kNull, kChats},
    {"prompt_cache_retention", Takes::kNull, kChats},
    {"reasoning_effort", Takes::kNull, kChats},
    {"verbosity", Takes::kNull, kChats},
    {"web_search_options", Takes::kNull, kChats},
};

constexpr std::size_t kFieldCount = sizeof kFields / sizeof kFields[0];
static_assert(kFieldCount <= 64, "which fields have been read is kept in 64 bits");

// An open hash table that the compiler fills: of a name, its size, its first letter and its last are looked at.
constexpr std::size_t kSlots = 256;
constexpr std::uint8_t kFree = 0xFF;

constexpr std::size_t slot_of(std::string_view name) {
  const auto letter = [](char value) { return static_cast<std::size_t>(static_cast<unsigned char>(value)); };
  return (name.size() * 29 + letter(name.front()) * 5 + letter(name.back()) * 71) % kSlots;
}

constexpr std::array<std::uint8_t, kSlots> fields_by_slot() {
  std::array<std::uint8_t, kSlots> slots{};
  for (std::size_t slot = 0; slot < kSlots; ++slot) slots[slot] = kFree;
  for (std::size_t index = 0; index < kFieldCount; ++index) {
    std::size_t slot = slot_of(kFields[index].name);
    while (slots[slot] != kFree) slot = (slot + 1) % kSlots;
    slots[slot] = static_cast<std::uint8_t>(index);
  }
  return slots;
}

inline constexpr std::array<std::uint8_t, kSlots> kFieldsBySlot = fields_by_slot();

// The index of a field, `kFieldCount` if there is none of that name.
inline std::size_t field_of(std::string_view name) {
  if (name.empty()) return kFieldCount;
  for (std::size_t slot = slot_of(name); kFieldsBySlot[slot] != kFree; slot = (slot + 1) % kSlots)
    if (kFields[kFieldsBySlot[slot]].name == name) return kFieldsBySlot[slot];
  return kFieldCount;
}

}  // namespace copydesk
