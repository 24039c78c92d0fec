/// Which tile is which part of which matrices, and one call for it.
#include "compute/cpu/gemm.h"

#include <algorithm>
#include <limits>

#include "compute/blocking.h"
#include "compute/cpu/backend.h"
#include "compute/cpu/gather.h"
#include "compute/cpu/operands.h"
#include "compute/cpu/reduce_walk.h"
#include "compute/cpu/threads.h"
#include "hyalite/error.h"

namespace hyalite::cpu {
namespace {

// Each tile packs its part of both operands anew, which costs some per cent of one call for all: more for narrow tiles
// than for flat ones. Smaller results are cut smaller, so that there is something for other threads.
constexpr std::int64_t most_height = 256, least_height = 64, most_width = 1024, least_width = 128;
constexpr std::int64_t least_integer_height = 8;  // nothing is packed
// Of a matrix beside a vector, in elements. Unlike gemm, gemv adds in an order that depends on how the matrix lies:
// worth it where it saves microseconds.
constexpr std::int64_t least_vector_product = 64 * 64;
// Of sums that are long while there are few of them.
constexpr std::int64_t least_depth = 4096, most_parts = 64;

/// The size of parts that are about equal, none above `most`: a multiple of `unit`.
std::int64_t even(std::int64_t size, std::int64_t most, std::int64_t unit) {
  const std::int64_t parts = std::max<std::int64_t>(1, (size + most - 1) / most);
  std::int64_t each = std::max<std::int64_t>(1, ((size + parts - 1) / parts + unit - 1) / unit * unit);
  while (size > each && size % each == 1) each += unit;  // one row alone would be another kernel's
  return each;
}

int leading(std::int64_t stride, std::int64_t least) {
  return static_cast<int>(std::max({stride, least, std::int64_t{1}}));
}

std::int64_t size_of(Dtype t) { return static_cast<std::int64_t>(itemsize(t)); }

}  // namespace

TileGrid TileGrid::of(std::int64_t rows, std::int64_t cols, std::int64_t inner, Dtype dtype) {
  const bool integer = kind(dtype) == Kind::integer;
  const std::int64_t least = integer ? least_integer_height : least_height;
  TileGrid g{rows, cols, even(rows, std::clamp(rows / 8, least, most_height), least / 2), cols, inner};
  const std::int64_t down = std::max<std::int64_t>(1, g.down());
  const std::int64_t few = std::min((4 + down - 1) / down, std::max<std::int64_t>(1, cols / least_width));
  g.width = even(cols, std::clamp<std::int64_t>((cols + few - 1) / few, 1, most_width), 32);
  if (!integer && g.down() * g.across() == 1 && inner >= 2 * least_depth)
    g.depth = even(inner, std::max(least_depth, (inner + most_parts - 1) / most_parts), 64);
  return g;
}

Product::Batch::Batch(const TensorImpl& t, bool left) {
  const Dims dims = t.shape();
  DimList steps(t.strides());
  for (int i = 0; i < steps.size(); ++i) {
    if (dims[i] == 1) steps[i] = 1;  // never used, and may be too large for BLAS
  }
  const int n = t.ndim();
  if (n == 1) {
    matrix = left ? Matrix{t.address(), 1, dims[0], 0, steps[0]} : Matrix{t.address(), dims[0], 1, steps[0], 0};
    return;
  }
  matrix = {t.address(), dims[n - 2], dims[n - 1], steps[n - 2], steps[n - 1]};
  shape = DimList(dims.first(n - 2));
  strides = DimList(Dims(steps).first(n - 2));
}

/// BLAS takes a matrix whose rows, or columns, are contiguous and do not overlap.
bool Product::Matrix::fits_rows() const {
  return (col_stride == 1 || cols == 1) && (row_stride >= std::max<std::int64_t>(1, cols) || rows == 1);
}
bool Product::Matrix::fits_columns() const {
  return (row_stride == 1 || rows == 1) && (col_stride >= std::max<std::int64_t>(1, rows) || cols == 1);
}

/// The tensor itself where BLAS can read it, else a dense copy in `dtype`.
TensorRef Product::readable(const TensorImpl& t, Dtype dtype, bool left) {
  const Matrix m = Batch(t, left).matrix;
  const bool fits = kind(dtype) == Kind::integer || m.fits_rows() || m.fits_columns();
  if (t.dtype() == dtype && fits) return TensorRef::share(const_cast<TensorImpl*>(&t));
  return copy_of(t, dtype);
}

Product::Product(const TensorImpl& a, const TensorImpl& b, Dims shape)
    : dtype_(a.dtype()),
      computed_(cpu::computed(dtype_)),
      a_(readable(a, computed_, true)),
      b_(readable(b, computed_, false)),
      left_(*a_, true),
      right_(*b_, false),
      lead_(left_.shape),
      grid_(TileGrid::of(left_.matrix.rows, right_.matrix.cols, left_.matrix.cols, dtype_)) {
  broadcast_into(lead_, right_.shape);
  const std::int64_t all = checked_numel(shape, 1);
  if (all == 0) return;
  count_ = all / (grid_.rows * grid_.cols);
  if (kind(dtype_) == Kind::integer) return;
  check_sizes();
  if (left_.matrix.cols == 0) return;
  blas_ = &blas();
}

void Product::check_sizes() const {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  const Matrix &a = left_.matrix, &b = right_.matrix;
  for (const std::int64_t s : {a.rows, a.cols, b.cols, a.row_stride, a.col_stride, b.row_stride, b.col_stride}) {
    if (s <= most && s >= -most) continue;
    throw Unsupported("matmul(): OpenBLAS counts sizes and strides in 32 bits; split the product along an axis",
                      {{"size", s}});
  }
}

bool Product::is_large() const {
  const double one =
      static_cast<double>(grid_.rows) * static_cast<double>(grid_.cols) * static_cast<double>(left_.matrix.cols);
  return one * static_cast<double>(count_) > 64 * 64 * 64 && one >= 16 * 16 * 16;
}
std::int64_t Product::parts() const {
  return grid_.depth == 0 ? 1 : (left_.matrix.cols + grid_.depth - 1) / grid_.depth;
}

Product::Tile Product::tile(std::int64_t i) const {
  const std::int64_t across = grid_.across(), down = grid_.down();
  Tile t{};
  t.col = i % across * grid_.width;
  t.row = i / across % down * grid_.height;
  t.batch = i / (across * down);
  t.rows = std::min(grid_.height, grid_.rows - t.row);
  t.cols = std::min(grid_.width, grid_.cols - t.col);
  return t;
}

/// Of a matrix of the batch, in elements.
std::int64_t Product::offset(const Batch& b, std::int64_t batch) const {
  std::int64_t at = 0;
  for (int d = lead_.size() - 1; d >= 0; --d) {
    const int mine = d - (lead_.size() - b.shape.size());
    if (mine >= 0 && b.shape[mine] != 1) at += batch % lead_[d] * b.strides[mine];
    batch /= lead_[d];
  }
  return at;
}

void Product::compute(const Tile& t, std::byte* to, std::int64_t stride) const {
  const std::int64_t size = size_of(computed_), parts = this->parts();
  if (parts == 1 && computed_ == dtype_) return compute_part(t, 0, to, stride);
  thread_local reduce_walk::Buffer memory;
  auto* const sums = reinterpret_cast<std::byte*>(memory.get(2 * t.rows * t.cols * size));
  std::byte* const more = sums + t.rows * t.cols * size;
  compute_part(t, 0, sums, t.cols);
  for (std::int64_t p = 1; p < parts; ++p) {
    compute_part(t, p, more, t.cols);
    add_part(t, more, t.cols, sums, t.cols);
  }
  convert(t, sums, to, stride);
}

void Product::compute_part(const Tile& t, std::int64_t part, std::byte* to, std::int64_t stride) const {
  const std::int64_t size = size_of(computed_);
  Matrix m = left_.matrix, n = right_.matrix;
  const std::int64_t first = part * grid_.depth;
  m.data += (offset(left_, t.batch) + t.row * m.row_stride + first * m.col_stride) * size;
  m.rows = t.rows;
  n.data += (offset(right_, t.batch) + t.col * n.col_stride + first * n.row_stride) * size;
  n.cols = t.cols;
  m.cols = n.rows = std::min(grid_.depth, m.cols - first);
  if (m.cols == 0) {
    for (std::int64_t i = 0; i < t.rows; ++i)
      std::memset(to + i * stride * size, 0, static_cast<std::size_t>(t.cols * size));
    return;
  }
  if (kind(dtype_) != Kind::integer) return float_gemm(m, n, to, stride);
  switch (size) {
    case 1:
      return integer_gemm<std::uint8_t>(m, n, to, stride);
    case 2:
      return integer_gemm<std::uint16_t>(m, n, to, stride);
    case 4:
      return integer_gemm<std::uint32_t>(m, n, to, stride);
    default:
      return integer_gemm<std::uint64_t>(m, n, to, stride);
  }
}

/// to += part, in the dtype that is computed in; of complex numbers, both parts.
void Product::add_part(const Tile& t, const std::byte* part, std::int64_t part_stride, std::byte* to,
                       std::int64_t stride) const {
  const auto add = [&](auto type, std::int64_t components) {
    using T = decltype(type);
    for (std::int64_t i = 0; i < t.rows; ++i) {
      const T* from = reinterpret_cast<const T*>(part) + i * part_stride * components;
      T* sum = reinterpret_cast<T*>(to) + i * stride * components;
      for (std::int64_t j = 0; j < t.cols * components; ++j) sum[j] += from[j];
    }
  };
  const std::int64_t components = is_complex(computed_) ? 2 : 1;
  if (size_of(computed_) / components == sizeof(float)) {
    add(float{}, components);
  } else {
    add(double{}, components);
  }
}

/// From dense rows in the dtype that is computed in.
void Product::convert(const Tile& t, const std::byte* from, std::byte* to, std::int64_t stride) const {
  const std::int64_t from_steps[] = {t.cols * size_of(computed_), size_of(computed_)};
  const std::int64_t to_steps[] = {stride * size_of(dtype_), size_of(dtype_)};
  const DimList shape{t.rows, t.cols};
  cpu::copy({const_cast<std::byte*>(from), from_steps, computed_, computed_}, {to, to_steps, dtype_, dtype_}, shape,
            nullptr);
}

bool Product::compute_all(std::byte* to, bool interruptible) const {
  const std::int64_t tiles = this->tiles(), parts = this->parts(), size = size_of(dtype_);
  const auto address = [&](const Tile& t) { return to + ((t.batch * grid_.rows + t.row) * grid_.cols + t.col) * size; };
  const auto some = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Tile t = tile(i);
      compute(t, address(t), grid_.cols);
    }
  };
  if (!is_large()) {
    some(0, tiles);
    return true;
  }
  const auto shared = [&](std::int64_t chunks, const auto& body) {
    if (interruptible) return parallel_for_interruptible(chunks, body);
    parallel_for(chunks, body);
    return true;
  };
  if (parts == 1 || tiles >= 2 * num_threads()) return shared(tiles, some);
  // The parts of the sums side by side, and then together as `compute` has them.
  const std::int64_t part_bytes = grid_.rows * grid_.cols * size_of(computed_);
  const Ref<Storage> memory = Storage::allocate(static_cast<std::size_t>(tiles * parts * part_bytes));
  const auto part_at = [&](std::int64_t i) { return memory->address() + i * part_bytes; };
  const bool finished = shared(tiles * parts, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) compute_part(tile(i / parts), i % parts, part_at(i), grid_.cols);
  });
  for (std::int64_t i = 0; finished && i < tiles; ++i) {
    const Tile t = tile(i);
    for (std::int64_t p = 1; p < parts; ++p)
      add_part(t, part_at(i * parts + p), grid_.cols, part_at(i * parts), grid_.cols);
    convert(t, part_at(i * parts), address(t), grid_.cols);
  }
  return finished;
}

