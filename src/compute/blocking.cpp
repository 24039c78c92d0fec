/// The installed blocking hooks.
#include "compute/blocking.h"

namespace hyalite {
namespace {
BlockingHooks hooks;
thread_local int depth = 0;
}  // namespace

void install_blocking_hooks(BlockingHooks h) noexcept { hooks = h; }

Blocking::Blocking() {
  if (depth++ == 0 && hooks.enter != nullptr) state_ = hooks.enter();
}
Blocking::~Blocking() {
  if (--depth == 0 && state_ != nullptr) hooks.leave(state_);
}

}  // namespace hyalite
