/// Shows what a call really did: every step with its reason and its time.
#pragma once

#include <functional>

#include "hyalite/trace.h"

namespace hyalite {

/// Calls `f` once, and shows the steps it took. With `repeat` it is called several times more for the times: each of
/// these runs times one step, and a step's time is the median. What `f` throws passes through.
HYALITE_API Trace explain(const std::function<void()>& f, const ExplainOptions& options = {});

/// Records what this thread does from its construction to `end`, once.
class HYALITE_API ExplainScope {
 public:
  explicit ExplainScope(ExplainOptions options = {});
  ~ExplainScope();
  ExplainScope(const ExplainScope&) = delete;
  ExplainScope& operator=(const ExplainScope&) = delete;
  /// Throws ValueError at a second call, on another thread, or while a scope begun later is still open.
  Trace end();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hyalite