void Product::float_gemm(const Matrix& a, const Matrix& b, std::byte* out, std::int64_t stride) const {
  const BlasRunning running;
  // Of the whole matrices: what a tile takes of them lies as they do.
  const bool ta = !left_.matrix.fits_rows(), tb = !right_.matrix.fits_rows();
  const int m = static_cast<int>(a.rows), n = static_cast<int>(b.cols), k = static_cast<int>(a.cols);
  const int lda = ta ? leading(a.col_stride, a.rows) : leading(a.row_stride, a.cols);
  const int ldb = tb ? leading(b.col_stride, b.rows) : leading(b.row_stride, b.cols);
  const int ldc = leading(stride, n), oa = ta ? Blas::transposed : Blas::plain,
            ob = tb ? Blas::transposed : Blas::plain;
  const bool dot = grid_.rows == 1 && grid_.cols == 1;
  const std::int64_t elements = grid_.rows * grid_.cols * left_.matrix.cols;
  if (dot || ((grid_.rows == 1 || grid_.cols == 1) && elements >= least_vector_product))
    return vector_product(a, b, out, stride);
  auto real = [&](auto call, auto type) {
    using T = decltype(type);
    call(Blas::row_major_order, oa, ob, m, n, k, T{1}, reinterpret_cast<const T*>(a.data), lda,
         reinterpret_cast<const T*>(b.data), ldb, T{0}, reinterpret_cast<T*>(out), ldc);
  };
  auto complex = [&](auto call, auto type) {
    const decltype(type) one[2] = {1, 0}, zero[2] = {0, 0};
    call(Blas::row_major_order, oa, ob, m, n, k, one, a.data, lda, b.data, ldb, zero, out, ldc);
  };
  switch (computed_) {
    case Dtype::float32:
      return real(blas_->sgemm, float{});
    case Dtype::float64:
      return real(blas_->dgemm, double{});
    case Dtype::complex64:
      return complex(blas_->cgemm, float{});
    default:
      return complex(blas_->zgemm, double{});
  }
}

