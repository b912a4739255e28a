#include "cells.hpp"

#include <algorithm>
#include <cstddef>

namespace copydesk {
namespace {

PyMemberDef cell_members[] = {
    {"value", T_LONGLONG, offsetof(Cell, value), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyMemberDef places_members[] = {
    {"underway", T_LONGLONG, offsetof(Places, underway), 0, nullptr},
    {"ended", T_LONGLONG, offsetof(Places, ended), 0, nullptr},
    {"waiting", T_LONGLONG, offsetof(Places, waiting), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot cell_slots[] = {
    {Py_tp_doc, const_cast<char*>("One number of one client.")},
    {Py_tp_members, cell_members},
    {0, nullptr},
};

PyType_Slot places_slots[] = {
    {Py_tp_doc, const_cast<char*>("The places at the pods.")},
    {Py_tp_members, places_members},
    {0, nullptr},
};

PyType_Spec cell_spec = {"copydesk.gateway.lane._native.Cell", sizeof(Cell), 0, Py_TPFLAGS_DEFAULT, cell_slots};
PyType_Spec places_spec = {"copydesk.gateway.lane._native.Places", sizeof(Places), 0, Py_TPFLAGS_DEFAULT,
                           places_slots};

}  // namespace

PyTypeObject* make_cell_type() { return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&cell_spec)); }

PyTypeObject* make_places_type() { return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&places_spec)); }

bool passes(long long& due, long long now, long long interval, long long burst) {
  const long long window = interval * burst;
  const long long start = std::min(std::max(due, now), now + window);
  if (start + interval - window - now > 0) return false;
  due = start + interval;
  return true;
}

}  // namespace copydesk
