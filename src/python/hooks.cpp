/// Hooks into the interpreter.
#include "python/hooks.h"

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX < 0x030C0000
// The running frame is read without making a frame object: a node stores its line for two loads and a count.
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <string>

#include "compute/blas_path.h"
#include "compute/blocking.h"
#include "compute/cpu/threads.h"
#include "python/gil.h"
#include "python/tensor_object.h"
#include "tensor/location.h"

namespace hyalite::python {
namespace {

// The globals of this package's modules. Guarded by the GIL.
std::array<PyObject*, 16> hidden_globals{};
// The last that were none of them; ours live on, so nothing of ours takes their address.
PyObject* shown = nullptr;

bool is_hidden(PyObject* globals) {
  if (globals == shown) return false;
  for (PyObject* g : hidden_globals) {
    if (g == nullptr) break;
    if (g == globals) return true;
  }
  shown = globals;
  return false;
}

Location capture() noexcept {
  PyThreadState* state = _PyThreadState_UncheckedGet();
  if (state == nullptr || !PyGILState_Check()) return {};
#if PY_VERSION_HEX < 0x030C0000
  const _PyInterpreterFrame* frame = state->cframe->current_frame;
  while (frame != nullptr &&
         (_PyFrame_IsIncomplete(const_cast<_PyInterpreterFrame*>(frame)) || is_hidden(frame->f_globals))) {
    frame = frame->previous;
  }
  if (frame == nullptr) return {};
  PyCodeObject* code = frame->f_code;
  Py_INCREF(code);
  return {code, static_cast<std::int64_t>(_PyInterpreterFrame_LASTI(frame)) *
                    static_cast<std::int64_t>(sizeof(_Py_CODEUNIT))};
#else
  Owned frame(Owned::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame())));
  while (frame) {
    PyFrameObject* f = reinterpret_cast<PyFrameObject*>(frame.get());
    const Owned globals(PyFrame_GetGlobals(f));
    if (!is_hidden(globals.get())) return {PyFrame_GetCode(f), PyFrame_GetLasti(f)};
    frame = Owned(reinterpret_cast<PyObject*>(PyFrame_GetBack(f)));
  }
  return {};
#endif
}

/// Calls f with the GIL, unless the interpreter is gone.
template <class F>
void with_gil(F f) {
  if (!Py_IsInitialized()) return;
  if (PyGILState_Check()) {
    f();
    return;
  }
  const Gil gil;
  f();
}

PyObject* code_of(Location l) { return static_cast<PyObject*>(const_cast<void*>(l.code)); }
void retain(Location l) noexcept {
  with_gil([&] { Py_INCREF(code_of(l)); });
}
void release(Location l) noexcept {
  with_gil([&] { Py_DECREF(code_of(l)); });
}
std::string describe_line(Location l) {
  std::string text;
  with_gil([&] {
    PyCodeObject* code = reinterpret_cast<PyCodeObject*>(code_of(l));
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    if (file == nullptr) {
      PyErr_Clear();
      return;
    }
    text = std::string(file) + ":" + std::to_string(PyCode_Addr2Line(code, static_cast<int>(l.position)));
  });
  return text;
}

// The thread state of a thread that has given the GIL up.
thread_local PyThreadState* saved_state = nullptr;

void* enter_blocking() noexcept {
  if (!Py_IsInitialized() || !PyGILState_Check()) return nullptr;
  saved_state = PyEval_SaveThread();
  return saved_state;
}
void leave_blocking(void*) noexcept {
  restore_thread(saved_state);
  saved_state = nullptr;
}

/// Asks for signals every 20 ms, and only on a thread that has given the GIL up.
bool poll_signals() {
  if (saved_state == nullptr) return false;
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point last = Clock::now();
  const Clock::time_point now = Clock::now();
  if (now - last < std::chrono::milliseconds(20)) return false;
  last = now;
  restore_thread(saved_state);
  const bool stop = PyErr_CheckSignals() != 0;
  saved_state = PyEval_SaveThread();
  return stop;
}

/// The library inside the scipy-openblas32 package, wherever pip put it. Without the package the system may know the
/// library; whatever else the import raises, such as Ctrl-C, is the caller's.
std::string find_blas() {
  std::string path;
  with_gil([&] {
    const Owned module(PyImport_ImportModule("scipy_openblas32"));
    const Owned dir(module ? PyObject_CallMethod(module.get(), "get_lib_dir", nullptr) : nullptr);
    const Owned name(module ? PyObject_CallMethod(module.get(), "get_library", nullptr) : nullptr);
    const char* d = dir ? PyUnicode_AsUTF8(dir.get()) : nullptr;
    const char* n = name ? PyUnicode_AsUTF8(name.get()) : nullptr;
    if (d != nullptr && n != nullptr) path = std::string(d) + "/lib" + n + ".so";
    if (PyErr_Occurred() == nullptr) return;
    if (!PyErr_ExceptionMatches(PyExc_ImportError) && !PyErr_ExceptionMatches(PyExc_AttributeError))
      throw PythonError();
    PyErr_Clear();
  });
  return path.empty() ? "libscipy_openblas.so" : path;
}

}  // namespace

void hide_frames(PyObject* globals) {
  const auto free = std::ranges::find(hidden_globals, nullptr);
  if (free != hidden_globals.end()) *free = Py_NewRef(globals);
  shown = nullptr;
}

void install_hooks() {
  install_location_hooks({capture, retain, release, describe_line});
  install_blocking_hooks({enter_blocking, leave_blocking});
  set_interrupt_poll(poll_signals);
  install_blas_finder(find_blas);
}

}  // namespace hyalite::python
