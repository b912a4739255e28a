// A port as Python sees it: a connection to a pod, which it shares with the lane.
#include <new>

#include "lane.hpp"

namespace copydesk {
namespace {

Port& self(PyObject* object) { return *reinterpret_cast<Port*>(object); }

PyObject* port_new(PyTypeObject* type, PyObject* arguments, PyObject* named) {
  static const char* names[] = {"lane", "owner", "account", "write", "digest", "most", nullptr};
  PyObject *lane, *owner, *account, *write;
  const char* digest;
  Py_ssize_t digest_size, most;
  if (!PyArg_ParseTupleAndKeywords(arguments, named, "O!OO!Oy#n", const_cast<char**>(names), lane_type, &lane,
                                   &owner, account_type, &account, &write, &digest, &digest_size, &most)) {
    return nullptr;
  }
  const Bytes text{digest, static_cast<std::size_t>(digest_size)};
  if (!valid_utf8(text)) {
    PyErr_SetString(PyExc_ValueError, "digest must be UTF-8");
    return nullptr;
  }
  auto* port = reinterpret_cast<Port*>(type->tp_alloc(type, 0));
  if (port == nullptr) return nullptr;
  port->lane = reinterpret_cast<LaneObject*>(lane)->lane;
  new (&port->keeper) Held(lane);
  new (&port->account) Held(account);
  new (&port->owner) Held(owner);
  new (&port->write) Held(write);
  new (&port->digest_json) std::string();
  new (&port->out) std::string();
  new (&port->in) std::string();
  port->wanted = kHeaderBytes;
  port->most = static_cast<std::size_t>(most);
  port->open = true;
  port->dirty = false;
  if (text.size != 0) append_json_string(text, port->digest_json);
  return reinterpret_cast<PyObject*>(port);
}

void port_dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  Port& port = self(object);
  port.write.~Held();
  port.owner.~Held();
  port.account.~Held();
  port.keeper.~Held();
  using std::string;
  port.digest_json.~string();
  port.out.~string();
  port.in.~string();
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* feed(PyObject* object, PyObject* data) {
  char* bytes;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(data, &bytes, &size) != 0) return nullptr;
  Held rest;
  Port& port = self(object);
  if (!port.lane->feed(port, {bytes, static_cast<std::size_t>(size)}, rest)) return nullptr;
  PyObject* result = rest ? rest.get() : Py_None;
  Py_INCREF(result);
  return result;
}

void recall_port(Port& port) {
  port.lane->recall_all(
      [&port](const Flight& flight) { return flight.port.get() == reinterpret_cast<PyObject*>(&port); });
}

PyObject* recall(PyObject* object, PyObject*) {
  recall_port(self(object));
  Py_RETURN_NONE;
}

PyObject* close(PyObject* object, PyObject*) {
  Port& port = self(object);
  recall_port(port);
  port.open = false;
  port.out.clear();
  port.owner.reset();
  port.write.reset();
  Py_RETURN_NONE;
}

PyObject* get_in_frame(PyObject* object, void*) { return PyBool_FromLong(!self(object).in.empty()); }

PyObject* get_open(PyObject* object, void*) { return PyBool_FromLong(self(object).open); }

PyMethodDef methods[] = {
    {"feed", feed, METH_O, nullptr},
    {"recall", recall, METH_NOARGS, nullptr},
    {"close", close, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"in_frame", get_in_frame, nullptr, nullptr, nullptr},
    {"open", get_open, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("A connection to a pod.")},
    {Py_tp_new, reinterpret_cast<void*>(port_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(port_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, nullptr},
};

PyType_Spec spec = {"copydesk.gateway.lane._native.Port", sizeof(Port), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

PyTypeObject* make_port_type() { return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec)); }

}  // namespace copydesk
