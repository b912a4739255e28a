// Heads of requests that the parser has taken before, without what differs from one request to the next.
//
// Clients send the same head again and again, but for the length of the body, and the request's id or trace. A head
// that the HTTP parser and the gateway's checks have taken once is taken again if it is the same byte for byte
// outside these three values, and the values themselves are plain. So nothing is parsed here that was not parsed by a
// real parser before.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "cells.hpp"
#include "forms.hpp"

namespace copydesk {

enum class Form : int { kCompletion = 0, kChat = 1, kCorrection = 2 };
constexpr int kForms = 3;

// Sentences are much of a length: how long one takes says something of its pod. How long a text takes to write does not.
constexpr bool timed(Form form) { return form == Form::kCorrection; }

// What the gateway found out about a head: whose it is, where it leads, and what holds for its client.
struct Rule {
  Form form;
  int priority;
  double allowed;              // seconds
  Held inside;                 // Cell; none where the number of requests has no limit
  long long concurrency = 0;
  Held due;                    // Cell; none where the rate has no limit
  long long interval = 0, burst = 0;  // microseconds, requests
  std::string session;         // by which versions of a model are drawn; empty: by the request's id

  Cell* inside_cell() const { return reinterpret_cast<Cell*>(inside.get()); }
  Cell* due_cell() const { return reinterpret_cast<Cell*>(due.get()); }
};

// A head taken apart: `key` is all of it but the values that differ.
struct Head {
  std::string key;
  std::size_t length = 0;  // of the body
  Bytes request_id{nullptr, 0};
};

// Take apart a head, blank line included; false if it is not a plain one. Reuses the memory of `head`.
bool take_apart(Bytes bytes, Head& head);

class Heads {
 public:
  static constexpr std::size_t kMostBytes = 4000;

  // Null for a head that is not known.
  const std::shared_ptr<const Rule>* find(const std::string& key) const {
    const auto found = rules_.find(key);
    return found == rules_.end() ? nullptr : &found->second;
  }
  void learn(std::string key, std::shared_ptr<const Rule> rule) {
    rules_[std::move(key)] = std::move(rule);
  }
  void forget() { rules_.clear(); }
  std::size_t size() const { return rules_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const std::string& text) const;
  };
  std::unordered_map<std::string, std::shared_ptr<const Rule>, Hash> rules_;
};

}  // namespace copydesk
