/// The installed location hooks.
#include "tensor/location.h"

namespace hyalite {
namespace {
LocationHooks hooks;
}

void install_location_hooks(const LocationHooks& h) noexcept { hooks = h; }
Location capture_location() noexcept { return hooks.capture != nullptr ? hooks.capture() : Location{}; }
void retain_location(Location l) noexcept {
  if (l.code != nullptr && hooks.retain != nullptr) hooks.retain(l);
}
void release_location(Location l) noexcept {
  if (l.code != nullptr && hooks.release != nullptr) hooks.release(l);
}
std::string describe(Location l) { return l.code != nullptr && hooks.describe != nullptr ? hooks.describe(l) : ""; }

}  // namespace hyalite
