/// Matrix products through the CBLAS interface of scipy-openblas32, opened at the first product.
#include "compute/cpu/gemm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <thread>

#include "compute/blas_path.h"
#include "compute/blocking.h"
#include "compute/cpu/backend.h"
#include "compute/cpu/operands.h"
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

// CBLAS's own numbers.
enum Order : int { row_major_order = 101 };
enum Transpose : int { plain = 111, transposed = 112 };

template <class Alpha, class T>
using Gemm = void (*)(int, int, int, int, int, int, Alpha, const T*, int, const T*, int, Alpha, T*, int);

struct Blas {
  std::string path;
  Gemm<float, float> sgemm;
  Gemm<double, double> dgemm;
  Gemm<const void*, void> cgemm, zgemm;
  void (*set_threads)(int);
  char* (*config)();
};

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
  symbol(b.set_threads, "scipy_openblas_set_num_threads");
  symbol(b.config, "scipy_openblas_get_config");
  return b;
}

/// Held while OpenBLAS works. When the process exits, OpenBLAS joins its threads from a destructor, for ever if another
/// thread has given one of them a product just then: so exit waits for those that run, and none begins any more.
class Running {
 public:
  Running() noexcept {
    count.fetch_add(1);
    if (!ending.load() || is_ending) return;
    count.fetch_sub(1);
    for (;;) pause();
  }
  ~Running() { count.fetch_sub(1); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  static void watch_exit() {
    std::atexit([] {
      is_ending = true;
      ending.store(true);
      while (count.load() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    pthread_atfork(nullptr, nullptr, [] { count.store(0); });  // the others that were at work are not in the child
  }

 private:
  static inline std::atomic<int> count{0};
  static inline std::atomic<bool> ending{false};
  static inline constinit thread_local bool is_ending = false;
};

/// Opened at the first use, without a lock or a static's guard: the finder runs Python, which gives the GIL away to
/// threads that come here too. Two that arrive together open the same library twice, and one result is dropped.
const Blas& blas() {
  static std::atomic<const Blas*> opened{nullptr};
  if (const Blas* b = opened.load(std::memory_order_acquire)) return *b;
  auto fresh = std::make_unique<const Blas>(open_blas());
  const Blas* first = nullptr;
  if (opened.compare_exchange_strong(first, fresh.get(), std::memory_order_acq_rel)) {
    Running::watch_exit();
    return *fresh.release();
  }
  return *first;
}

/// One matrix of a batch: address and strides in elements.
struct Matrix {
  const std::byte* data;
  std::int64_t rows, cols, row_stride, col_stride;
};

/// A tensor's last two axes, and how the ones before lie; a vector is a row on the left, a column on the right.
struct Batch {
  Matrix matrix;
  DimList shape, strides;  // of the leading axes, in elements
};

Batch batch_of(const TensorImpl& t, bool left) {
  const Dims shape = t.shape();
  DimList strides(t.strides());
  for (int i = 0; i < strides.size(); ++i) {
    if (shape[i] == 1) strides[i] = 1;  // never used, and may be too large for BLAS
  }
  const int n = t.ndim();
  Batch b;
  if (n == 1) {
    b.matrix = left ? Matrix{t.address(), 1, shape[0], 0, strides[0]} : Matrix{t.address(), shape[0], 1, strides[0], 0};
    return b;
  }
  b.matrix = {t.address(), shape[n - 2], shape[n - 1], strides[n - 2], strides[n - 1]};
  b.shape = DimList(shape.first(n - 2));
  b.strides = DimList(Dims(strides).first(n - 2));
  return b;
}

/// BLAS takes a matrix whose rows, or columns, are contiguous and do not overlap.
bool fits_rows(const Matrix& m) {
  return (m.col_stride == 1 || m.cols == 1) && (m.row_stride >= std::max<std::int64_t>(1, m.cols) || m.rows == 1);
}
bool fits_columns(const Matrix& m) {
  return (m.row_stride == 1 || m.rows == 1) && (m.col_stride >= std::max<std::int64_t>(1, m.rows) || m.cols == 1);
}
int leading(std::int64_t stride, std::int64_t least) {
  return static_cast<int>(std::max({stride, least, std::int64_t{1}}));
}

void gemm(Dtype dtype, const Matrix& a, const Matrix& b, std::byte* out) {
  const Blas& library = blas();
  const bool ta = !fits_rows(a), tb = !fits_rows(b);
  const int m = static_cast<int>(a.rows), n = static_cast<int>(b.cols), k = static_cast<int>(a.cols);
  const int lda = ta ? leading(a.col_stride, a.rows) : leading(a.row_stride, a.cols);
  const int ldb = tb ? leading(b.col_stride, b.rows) : leading(b.row_stride, b.cols);
  const int ldc = std::max(n, 1), oa = ta ? transposed : plain, ob = tb ? transposed : plain;
  auto real = [&](auto call, auto type) {
    using T = decltype(type);
    call(row_major_order, oa, ob, m, n, k, T{1}, reinterpret_cast<const T*>(a.data), lda,
         reinterpret_cast<const T*>(b.data), ldb, T{0}, reinterpret_cast<T*>(out), ldc);
  };
  auto complex = [&](auto call, auto type) {
    const decltype(type) one[2] = {1, 0}, zero[2] = {0, 0};
    call(row_major_order, oa, ob, m, n, k, one, a.data, lda, b.data, ldb, zero, out, ldc);
  };
  switch (dtype) {
    case Dtype::float32:
      return real(library.sgemm, float{});
    case Dtype::float64:
      return real(library.dgemm, double{});
    case Dtype::complex64:
      return complex(library.cgemm, float{});
    default:
      return complex(library.zgemm, double{});
  }
}

/// Integers wrap, so unsigned arithmetic gives every width's result.
template <class U>
void integer_gemm(const Matrix& a, const Matrix& b, std::byte* out) {
  using W = std::common_type_t<U, unsigned>;  // a product of two uint16 would overflow int
  const U* x = reinterpret_cast<const U*>(a.data);
  const U* y = reinterpret_cast<const U*>(b.data);
  U* z = reinterpret_cast<U*>(out);
  parallel_for((a.rows + 7) / 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * 8; i < std::min(end * 8, a.rows); ++i) {
      U* row = z + i * b.cols;
      std::fill_n(row, b.cols, U{0});
      for (std::int64_t p = 0; p < a.cols; ++p) {
        const W s = x[i * a.row_stride + p * a.col_stride];
        const U* from = y + p * b.row_stride;
        for (std::int64_t j = 0; j < b.cols; ++j)
          row[j] = static_cast<U>(row[j] + static_cast<U>(s * W{from[j * b.col_stride]}));
      }
    }
  });
}

void multiply(Dtype dtype, const Matrix& a, const Matrix& b, std::byte* out) {
  if (kind(dtype) != Kind::integer) return gemm(dtype, a, b, out);
  switch (itemsize(dtype)) {
    case 1:
      return integer_gemm<std::uint8_t>(a, b, out);
    case 2:
      return integer_gemm<std::uint16_t>(a, b, out);
    case 4:
      return integer_gemm<std::uint32_t>(a, b, out);
    default:
      return integer_gemm<std::uint64_t>(a, b, out);
  }
}

/// The tensor itself where BLAS can read it, else a dense copy in `dtype`.
TensorRef readable(const TensorImpl& t, Dtype dtype, bool left) {
  const Matrix m = batch_of(t, left).matrix;
  const bool fits = kind(dtype) == Kind::integer || fits_rows(m) || fits_columns(m);
  if (t.dtype() == dtype && fits) return TensorRef::share(const_cast<TensorImpl*>(&t));
  return copy_of(t, dtype);
}

void check_sizes(const Matrix& a, const Matrix& b) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  for (const std::int64_t s : {a.rows, a.cols, b.cols, a.row_stride, a.col_stride, b.row_stride, b.col_stride}) {
    if (s <= most && s >= -most) continue;
    throw Unsupported("matmul(): OpenBLAS counts sizes and strides in 32 bits; split the product along an axis",
                      {{"size", s}});
  }
}

void fill_report(GemmReport& r, Dtype dtype, const Matrix& a, const Matrix& b, std::int64_t count) {
  const bool own = kind(dtype) == Kind::integer;
  r.routine = own ? "integer loops of Hyalite"
                  : std::string(1, "sdcz"[static_cast<int>(dtype) - static_cast<int>(Dtype::float32)]) + "gemm";
  if (!own) r.library = blas().config();
  r.threads = threads_detail::last_threads;
  // A complex product is four of reals and two sums, and adding it two more.
  r.operations = (is_complex(dtype) ? 8.0 : 2.0) * static_cast<double>(a.rows) * static_cast<double>(a.cols) *
                 static_cast<double>(b.cols) * static_cast<double>(count);
}

}  // namespace

