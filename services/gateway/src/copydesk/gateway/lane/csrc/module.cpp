// The module `copydesk.gateway.lane._native`; `_native.pyi` tells what is in it.
#include "lane.hpp"

extern PyMethodDef forms_methods[];  // of forms_api.cpp

namespace copydesk {

PyTypeObject* lane_type = nullptr;
PyTypeObject* account_type = nullptr;
PyTypeObject* cell_type = nullptr;
PyTypeObject* places_type = nullptr;
PyTypeObject* port_type = nullptr;
PyTypeObject* seat_type = nullptr;

namespace {

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "copydesk.gateway.lane._native", nullptr, -1, nullptr,
                          nullptr,               nullptr,                         nullptr, nullptr};

bool add(PyObject* module, const char* name, PyTypeObject*& type, PyTypeObject* (*make)()) {
  type = make();
  return type != nullptr && PyModule_AddObjectRef(module, name, reinterpret_cast<PyObject*>(type)) == 0;
}

bool fill(PyObject* module) {
  return PyModule_AddFunctions(module, forms_methods) == 0 && add(module, "Account", account_type, make_account_type) &&
         add(module, "Cell", cell_type, make_cell_type) && add(module, "Places", places_type, make_places_type) &&
         add(module, "Lane", lane_type, make_lane_type) && add(module, "Port", port_type, make_port_type) &&
         add(module, "Seat", seat_type, make_seat_type);
}

}  // namespace
}  // namespace copydesk

PyMODINIT_FUNC PyInit__native() {
  PyObject* module = PyModule_Create(&copydesk::definition);
  if (module != nullptr && !copydesk::fill(module)) Py_CLEAR(module);
  return module;
}
