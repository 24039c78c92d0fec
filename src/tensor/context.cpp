/// The thread's context and the process-wide switches.
#include "tensor/context.h"

namespace hyalite {
namespace detail {
constinit thread_local Context thread_context;
constinit std::atomic<bool> deterministic_flag{false};
}  // namespace detail

void use_deterministic(bool on) noexcept { detail::deterministic_flag.store(on, std::memory_order_relaxed); }

}  // namespace hyalite