/// Where the result is one row or one column.
void Product::vector_product(const Matrix& a, const Matrix& b, std::byte* out, std::int64_t stride) const {
  const bool row = a.rows == 1;  // then b is the matrix
  const bool dot = row && b.cols == 1;
  const int k = static_cast<int>(a.cols);
  const std::int64_t size = size_of(computed_);
  // Elements side by side: kernels for steps add in another order.
  thread_local reduce_walk::Buffer memory[2];
  const auto packed = [&](const std::byte* from, std::int64_t step, int which) -> const std::byte* {
    if (step == 1 || k == 1) return from;
    auto* const to = reinterpret_cast<std::byte*>(memory[which].get(k * size));
    gather(to, from, {1, k, 0, step * size, static_cast<std::size_t>(size)});
    return to;
  };
  const std::byte* const vector = row ? packed(a.data, a.col_stride, 0) : packed(b.data, b.row_stride, 0);
  const Matrix matrix = dot ? Matrix{packed(b.data, b.row_stride, 1), 1, k, k, 1} : row ? b : a;
  const auto real_dot = [&](auto call, auto type) {
    using T = decltype(type);
    *reinterpret_cast<T*>(out) =
        T{0} + call(k, reinterpret_cast<const T*>(vector), 1, reinterpret_cast<const T*>(matrix.data), 1);
  };
  if (dot && computed_ == Dtype::float32) return real_dot(blas_->sdot, float{});
  if (dot && computed_ == Dtype::float64) return real_dot(blas_->ddot, double{});
  // As it lies: rows of the memory, whichever of its axes that is.
  const bool by_rows = dot || (row ? right_ : left_).matrix.fits_rows();
  const std::int64_t lines = by_rows ? matrix.rows : matrix.cols, length = by_rows ? matrix.cols : matrix.rows;
  const int ld = leading(by_rows ? matrix.row_stride : matrix.col_stride, length);
  const int turned = !dot && by_rows == row ? Blas::transposed : Blas::plain;
  const int y_step = static_cast<int>(row ? 1 : std::max<std::int64_t>(1, stride));
  const std::int64_t count = row ? b.cols : a.rows;
  // What is added to has to be there: a factor of 0 is no promise that memory with any values is not read.
  for (std::int64_t i = 0; i < count; ++i) std::memset(out + i * y_step * size, 0, static_cast<std::size_t>(size));
  const auto real = [&](auto call, auto type) {
    using T = decltype(type);
    call(Blas::row_major_order, turned, static_cast<int>(lines), static_cast<int>(length), T{1},
         reinterpret_cast<const T*>(matrix.data), ld, reinterpret_cast<const T*>(vector), 1, T{1},
         reinterpret_cast<T*>(out), y_step);
  };
  const auto complex = [&](auto call, auto type) {
    const decltype(type) one[2] = {1, 0};
    call(Blas::row_major_order, turned, static_cast<int>(lines), static_cast<int>(length), one, matrix.data, ld, vector,
         1, one, out, y_step);
  };
  switch (computed_) {
    case Dtype::float32:
      return real(blas_->sgemv, float{});
    case Dtype::float64:
      return real(blas_->dgemv, double{});
    case Dtype::complex64:
      return complex(blas_->cgemv, float{});
    default:
      return complex(blas_->zgemv, double{});
  }
}

