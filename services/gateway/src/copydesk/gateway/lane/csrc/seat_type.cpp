// A seat as Python sees it: a connection of a client, which it shares with the lane.
#include <cstddef>
#include <new>

#include "lane.hpp"

namespace copydesk {
namespace {

Seat& self(PyObject* object) { return *reinterpret_cast<Seat*>(object); }

PyObject* seat_new(PyTypeObject* type, PyObject* arguments, PyObject* named) {
  static const char* names[] = {"lane", "owner", "write", nullptr};
  PyObject *lane, *owner, *write;
  if (!PyArg_ParseTupleAndKeywords(arguments, named, "O!OO", const_cast<char**>(names), lane_type, &lane, &owner,
                                   &write)) {
    return nullptr;
  }
  auto* seat = reinterpret_cast<Seat*>(type->tp_alloc(type, 0));
  if (seat == nullptr) return nullptr;
  seat->lane = reinterpret_cast<LaneObject*>(lane)->lane;
  new (&seat->keeper) Held(lane);
  new (&seat->owner) Held(owner);
  new (&seat->write) Held(write);
  seat->flight = nullptr;
  seat->stirred = 0;
  return reinterpret_cast<PyObject*>(seat);
}

void seat_dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  Seat& seat = self(object);
  seat.write.~Held();
  seat.owner.~Held();
  seat.keeper.~Held();
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* take(PyObject* object, PyObject* data) {
  Seat& seat = self(object);
  if (seat.flight != nullptr) {
    seat.lane->recall(*seat.flight);
    Py_RETURN_FALSE;
  }
  if (!seat.owner || !PyBytes_CheckExact(data)) Py_RETURN_FALSE;
  return PyBool_FromLong(seat.lane->take(seat, data));
}

PyObject* recall(PyObject* object, PyObject*) {
  Seat& seat = self(object);
  if (seat.flight != nullptr) seat.lane->recall(*seat.flight);
  Py_RETURN_NONE;
}

PyObject* close(PyObject* object, PyObject*) {
  Seat& seat = self(object);
  seat.lane->abandon(seat);
  seat.owner.reset();
  seat.write.reset();
  Py_RETURN_NONE;
}

PyObject* get_busy(PyObject* object, void*) { return PyBool_FromLong(self(object).flight != nullptr); }

PyMethodDef methods[] = {
    {"take", take, METH_O, nullptr},
    {"recall", recall, METH_NOARGS, nullptr},
    {"close", close, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"stirred", T_BOOL, offsetof(Seat, stirred), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"busy", get_busy, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("A connection of a client.")},
    {Py_tp_new, reinterpret_cast<void*>(seat_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(seat_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, nullptr},
};

PyType_Spec spec = {"copydesk.gateway.lane._native.Seat", sizeof(Seat), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

PyTypeObject* make_seat_type() { return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec)); }

}  // namespace copydesk
