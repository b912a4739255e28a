// Requests on their way to a pod and back, found by the ids of their frames.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heads.hpp"

namespace copydesk {

struct Flight {
  std::uint64_t id = 0;  // of the frame; 0 where there is none
  Held port, seat;
  std::shared_ptr<const Rule> rule;
  Held data;  // the request as it came, for Python to begin with should it come to that
  std::string request_id;
  std::string sentence;  // that is corrected
  double sent_at = 0.0, deadline = 0.0;  // monotonic seconds

  bool underway() const { return id != 0; }
};

// Ids have a bit that Python's, which count from 1, do not reach; below it a count and a place in the table.
class Flights {
 public:
  Flight& begin() {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(flights_.size()));
      flights_.push_back(std::make_unique<Flight>());
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    count_ = (count_ + 1) & ((std::uint64_t{1} << kCountBits) - 1);
    Flight& flight = *flights_[place];
    flight.id = kOurs | count_ << kPlaceBits | place;
    return flight;
  }

  Flight* find(std::uint64_t id) {
    const std::uint64_t place = id & ((std::uint64_t{1} << kPlaceBits) - 1);
    if (place >= flights_.size() || flights_[place]->id != id || id == 0) return nullptr;
    return flights_[place].get();
  }

  void end(Flight& flight) {
    free_.push_back(static_cast<std::uint32_t>(flight.id & ((std::uint64_t{1} << kPlaceBits) - 1)));
    flight.id = 0;
    flight.port.reset();
    flight.seat.reset();
    flight.rule.reset();
    flight.data.reset();
  }

  bool full() const { return free_.empty() && flights_.size() >> kPlaceBits != 0; }
  std::size_t underway() const { return flights_.size() - free_.size(); }

  // Calls `visit` with the id of each that `wanted` says; what is visited may end flights, and begin them.
  template <typename Wanted, typename Visit>
  void for_each(Wanted wanted, Visit visit) {
    std::vector<std::uint64_t> ids;
    for (const auto& flight : flights_) {
      if (flight->underway() && wanted(*flight)) ids.push_back(flight->id);
    }
    for (const std::uint64_t id : ids) {
      if (Flight* flight = find(id)) visit(*flight);
    }
  }

 private:
  static constexpr int kPlaceBits = 20, kCountBits = 42;
  static constexpr std::uint64_t kOurs = std::uint64_t{1} << 62;
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<std::uint32_t> free_;
  std::uint64_t count_ = 0;
};

}  // namespace copydesk
