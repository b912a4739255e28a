// Frames of `copydesk.common.rpc.frames` as far as the lane writes and reads them: msgpack arrays behind a length.
#pragma once

#include <cstdint>
#include <string>

#include "forms.hpp"

namespace copydesk {

constexpr std::size_t kHeaderBytes = 4;

// What a pod says of its load, and the payload of its answer.
struct Reply {
  std::uint64_t id = 0;
  long long running = 0, queued = 0, capacity = 1;
  Bytes payload{nullptr, 0};
};

void append_request(std::uint64_t id, long long deadline_ms, int priority, Bytes payload, std::string& out);
void append_cancel(std::uint64_t id, std::string& out);

// Whose a frame is: the id of a `Response`; false for every other frame, and for one that is odd.
bool response_id(Bytes body, std::uint64_t& id);

// Read a `Response` with the status OK; false for every other, and for one that is odd.
bool read_reply(Bytes body, Reply& reply);

std::uint32_t frame_size(const char* header);

}  // namespace copydesk
