/// Opening scipy-openblas32, and leaving it alone when the process ends.
#include "compute/cpu/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "compute/blas_path.h"
#include "compute/cpu/gemm.h"
#include "compute/cpu/threads.h"
#include "hyalite/error.h"

namespace hyalite {
namespace {
std::string (*blas_finder)() = nullptr;
}
void install_blas_finder(std::string (*finder)()) noexcept { blas_finder = finder; }
}  // namespace hyalite

namespace hyalite::cpu {
namespace {

Blas open_blas() {
  Blas b;
  const char* named = std::getenv("HYALITE_BLAS");
  b.path = named != nullptr ? named : blas_finder != nullptr ? blas_finder() : HYALITE_BLAS_PATH;
  void* h = dlopen(b.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (h == nullptr) {
    throw Unsupported("matmul() needs OpenBLAS, which did not open: " + std::string(dlerror()) +
                          "; run pip install scipy-openblas32, or name libscipy_openblas.so in HYALITE_BLAS",
                      {{"path", b.path}});
  }
  auto symbol = [&](auto& to, const char* name) {
    to = reinterpret_cast<std::decay_t<decltype(to)>>(dlsym(h, name));
    if (to == nullptr)
      throw Unsupported(b.path + " lacks " + name + "; it is not scipy-openblas32", {{"path", b.path}});
  };
  symbol(b.sgemm, "scipy_cblas_sgemm");
  symbol(b.dgemm, "scipy_cblas_dgemm");
  symbol(b.cgemm, "scipy_cblas_cgemm");
  symbol(b.zgemm, "scipy_cblas_zgemm");
  symbol(b.sgemv, "scipy_cblas_sgemv");
  symbol(b.dgemv, "scipy_cblas_dgemv");
  symbol(b.cgemv, "scipy_cblas_cgemv");
  symbol(b.zgemv, "scipy_cblas_zgemv");
  symbol(b.sdot, "scipy_cblas_sdot");
  symbol(b.ddot, "scipy_cblas_ddot");
  symbol(b.set_threads, "scipy_openblas_set_num_threads");
  symbol(b.config, "scipy_openblas_get_config");
  b.set_threads(1);
  return b;
}

}  // namespace

/// Without a lock or a static's guard: the finder runs Python, which gives the GIL away to threads that come here too.
/// Two that arrive together open the same library twice, and one result is dropped.
const Blas& blas() {
  static std::atomic<const Blas*> opened{nullptr};
  if (const Blas* b = opened.load(std::memory_order_acquire)) return *b;
  auto fresh = std::make_unique<const Blas>(open_blas());
  const Blas* first = nullptr;
  if (opened.compare_exchange_strong(first, fresh.get(), std::memory_order_acq_rel)) {
    BlasRunning::watch_exit();
    return *fresh.release();
  }
  return *first;
}

BlasRunning::BlasRunning() noexcept : counts_(!threads_detail::is_helper) {
  if (!counts_) return;
  count_.fetch_add(1);
  if (!ending_.load() || is_ending_) return;
  count_.fetch_sub(1);
  for (;;) pause();
}

void BlasRunning::watch_exit() {
  std::atexit([] {
    is_ending_ = true;
    ending_.store(true);
    while (count_.load() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  pthread_atfork(nullptr, nullptr, [] { count_.store(0); });  // the others that were at work are not in the child
}

std::string blas_description() { return std::string(blas().config()) + " (" + blas().path + ")"; }

}  // namespace hyalite::cpu
