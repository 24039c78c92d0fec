/// What a front end must do around long computations: let other threads of its interpreter run.
#pragma once

namespace hyalite {

/// Hooks of a front end; Python's release the GIL and take it back.
struct BlockingHooks {
  void* (*enter)() noexcept = nullptr;
  void (*leave)(void*) noexcept = nullptr;
};
void install_blocking_hooks(BlockingHooks hooks) noexcept;

/// Held while a computation of some tens of microseconds or more runs.
class Blocking {
 public:
  Blocking();
  ~Blocking();
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

 private:
  void* state_ = nullptr;
};

}  // namespace hyalite
