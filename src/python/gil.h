/// Taking the GIL from native code, also while the interpreter ends.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <unistd.h>

namespace hyalite::python {

/// Where a thread stays that wants the GIL of an interpreter that is ending. Python before 3.14 ends such a thread with
/// pthread_exit, whose unwinding aborts the process at the first noexcept function or catch (...); later ones stop it
/// as this does.
[[noreturn]] inline void stay_until_exit() noexcept {
  for (;;) pause();
}

/// PyEval_RestoreThread for C++ callers.
inline void restore_thread(PyThreadState* state) noexcept {
  try {
    PyEval_RestoreThread(state);
  } catch (...) {
    stay_until_exit();
  }
}

/// PyGILState_Ensure for C++ callers.
inline PyGILState_STATE ensure_gil() noexcept {
  try {
    return PyGILState_Ensure();
  } catch (...) {
    stay_until_exit();
  }
}

/// Holds the GIL; native code may come from a thread that does not.
class Gil {
 public:
  Gil() : state_(ensure_gil()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace hyalite::python