void matmul(const TensorImpl& a, const TensorImpl& b, TensorImpl& out, GemmReport* report) {
  const bool half = a.dtype() == Dtype::float16 || a.dtype() == Dtype::bfloat16;
  const Dtype dtype = half ? Dtype::float32 : a.dtype();
  const TensorRef x = readable(a, dtype, true), y = readable(b, dtype, false);
  const TensorRef z = half ? backend().empty(dtype, out.shape()) : TensorRef::share(&out);
  Batch left = batch_of(*x, true), right = batch_of(*y, false);
  if (z->numel() == 0) return;
  const std::int64_t size = static_cast<std::int64_t>(itemsize(dtype)), block = left.matrix.rows * right.matrix.cols;
  const std::int64_t count = z->numel() / block;
  threads_detail::last_threads = 1;  // until a region, or the library, is given more
  if (kind(dtype) != Kind::integer) check_sizes(left.matrix, right.matrix);
  if (left.matrix.cols == 0) {
    std::memset(z->address(), 0, static_cast<std::size_t>(z->nbytes()));
  } else {
    const bool large = static_cast<double>(z->numel()) * static_cast<double>(left.matrix.cols) > 64 * 64 * 64;
    const Blas* library = kind(dtype) != Kind::integer ? &blas() : nullptr;
    DimList lead(left.shape);
    broadcast_into(lead, right.shape);
    auto offset = [&](const Batch& s, std::int64_t i) {
      std::int64_t at = 0;
      for (int d = lead.size() - 1; d >= 0; --d) {
        const int mine = d - (lead.size() - s.shape.size());
        if (mine >= 0 && s.shape[mine] != 1) at += i % lead[d] * s.strides[mine];
        i /= lead[d];
      }
      return at * size;
    };
    auto all = [&] {
      std::optional<Running> running;
      if (library != nullptr) {
        running.emplace();
        threads_detail::last_threads = large ? num_threads() : 1;
        library->set_threads(threads_detail::last_threads);
      }
      for (std::int64_t i = 0; i < count; ++i) {
        Matrix m = left.matrix, n = right.matrix;
        m.data += offset(left, i);
        n.data += offset(right, i);
        multiply(dtype, m, n, z->address() + i * block * size);
      }
    };
    if (large) {
      const Blocking released;
      all();
    } else {
      all();
    }
  }
  if (report != nullptr && count > 0 && left.matrix.cols > 0)
    fill_report(*report, dtype, left.matrix, right.matrix, count);
  if (half) backend().copy(*z, out);
}

std::string blas_description() { return std::string(blas().config()) + " (" + blas().path + ")"; }

}  // namespace hyalite::cpu
