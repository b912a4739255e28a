// The express lane: plain requests from the bytes of a client to a pod and back, without Python.
//
// It carries a request only as long as all goes well. Whatever does not (a limit reached, no room at the pods, an
// answer that is none, a deadline, a client or a pod that leaves) is for Python to deal with: a request that has not
// begun is simply not taken, one underway is handed back (`recall`), together with where it is. Python then has it
// as if it had carried it from the start. So there are rules here for one way only, and none for errors.
#pragma once

#include <string>
#include <vector>

#include "account.hpp"
#include "draw.hpp"
#include "flights.hpp"
#include "frames.hpp"
#include "tally.hpp"

namespace copydesk {

class Lane;

// One connection to a pod.
struct Port {
  PyObject_HEAD
  Lane* lane;
  Held keeper;   // the lane's object
  Held account;
  Held owner;    // what Python calls the pod
  Held write;    // takes bytes
  std::string digest_json;
  std::string out;     // frames that wait for the end of this turn of the event loop
  std::string in;      // a frame that has begun to come
  std::size_t wanted;  // bytes that `in` must hold before another look at it is worth while
  std::size_t most;    // bytes of a frame
  bool open, dirty;

  Account& book() const { return *reinterpret_cast<Account*>(account.get()); }
};

// One connection of a client.
struct Seat {
  PyObject_HEAD
  Lane* lane;
  Held keeper;
  Held owner;  // what Python calls the connection
  Held write;
  Flight* flight;
  char stirred;
};

// What the lane needs of Python.
struct Callbacks {
  Held resume;  // (connection, pod, data, frame id, sent at, deadline, request id) -> whether it was taken
  Held wake;    // () : have `flush` called at the end of this turn of the event loop
  Held alarm;   // (when) : have `sweep` called then
  Held let_in;  // () : somebody waits for the place that has become free
};

class Lane {
 public:
  Lane(Held places, std::string model, std::string model_json, std::size_t most_body, std::size_t most_characters,
       std::string token, std::uint64_t seed, std::vector<double> bounds, Callbacks callbacks);

  bool take(Seat& seat, PyObject* data);
  void abandon(Seat& seat);
  void recall(Flight& flight);
  template <typename Wanted>
  void recall_all(Wanted wanted) {
    flights_.for_each(wanted, [this](Flight& flight) { recall(flight); });
  }

  // Reads what a pod has sent. Appends the frames that are Python's to `rest`, a list that is made when needed.
  // False with a Python error set: a frame that is too large (its size, and the frames before it), or no memory.
  bool feed(Port& port, Bytes data, Held& rest);

  void flush();
  void flush(Port& port);
  double sweep(double now);
  void close();

  bool active = false;
  bool shares = false;  // sentences that are underway already are Python's
  Held elsewhere;       // dict of the payloads of sentences that Python has underway; none where none are shared
  long long allowance = 0;
  double spillover = 1.0;
  std::vector<Held> near, far;  // Ports
  Heads heads;
  Tally tally;
  Division division;          // between two versions of the model
  Draw drawn = Draw::kNone;   // for the request that `take` looked at last
  std::size_t underway() const { return flights_.underway(); }
  // For how long those that are underway have been, added up.
  double underway_seconds(double now);

 private:
  bool task(Form form, Bytes body);
  bool is_underway();
  bool allows(const Rule& rule, double now);
  Port* choose(const std::vector<Held>& ports, double now);
  Port* pick(double now);
  bool drawn_elsewhere(const Rule& rule);
  void send(Seat& seat, Port& port, const std::shared_ptr<const Rule>& rule, PyObject* data, double now);
  bool finish(Port& port, const Reply& reply);
  bool answer(Flight& flight, const Reply& reply);
  bool write_body(const Flight& flight, Bytes payload, const Heading& heading);
  bool frame(Port& port, Bytes body, Held& rest);
  void land(Flight& flight);
  void leave_gate();
  void mark(Port& port);
  std::uint64_t random_bits();
  std::size_t random(std::size_t below);
  void name(Flight& flight, Bytes said);
  const std::string& date();

  Places& places() const { return *reinterpret_cast<Places*>(places_.get()); }

  Held places_;
  std::string model_, model_json_, token_;
  std::size_t most_body_, most_characters_;
  std::uint64_t random_;
  Callbacks callbacks_;
  Flights flights_;
  Head head_;
  std::string payload_, sentence_, body_, out_, date_;
  std::unordered_map<std::string, std::uint64_t> sentences_;  // that are underway here, where they are shared
  long long date_second_ = 0;
  std::uint64_t named_ = 0;
  std::vector<Port*> dirty_;
  double sweep_at_;
};

double monotonic();

PyTypeObject* make_lane_type();
PyTypeObject* make_port_type();
PyTypeObject* make_seat_type();

struct LaneObject {
  PyObject_HEAD
  Lane* lane;
};

extern PyTypeObject* lane_type;
extern PyTypeObject* account_type;
extern PyTypeObject* cell_type;
extern PyTypeObject* places_type;
extern PyTypeObject* port_type;
extern PyTypeObject* seat_type;

}  // namespace copydesk
