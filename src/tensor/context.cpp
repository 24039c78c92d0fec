/// The thread's context and the process-wide switches.
#include "tensor/context.h"

#include <atomic>

namespace hyalite {
namespace detail {
constinit thread_local Context thread_context;
}
namespace {
std::atomic<bool> deterministic_flag{false};
}

bool deterministic() noexcept { return deterministic_flag.load(std::memory_order_relaxed); }
void use_deterministic(bool on) noexcept { deterministic_flag.store(on, std::memory_order_relaxed); }

}  // namespace hyalite
