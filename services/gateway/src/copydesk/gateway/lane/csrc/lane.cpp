#include "lane.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>

namespace copydesk {
namespace {

constexpr std::size_t kMostPayload = (std::size_t{4} << 20) - 256;  // a frame's limit less what a frame adds
constexpr double kSweepSeconds = 0.005;
constexpr double kMicroseconds = 1e6;
constexpr double kNever = std::numeric_limits<double>::infinity();

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void append_number(unsigned long long number, std::string& out) {
  char digits[20];
  char* at = digits + sizeof digits;
  do {
    *--at = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  out.append(at, static_cast<std::size_t>(digits + sizeof digits - at));
}

void call(const Held& callback, PyObject* argument) {
  if (!callback) return;  // the lane is closed
  Held result = Held::taking(argument == nullptr ? PyObject_CallNoArgs(callback.get())
                                                 : PyObject_CallOneArg(callback.get(), argument));
  if (!result) show_error(callback.get());
}

Port& port_of(const Held& held) { return *reinterpret_cast<Port*>(held.get()); }
Port& port_of(const Flight& flight) { return port_of(flight.port); }
Seat& seat_of(const Flight& flight) { return *reinterpret_cast<Seat*>(flight.seat.get()); }
bool flies_on(const Flight& flight, const Port& port) { return &port_of(flight) == &port; }

}  // namespace

double monotonic() { return seconds_of(CLOCK_MONOTONIC); }

Lane::Lane(Held places, std::string model, std::string model_json, std::size_t most_body, std::size_t most_characters,
           std::string token, std::uint64_t seed, std::vector<double> bounds, Callbacks callbacks)
    : tally(std::move(bounds)),
      places_(std::move(places)),
      model_(std::move(model)),
      model_json_(std::move(model_json)),
      token_(std::move(token)),
      most_body_(most_body),
      most_characters_(most_characters),
      random_(seed),
      callbacks_(std::move(callbacks)),
      sweep_at_(kNever) {}

bool Lane::take(Seat& seat, PyObject* data) {
  drawn = Draw::kNone;
  if (!active || near.empty() || flights_.full()) return false;
  if (places().underway >= allowance || places().waiting > 0) return false;
  const Bytes all{PyBytes_AS_STRING(data), static_cast<std::size_t>(PyBytes_GET_SIZE(data))};
  const void* blank = memmem(all.data, std::min(all.size, Heads::kMostBytes), "\r\n\r\n", 4);
  if (blank == nullptr) return false;
  const std::size_t size = static_cast<std::size_t>(static_cast<const char*>(blank) - all.data) + 4;
  if (!take_apart({all.data, size}, head_) || head_.length != all.size - size) return false;
  if (head_.length > most_body_) return false;
  const std::shared_ptr<const Rule>* rule = heads.find(head_.key);
  if (rule == nullptr) return false;
  if (division.on && drawn_elsewhere(**rule)) return false;
  if (!task((*rule)->form, {all.data + size, head_.length}) || payload_.size() > kMostPayload) return false;
  if ((*rule)->form == Form::kCorrection && shares && is_underway()) return false;
  const double now = monotonic();
  Port* port = pick(now);
  if (port == nullptr || !port->open || !allows(**rule, now)) return false;
  send(seat, *port, *rule, data, now);
  return true;
}

// Writes the payload to `payload_`, and the sentence that is to be corrected to `sentence_`.
bool Lane::task(Form form, Bytes body) {
  const Bytes model{model_.data(), model_.size()};
  payload_.clear();
  sentence_.clear();
  switch (form) {
    case Form::kCompletion: return completion_task(body, model, payload_);
    case Form::kChat: return chat_task(body, model, payload_);
    case Form::kCorrection: return correction_task(body, model, most_characters_, payload_, sentence_);
  }
  return false;
}

// Whether this is no request for the baseline alone: then it is Python's, which asks what was drawn.
bool Lane::drawn_elsewhere(const Rule& rule) {
  const Bytes session{rule.session.data(), rule.session.size()};
  const Bytes key = session.size != 0 ? session : head_.request_id;
  drawn = division.draw(key, key.size != 0 ? 0 : random_bits());
  return drawn != Draw::kBaseline;
}

// Whether the sentence is underway already: then Python lets both wait for the one answer.
bool Lane::is_underway() {
  const auto found = sentences_.find(sentence_);
  if (found != sentences_.end()) {
    Flight* flight = flights_.find(found->second);
    if (flight != nullptr) recall(*flight);
    return true;
  }
  if (!elsewhere || PyDict_GET_SIZE(elsewhere.get()) == 0) return false;
  Held key = Held::taking(PyBytes_FromStringAndSize(payload_.data(), static_cast<Py_ssize_t>(payload_.size())));
  const int contained = key ? PyDict_Contains(elsewhere.get(), key.get()) : -1;
  if (contained < 0) PyErr_Clear();
  return contained != 0;
}

// Last of all checks, since it counts the request.
bool Lane::allows(const Rule& rule, double now) {
  if (rule.inside && rule.inside_cell()->value >= rule.concurrency) return false;
  if (rule.due) {
    const auto microseconds = static_cast<long long>(now * kMicroseconds);
    if (!passes(rule.due_cell()->value, microseconds, rule.interval, rule.burst)) return false;
  }
  if (rule.inside) ++rule.inside_cell()->value;
  return true;
}

Port* Lane::pick(double now) {
  Port* here = choose(near, now);
  if (far.empty() || here == nullptr) return here;
  Port* there = choose(far, now);
  return better(standing(here->book(), now), standing(there->book(), now), spillover) ? here : there;
}

Port* Lane::choose(const std::vector<Held>& ports, double now) {
  if (ports.size() < 2) return ports.empty() ? nullptr : &port_of(ports[0]);
  const std::size_t first = random(ports.size());
  std::size_t second = random(ports.size() - 1);
  second += second >= first;
  Port& one = port_of(ports[first]);
  Port& other = port_of(ports[second]);
  return better(standing(one.book(), now), standing(other.book(), now), 1.0) ? &one : &other;
}

void Lane::send(Seat& seat, Port& port, const std::shared_ptr<const Rule>& rule, PyObject* data, double now) {
  Flight& flight = flights_.begin();
  flight.port = Held(reinterpret_cast<PyObject*>(&port));
  flight.seat = Held(reinterpret_cast<PyObject*>(&seat));
  flight.rule = rule;
  flight.data = Held(data);
  flight.sent_at = now;
  flight.deadline = now + rule->allowed;
  name(flight, head_.request_id);
  seat.flight = &flight;
  ++places().underway;
  port.book().start(now, timed(rule->form));
  flight.sentence.assign(sentence_);
  if (shares && rule->form == Form::kCorrection) sentences_[sentence_] = flight.id;
  tally.started();
  const auto remaining = std::max(1LL, static_cast<long long>(rule->allowed * 1000.0));
  append_request(flight.id, remaining, rule->priority, {payload_.data(), payload_.size()}, port.out);
  mark(port);
  if (flight.deadline < sweep_at_) {
    sweep_at_ = flight.deadline;
    Held when = Held::taking(PyFloat_FromDouble(sweep_at_));
    call(callbacks_.alarm, when.get());
  }
}

void Lane::name(Flight& flight, Bytes said) {
  if (said.size != 0) {
    flight.request_id.assign(said.data, said.size);
    return;
  }
  static const char* const kDigits = "0123456789abcdef";
  flight.request_id.assign(token_);
  ++named_;
  for (int shift = 44; shift >= 0; shift -= 4) flight.request_id.push_back(kDigits[named_ >> shift & 15]);
}

void Lane::mark(Port& port) {
  if (port.dirty) return;
  port.dirty = true;
  if (dirty_.empty()) call(callbacks_.wake, nullptr);
  Py_INCREF(&port);
  dirty_.push_back(&port);
}

void Lane::flush() {
  std::vector<Port*> ports;
  ports.swap(dirty_);
  for (Port* port : ports) {
    port->dirty = false;
    flush(*port);
    Py_DECREF(port);
  }
}

void Lane::flush(Port& port) {
  if (port.out.empty() || !port.open) return;
  Held bytes = Held::taking(PyBytes_FromStringAndSize(port.out.data(), static_cast<Py_ssize_t>(port.out.size())));
  port.out.clear();
  if (bytes) call(port.write, bytes.get());
}

bool Lane::feed(Port& port, Bytes data, Held& rest) {
  std::string joined;
  if (!port.in.empty()) {
    port.in.append(data.data, data.size);
    if (port.in.size() < port.wanted) return true;
    joined.swap(port.in);
    data = {joined.data(), joined.size()};
  }
  std::size_t at = 0;
  port.wanted = kHeaderBytes;
  while (data.size - at >= kHeaderBytes) {
    const std::size_t size = frame_size(data.data + at);
    if (size > port.most) {
      Held told = Held::taking(Py_BuildValue("nO", static_cast<Py_ssize_t>(size), rest ? rest.get() : Py_None));
      if (told) PyErr_SetObject(PyExc_OverflowError, told.get());
      return false;
    }
    if (data.size - at - kHeaderBytes < size) {
      port.wanted = kHeaderBytes + size;
      break;
    }
    if (!frame(port, {data.data + at + kHeaderBytes, size}, rest)) return false;
    at += kHeaderBytes + size;
  }
  port.in.assign(data.data + at, data.size - at);
  return true;
}

// False with a Python error set.
bool Lane::frame(Port& port, Bytes body, Held& rest) {
  Reply reply;
  if (read_reply(body, reply) && finish(port, reply)) return true;
  std::uint64_t id = 0;
  if (response_id(body, id)) {
    Flight* flight = flights_.find(id);
    if (flight != nullptr && flies_on(*flight, port)) recall(*flight);
  }
  if (!rest) rest = Held::taking(PyList_New(0));
  Held bytes = Held::taking(PyBytes_FromStringAndSize(body.data, static_cast<Py_ssize_t>(body.size)));
  return rest && bytes && PyList_Append(rest.get(), bytes.get()) == 0;
}

bool Lane::finish(Port& port, const Reply& reply) {
  Flight* flight = flights_.find(reply.id);
  if (flight == nullptr || !flies_on(*flight, port) || !answer(*flight, reply)) return false;
  const double now = monotonic();
  port.book().hear(reply.running, reply.queued, reply.capacity, now);
  port.book().answered(flight->sent_at, now, timed(flight->rule->form));
  tally.answered(flight->rule->form, now - flight->sent_at);
  Held write(seat_of(*flight).write.get());
  land(*flight);
  Held bytes = Held::taking(PyBytes_FromStringAndSize(out_.data(), static_cast<Py_ssize_t>(out_.size())));
  if (bytes) call(write, bytes.get());
  leave_gate();
  return true;
}

// Writes the answer to `out_`.
bool Lane::answer(Flight& flight, const Reply& reply) {
  const Heading heading{{flight.request_id.data(), flight.request_id.size()},
                        static_cast<long long>(seconds_of(CLOCK_REALTIME_COARSE)),
                        {model_json_.data(), model_json_.size()},
                        {port_of(flight).digest_json.data(), port_of(flight).digest_json.size()}};
  body_.clear();
  if (!write_body(flight, reply.payload, heading)) return false;
  out_.assign("HTTP/1.1 200 OK\r\n");
  out_.append(date());
  out_.append("content-type: application/json\r\ncontent-length: ");
  append_number(body_.size(), out_);
  out_.append("\r\nx-request-id: ");
  out_.append(flight.request_id);
  out_.append("\r\nx-content-type-options: nosniff\r\n\r\n");
  out_.append(body_);
  return true;
}

bool Lane::write_body(const Flight& flight, Bytes payload, const Heading& heading) {
  switch (flight.rule->form) {
    case Form::kCompletion: return completion_answer(payload, heading, body_);
    case Form::kChat: return chat_answer(payload, heading, body_);
    case Form::kCorrection: break;
  }
  const auto latency = static_cast<long long>((monotonic() - flight.sent_at) * kMicroseconds + 0.5);
  return correction_answer(payload, {flight.sentence.data(), flight.sentence.size()}, heading, latency, body_);
}

const std::string& Lane::date() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME_COARSE, &time);
  if (time.tv_sec != date_second_) {
    static const char* const kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char* const kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    tm parts{};
    gmtime_r(&time.tv_sec, &parts);
    char line[64];
    std::snprintf(line, sizeof line, "date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n", kDays[parts.tm_wday],
                  parts.tm_mday, kMonths[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour, parts.tm_min,
                  parts.tm_sec);
    date_.assign(line);
    date_second_ = time.tv_sec;
  }
  return date_;
}

// A flight is over for the lane: its client has a seat again, and one request less inside.
void Lane::land(Flight& flight) {
  Seat& seat = seat_of(flight);
  seat.flight = nullptr;
  seat.stirred = 1;
  if (flight.rule->inside) --flight.rule->inside_cell()->value;
  if (shares && flight.rule->form == Form::kCorrection) sentences_.erase(flight.sentence);
  flights_.end(flight);
}

void Lane::leave_gate() {
  --places().underway;
  ++places().ended;
  if (places().waiting > 0) call(callbacks_.let_in, nullptr);
}

void Lane::abandon(Seat& seat) {
  Flight* flight = seat.flight;
  if (flight == nullptr) return;
  Held kept(flight->port.get());
  Port& port = port_of(kept);
  append_cancel(flight->id, port.out);
  mark(port);
  const double now = monotonic();
  port.book().abandoned(flight->sent_at, now, timed(flight->rule->form));
  tally.gone(flight->rule->form, now - flight->sent_at);
  land(*flight);
  leave_gate();
}

void Lane::recall(Flight& flight) {
  Held kept(flight.port.get());
  Held seat(flight.seat.get());
  Port& port = port_of(kept);
  flush(port);
  const std::uint64_t id = flight.id;
  Held arguments = Held::taking(Py_BuildValue(
      "OOOKdds#", seat_of(flight).owner.get(), port.owner.get(), flight.data.get(), static_cast<unsigned long long>(id),
      flight.sent_at, flight.deadline, flight.request_id.data(),
      static_cast<Py_ssize_t>(flight.request_id.size())));
  const std::shared_ptr<const Rule> rule = flight.rule;
  const double sent_at = flight.sent_at, ended_at = monotonic();
  land(flight);
  Held resume(callbacks_.resume.get());
  Held taken = Held::taking(arguments && resume ? PyObject_CallObject(resume.get(), arguments.get()) : nullptr);
  if (!taken) show_error(resume.get());
  tally.recalled(ended_at - sent_at);
  if (taken.get() == Py_True) return;
  append_cancel(id, port.out);
  mark(port);
  port.book().abandoned(sent_at, monotonic(), timed(rule->form));  // Python has counted it, if it was its turn
  leave_gate();
}

double Lane::sweep(double now) {
  recall_all([now](const Flight& flight) { return flight.deadline <= now; });
  double earliest = kNever;
  flights_.for_each(
      [&earliest](const Flight& flight) {
        earliest = std::min(earliest, flight.deadline);
        return false;
      },
      [](Flight&) {});
  sweep_at_ = std::isinf(earliest) ? kNever : std::max(earliest, now + kSweepSeconds);
  return sweep_at_;
}

double Lane::underway_seconds(double now) {
  double seconds = 0.0;
  flights_.for_each(
      [&seconds, now](const Flight& flight) {
        seconds += now - flight.sent_at;
        return false;
      },
      [](Flight&) {});
  return seconds;
}

void Lane::close() {
  active = false;
  flights_.for_each([](const Flight&) { return true; }, [this](Flight& flight) { abandon(seat_of(flight)); });
  flush();
  near.clear();
  far.clear();
  heads.forget();
  elsewhere.reset();
  callbacks_ = Callbacks{};
}

// xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled" (2016).
std::uint64_t Lane::random_bits() {
  random_ ^= random_ >> 12;
  random_ ^= random_ << 25;
  random_ ^= random_ >> 27;
  return random_ * 0x2545F4914F6CDD1Du;
}

std::size_t Lane::random(std::size_t below) {
  return static_cast<std::size_t>((random_bits() >> 32) * below >> 32);
}

}  // namespace copydesk
