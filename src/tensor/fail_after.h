/// A way for tests to run out of memory at a chosen request.
#pragma once

#include <cstdint>

namespace hyalite::pool {

/// The n-th request from now that does not come from a thread's own list fails as if memory had run out; 0 for none.
/// Returns how many were still to come. With HYALITE_POISON=1 no request comes from such a list.
std::int64_t fail_after(std::int64_t n) noexcept;

}  // namespace hyalite::pool
