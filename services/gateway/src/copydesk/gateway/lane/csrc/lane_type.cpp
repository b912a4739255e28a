// The lane as Python sees it.
#include <new>

#include "lane.hpp"

namespace copydesk {
namespace {

Lane& self(PyObject* object) { return *reinterpret_cast<LaneObject*>(object)->lane; }

bool to_bounds(PyObject* sequence, std::vector<double>& bounds) {
  Held fast = Held::taking(PySequence_Fast(sequence, "bounds must be a sequence of seconds"));
  if (!fast) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    bounds.push_back(PyFloat_AsDouble(PySequence_Fast_GET_ITEM(fast.get(), i)));
    if (PyErr_Occurred() != nullptr) return false;
  }
  return true;
}

PyObject* lane_new(PyTypeObject* type, PyObject* arguments, PyObject* named) {
  static const char* names[] = {"places", "model",  "model_json", "most_body", "most_characters", "token",
                                "seed",   "bounds", "resume",     "wake",      "alarm",           "let_in", nullptr};
  PyObject *places, *bounds, *resume, *wake, *alarm, *let_in;
  Py_ssize_t most_body, most_characters;
  const char *model, *model_json, *token;
  Py_ssize_t model_size, json_size, token_size;
  unsigned long long seed;
  if (!PyArg_ParseTupleAndKeywords(arguments, named, "O!y#y#nny#KOOOOO", const_cast<char**>(names), places_type,
                                   &places, &model, &model_size, &model_json, &json_size, &most_body, &most_characters,
                                   &token, &token_size, &seed, &bounds, &resume, &wake, &alarm, &let_in)) {
    return nullptr;
  }
  std::vector<double> numbers;
  if (!to_bounds(bounds, numbers)) return nullptr;
  if (seed == 0) {
    PyErr_SetString(PyExc_ValueError, "seed must not be 0: the generator would never leave it");
    return nullptr;
  }
  auto* object = reinterpret_cast<LaneObject*>(type->tp_alloc(type, 0));
  if (object == nullptr) return nullptr;
  object->lane = new Lane(Held(places), std::string(model, static_cast<std::size_t>(model_size)),
                          std::string(model_json, static_cast<std::size_t>(json_size)),
                          static_cast<std::size_t>(most_body), static_cast<std::size_t>(most_characters),
                          std::string(token, static_cast<std::size_t>(token_size)), seed, std::move(numbers),
                          Callbacks{Held(resume), Held(wake), Held(alarm), Held(let_in)});
  return reinterpret_cast<PyObject*>(object);
}

void lane_dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  delete reinterpret_cast<LaneObject*>(object)->lane;
  type->tp_free(object);
  Py_DECREF(type);
}

bool to_ports(PyObject* sequence, std::vector<Held>& ports) {
  Held fast = Held::taking(PySequence_Fast(sequence, "ports must be a sequence"));
  if (!fast) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(fast.get(), i);
    if (!PyObject_TypeCheck(item, port_type)) {
      PyErr_SetString(PyExc_TypeError, "not a Port");
      return false;
    }
    ports.emplace_back(item);
  }
  return true;
}

PyObject* choose_from(PyObject* object, PyObject* arguments) {
  PyObject *near, *far;
  long long allowance;
  double spillover;
  if (!PyArg_ParseTuple(arguments, "OOLd", &near, &far, &allowance, &spillover)) return nullptr;
  std::vector<Held> near_ports, far_ports;
  if (!to_ports(near, near_ports) || !to_ports(far, far_ports)) return nullptr;
  Lane& lane = self(object);
  lane.near.swap(near_ports);
  lane.far.swap(far_ports);
  lane.allowance = allowance;
  lane.spillover = spillover;
  Py_RETURN_NONE;
}

Held cell_or_none(PyObject* object) { return object == Py_None ? Held() : Held(object); }

bool is_cell_or_none(PyObject* object) {
  if (object == Py_None || PyObject_TypeCheck(object, cell_type)) return true;
  PyErr_SetString(PyExc_TypeError, "not a Cell");
  return false;
}

