/// The shared library is the static core; this file only gives it a translation unit of its own.
#include "hyalite/hyalite.h"

namespace hyalite {
const char* version() noexcept { return HYALITE_VERSION_STRING; }
}  // namespace hyalite
