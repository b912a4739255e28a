// The forms as functions of the extension module, for tests against what they stand in for.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "forms.hpp"

namespace copydesk {
namespace {

Bytes bytes_of(const Py_buffer& buffer) {
  return {static_cast<const char*>(buffer.buf), static_cast<std::size_t>(buffer.len)};
}

// What a function has appended, or None.
PyObject* result(bool done, const std::string& out) {
  if (!done) Py_RETURN_NONE;
  return PyBytes_FromStringAndSize(out.data(), static_cast<Py_ssize_t>(out.size()));
}

using Task = bool (*)(Bytes, Bytes, std::string&);
using Answer = bool (*)(Bytes, const Heading&, std::string&);

template <Task task>
PyObject* make_task(PyObject*, PyObject* arguments) {
  Py_buffer body, model;
  if (!PyArg_ParseTuple(arguments, "y*y*", &body, &model)) return nullptr;
  std::string payload;
  const bool done = task(bytes_of(body), bytes_of(model), payload);
  PyBuffer_Release(&body);
  PyBuffer_Release(&model);
  return result(done, payload);
}

template <Answer answer>
PyObject* make_answer(PyObject*, PyObject* arguments) {
  Py_buffer payload, request_id, model, digest;
  long long created;
  if (!PyArg_ParseTuple(arguments, "y*y*Ly*y*", &payload, &request_id, &created, &model, &digest)) return nullptr;
  std::string body;
  const Heading heading{bytes_of(request_id), created, bytes_of(model), bytes_of(digest)};
  const bool done = answer(bytes_of(payload), heading, body);
  for (Py_buffer* buffer : {&payload, &request_id, &model, &digest}) PyBuffer_Release(buffer);
  return result(done, body);
}

PyObject* make_correction_task(PyObject*, PyObject* arguments) {
  Py_buffer body, model;
  Py_ssize_t most;
  if (!PyArg_ParseTuple(arguments, "y*y*n", &body, &model, &most)) return nullptr;
  std::string payload, sentence;
  const bool done = most > 0 && correction_task(bytes_of(body), bytes_of(model), static_cast<std::size_t>(most),
                                                payload, sentence);
  PyBuffer_Release(&body);
  PyBuffer_Release(&model);
  if (!done) Py_RETURN_NONE;
  return Py_BuildValue("y#y#", payload.data(), static_cast<Py_ssize_t>(payload.size()), sentence.data(),
                       static_cast<Py_ssize_t>(sentence.size()));
}

PyObject* make_correction_answer(PyObject*, PyObject* arguments) {
  Py_buffer payload, sentence, request_id, model, digest;
  long long latency_us;
  if (!PyArg_ParseTuple(arguments, "y*y*y*y*y*L", &payload, &sentence, &request_id, &model, &digest, &latency_us)) {
    return nullptr;
  }
  std::string body;
  const Heading heading{bytes_of(request_id), 0, bytes_of(model), bytes_of(digest)};
  const bool done = correction_answer(bytes_of(payload), bytes_of(sentence), heading, latency_us, body);
  for (Py_buffer* buffer : {&payload, &sentence, &request_id, &model, &digest}) PyBuffer_Release(buffer);
  return result(done, body);
}

}  // namespace
}  // namespace copydesk

extern PyMethodDef forms_methods[];

PyMethodDef forms_methods[] = {
    {"completion_task", copydesk::make_task<copydesk::completion_task>, METH_VARARGS,
     "completion_task(body: bytes, model: bytes) -> bytes | None\n\n"
     "The task of a plain request to /v1/completions."},
    {"chat_task", copydesk::make_task<copydesk::chat_task>, METH_VARARGS,
     "chat_task(body: bytes, model: bytes) -> bytes | None\n\n"
     "The task of a plain request to /v1/chat/completions."},
    {"completion_answer", copydesk::make_answer<copydesk::completion_answer>, METH_VARARGS,
     "completion_answer(payload: bytes, request_id: bytes, created: int, model_json: bytes, digest_json: bytes)"
     " -> bytes | None\n\nThe body of a response of /v1/completions."},
    {"chat_answer", copydesk::make_answer<copydesk::chat_answer>, METH_VARARGS,
     "chat_answer(payload: bytes, request_id: bytes, created: int, model_json: bytes, digest_json: bytes)"
     " -> bytes | None\n\nThe body of a response of /v1/chat/completions."},
    {"correction_task", copydesk::make_correction_task, METH_VARARGS,
     "correction_task(body: bytes, model: bytes, most_characters: int) -> tuple[bytes, bytes] | None\n\n"
     "The task of a plain request to /v1/correct, and its sentence."},
    {"correction_answer", copydesk::make_correction_answer, METH_VARARGS,
     "correction_answer(payload: bytes, sentence: bytes, request_id: bytes, model_json: bytes, digest_json: bytes,"
     " latency_us: int) -> bytes | None\n\nThe body of a response of /v1/correct."},
    {nullptr, nullptr, 0, nullptr},
};