PyObject* learn(PyObject* object, PyObject* arguments, PyObject* named) {
  static const char* names[] = {"head", "form",     "priority", "allowed", "inside",
                                "concurrency", "due", "interval", "burst",   "session", nullptr};
  const char *bytes, *session = "";
  Py_ssize_t size, session_size = 0;
  int form;
  Rule rule{};
  PyObject *inside, *due;
  if (!PyArg_ParseTupleAndKeywords(arguments, named, "y#iidOLOLL|y#", const_cast<char**>(names), &bytes, &size, &form,
                                   &rule.priority, &rule.allowed, &inside, &rule.concurrency, &due, &rule.interval,
                                   &rule.burst, &session, &session_size)) {
    return nullptr;
  }
  rule.session.assign(session, static_cast<std::size_t>(session_size));
  if (!is_cell_or_none(inside) || !is_cell_or_none(due)) return nullptr;
  if (form < 0 || form >= kForms) {
    PyErr_SetString(PyExc_ValueError, "no such form");
    return nullptr;
  }
  Head head;
  if (static_cast<std::size_t>(size) > Heads::kMostBytes) Py_RETURN_FALSE;
  if (!take_apart({bytes, static_cast<std::size_t>(size)}, head)) Py_RETURN_FALSE;
  rule.form = static_cast<Form>(form);
  rule.inside = cell_or_none(inside);
  rule.due = cell_or_none(due);
  self(object).heads.learn(std::move(head.key), std::make_shared<const Rule>(std::move(rule)));
  Py_RETURN_TRUE;
}

PyObject* divide(PyObject* object, PyObject* arguments) {
  unsigned long long seed;
  double share, copied;
  if (!PyArg_ParseTuple(arguments, "Kdd", &seed, &share, &copied)) return nullptr;
  self(object).division.set(seed, share, copied);
  Py_RETURN_NONE;
}

PyObject* take_drawn(PyObject* object, PyObject*) {
  Lane& lane = self(object);
  const int drawn = static_cast<int>(lane.drawn);
  lane.drawn = Draw::kNone;
  return PyLong_FromLong(drawn);
}

PyObject* share(PyObject* object, PyObject* elsewhere) {
  if (!PyDict_Check(elsewhere)) {
    PyErr_SetString(PyExc_TypeError, "not a dict");
    return nullptr;
  }
  Lane& lane = self(object);
  lane.shares = true;
  lane.elsewhere = Held(elsewhere);
  Py_RETURN_NONE;
}

PyObject* forget(PyObject* object, PyObject*) {
  self(object).heads.forget();
  Py_RETURN_NONE;
}

PyObject* flush(PyObject* object, PyObject*) {
  self(object).flush();
  Py_RETURN_NONE;
}

PyObject* sweep(PyObject* object, PyObject* now) {
  const double at = PyFloat_AsDouble(now);
  if (at == -1.0 && PyErr_Occurred() != nullptr) return nullptr;
  return PyFloat_FromDouble(self(object).sweep(at));
}

PyObject* underway_seconds(PyObject* object, PyObject* now) {
  const double at = PyFloat_AsDouble(now);
  if (at == -1.0 && PyErr_Occurred() != nullptr) return nullptr;
  return PyFloat_FromDouble(self(object).underway_seconds(at));
}

PyObject* recall(PyObject* object, PyObject*) {
  self(object).recall_all([](const Flight&) { return true; });
  Py_RETURN_NONE;
}

PyObject* take_started(PyObject* object, PyObject*) { return PyLong_FromLongLong(self(object).tally.take_started()); }

PyObject* drain(PyObject* object, PyObject*) { return self(object).tally.drain(); }

PyObject* close(PyObject* object, PyObject*) {
  self(object).close();
  Py_RETURN_NONE;
}

PyObject* get_active(PyObject* object, void*) { return PyBool_FromLong(self(object).active); }

int set_active(PyObject* object, PyObject* value, void*) {
  const int truth = value == nullptr ? 0 : PyObject_IsTrue(value);
  if (truth < 0) return -1;
  self(object).active = truth == 1;
  return 0;
}

PyObject* get_underway(PyObject* object, void*) { return PyLong_FromSize_t(self(object).underway()); }

PyObject* get_heads(PyObject* object, void*) { return PyLong_FromSize_t(self(object).heads.size()); }

PyMethodDef methods[] = {
    {"choose_from", choose_from, METH_VARARGS, nullptr},
    {"learn", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(learn)), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"share", share, METH_O, nullptr},
    {"divide", divide, METH_VARARGS, nullptr},
    {"take_drawn", take_drawn, METH_NOARGS, nullptr},
    {"forget", forget, METH_NOARGS, nullptr},
    {"flush", flush, METH_NOARGS, nullptr},
    {"sweep", sweep, METH_O, nullptr},
    {"underway_seconds", underway_seconds, METH_O, nullptr},
    {"recall", recall, METH_NOARGS, nullptr},
    {"take_started", take_started, METH_NOARGS, nullptr},
    {"drain", drain, METH_NOARGS, nullptr},
    {"close", close, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"active", get_active, set_active, nullptr, nullptr},
    {"underway", get_underway, nullptr, nullptr, nullptr},
    {"heads", get_heads, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Carries plain requests to pods and back.")},
    {Py_tp_new, reinterpret_cast<void*>(lane_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(lane_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, nullptr},
};

PyType_Spec spec = {"copydesk.gateway.lane._native.Lane", sizeof(LaneObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

PyTypeObject* make_lane_type() { return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec)); }

}  // namespace copydesk
