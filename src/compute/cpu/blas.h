/// OpenBLAS, one thread a call: who shares out the work is the engine.
#pragma once

#include <atomic>
#include <string>

namespace hyalite::cpu {

/// What is used of the CBLAS interface of scipy-openblas32. Complex numbers and their addresses are plain pointers.
struct Blas {
  // CBLAS's own numbers.
  enum Order : int { row_major_order = 101 };
  enum Transpose : int { plain = 111, transposed = 112 };
  template <class Alpha, class T>
  using Gemm = void (*)(int, int, int, int, int, int, Alpha, const T*, int, const T*, int, Alpha, T*, int);
  template <class Alpha, class T>
  using Gemv = void (*)(int, int, int, int, Alpha, const T*, int, const T*, int, Alpha, T*, int);
  template <class T>
  using Dot = T (*)(int, const T*, int, const T*, int);

  std::string path;
  Gemm<float, float> sgemm;
  Gemm<double, double> dgemm;
  Gemm<const void*, void> cgemm, zgemm;
  Gemv<float, float> sgemv;
  Gemv<double, double> dgemv;
  Gemv<const void*, void> cgemv, zgemv;
  Dot<float> sdot;
  Dot<double> ddot;
  void (*set_threads)(int);
  char* (*config)();
};

/// Opened at the first use. Throws Unsupported.
const Blas& blas();

/// Held while OpenBLAS works, and while nothing else is waited for. When the process exits, OpenBLAS takes its memory
/// back from a destructor, whoever computes there: so exit waits for those that run, and none begins any more. For the
/// threads of the pool, which help to the end of what they are at, exit waits anyhow.
class BlasRunning {
 public:
  BlasRunning() noexcept;
  ~BlasRunning() {
    if (counts_) count_.fetch_sub(1);
  }
  BlasRunning(const BlasRunning&) = delete;
  BlasRunning& operator=(const BlasRunning&) = delete;

  static void watch_exit();

 private:
  const bool counts_;
  static inline std::atomic<int> count_{0};
  static inline std::atomic<bool> ending_{false};
  static inline constinit thread_local bool is_ending_ = false;
};

}  // namespace hyalite::cpu
