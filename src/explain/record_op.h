/// What stands in a trace as an op, and is none of the list: the run of a plan.
#pragma once

#include "explain/recorder.h"

namespace hyalite {

/// Runs f as an op of the name, which `name()` gives where somebody listens; `rec` may be null.
template <class Name, class F>
void record_op(Recorder* rec, Name name, F f) {
  if (rec == nullptr) return f();
  rec->begin_op(name());
  try {
    f();
  } catch (...) {
    rec->end_op();
    throw;
  }
  rec->end_op("");
}

}  // namespace hyalite
