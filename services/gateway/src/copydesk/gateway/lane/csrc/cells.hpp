// Numbers that the lane and Python both count with.
#pragma once

#include "python.hpp"

namespace copydesk {

// One number of one client: how many of its requests are inside, or when its next one is due.
struct Cell {
  PyObject_HEAD
  long long value;
};

// The places at the pods: `underway` are taken, `ended` have ever been left, `waiting` requests wait for one.
struct Places {
  PyObject_HEAD
  long long underway, ended, waiting;
};

PyTypeObject* make_cell_type();
PyTypeObject* make_places_type();

// Decides about one request by the generic cell rate algorithm as `copydesk.gateway.rates.gcra.rule` does; moves
// `due` on and returns true if it passes. Microseconds.
bool passes(long long& due, long long now, long long interval, long long burst);

}  // namespace copydesk