/// Integers wrap, so unsigned arithmetic gives every width's result.
template <class U>
void Product::integer_gemm(const Matrix& a, const Matrix& b, std::byte* out, std::int64_t stride) {
  using W = std::common_type_t<U, unsigned>;  // a product of two uint16 would overflow int
  const U* x = reinterpret_cast<const U*>(a.data);
  const U* y = reinterpret_cast<const U*>(b.data);
  U* z = reinterpret_cast<U*>(out);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    U* row = z + i * stride;
    std::fill_n(row, b.cols, U{0});
    for (std::int64_t p = 0; p < a.cols; ++p) {
      const W s = x[i * a.row_stride + p * a.col_stride];
      const U* from = y + p * b.row_stride;
      for (std::int64_t j = 0; j < b.cols; ++j)
        row[j] = static_cast<U>(row[j] + static_cast<U>(s * W{from[j * b.col_stride]}));
    }
  }
}

void Product::describe(GemmReport& r, int threads) const {
  const Matrix &a = left_.matrix, &b = right_.matrix;
  if (count_ == 0 || a.cols == 0) return;
  const bool own = kind(dtype_) == Kind::integer;
  r.routine = own ? "integer loops of Hyalite"
                  : std::string(1, "sdcz"[static_cast<int>(computed_) - static_cast<int>(Dtype::float32)]) + "gemm";
  if (!own) r.library = blas_->config();
  r.tiles = std::to_string(tiles()) + " of at most " + std::to_string(std::min(grid_.height, grid_.rows)) + " x " +
            std::to_string(std::min(grid_.width, grid_.cols));
  if (parts() > 1) r.tiles += ", sums in " + std::to_string(parts()) + " parts";
  r.threads = static_cast<int>(std::min<std::int64_t>(threads, tiles() * parts()));
  // A complex product is four of reals and two sums, and adding it two more.
  r.operations = (is_complex(dtype_) ? 8.0 : 2.0) * static_cast<double>(a.rows) * static_cast<double>(a.cols) *
                 static_cast<double>(b.cols) * static_cast<double>(count_);
}

void matmul(const TensorImpl& a, const TensorImpl& b, TensorImpl& out, GemmReport* report) {
  const Product p(a, b, out.shape());
  bool finished = true;
  if (p.is_large()) {
    const Blocking released;
    threads_detail::last_threads = 1;
    finished = p.compute_all(out.address());
  } else {
    finished = p.compute_all(out.address());
  }
  if (!finished) throw Interrupted("interrupted; the unfinished result is dropped");
  if (report != nullptr) p.describe(*report, p.is_large() ? num_threads() : 1);
}

}  // namespace hyalite::cpu
