/// Lines of the user's program: captured as two numbers through a hook, decoded only when printed.
#pragma once

#include <string>

#include "tensor/storage.h"

namespace hyalite {

/// What a front end installs so that nodes and writes can name their line. Any may be null.
struct LocationHooks {
  Location (*capture)() noexcept = nullptr;  ///< the line running now, with a reference of its own
  void (*retain)(Location) noexcept = nullptr;
  void (*release)(Location) noexcept = nullptr;
  std::string (*describe)(Location) = nullptr;  ///< "file.py:12"
};

void install_location_hooks(const LocationHooks& hooks) noexcept;

Location capture_location() noexcept;
void retain_location(Location l) noexcept;
void release_location(Location l) noexcept;
/// "file:line", empty when unknown.
std::string describe(Location l);

}  // namespace hyalite
