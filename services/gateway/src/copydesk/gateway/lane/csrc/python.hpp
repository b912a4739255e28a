// What the parts of the lane share of Python's interface.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <utility>

namespace copydesk {

// An object that is held for as long as this is there.
class Held {
 public:
  Held() = default;
  explicit Held(PyObject* borrowed) : object_(borrowed) { Py_XINCREF(object_); }
  Held(Held&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Held& operator=(Held&& other) noexcept {
    if (this != &other) {
      PyObject* before = std::exchange(object_, std::exchange(other.object_, nullptr));
      Py_XDECREF(before);
    }
    return *this;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { Py_XDECREF(object_); }

  static Held taking(PyObject* owned) {
    Held held;
    held.object_ = owned;
    return held;
  }
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  void reset() { Held().swap(*this); }

 private:
  void swap(Held& other) noexcept { std::swap(object_, other.object_); }
  PyObject* object_ = nullptr;
};

// Functions whose wrong use is a bug of the caller may end in an exception that nobody awaits: it is shown, and life
// goes on, as for a callback of the event loop.
inline void show_error(PyObject* where) {
  if (PyErr_Occurred() != nullptr) PyErr_WriteUnraisable(where);
}

}  // namespace copydesk
