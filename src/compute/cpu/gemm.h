/// Matrix products in tiles of the result: OpenBLAS for floating types, own loops for integers.
#pragma once

#include <string>

#include "compute/cpu/blas.h"
#include "tensor/tensor_impl.h"

namespace hyalite::cpu {

/// What a product did, for the trace.
struct GemmReport {
  std::string routine;    ///< "sgemm"; empty where nothing was multiplied
  std::string library;    ///< with its version and its build; empty for loops of our own
  std::string tiles;      ///< how many, and of what size
  int threads = 0;        ///< that were asked for
  double operations = 0;  ///< multiplications and additions
};

/// Into what a product is cut. It depends on the sizes alone: so a bit depends neither on how many threads there are
/// nor on what is done with a tile next.
struct TileGrid {
  std::int64_t rows, cols;     ///< of a result
  std::int64_t height, width;  ///< of a tile of it
  std::int64_t depth;          ///< of a part of the sums, where there are more: the parts are added in their order

  static TileGrid of(std::int64_t rows, std::int64_t cols, std::int64_t inner, Dtype dtype);
  std::int64_t down() const { return (rows + height - 1) / height; }
  std::int64_t across() const { return (cols + width - 1) / width; }
};

/// a @ b, ready to be computed tile by tile, in any order, by any thread.
class Product {
 public:
  struct Tile {
    std::int64_t batch, row, rows, col, cols;
  };

  /// Broadcast leading axes; vectors as rows and columns. Shapes have been checked.
  Product(const TensorImpl& a, const TensorImpl& b, Dims shape);

  const TileGrid& grid() const { return grid_; }
  std::int64_t tiles() const { return count_ * grid_.down() * grid_.across(); }
  Tile tile(std::int64_t i) const;
  /// In the operands' dtype, `stride` elements from row to row.
  void compute(const Tile& t, std::byte* to, std::int64_t stride) const;
  /// Whether it pays to let other threads help.
  bool is_large() const;
  /// All of it, row-major. False when it was interrupted, if that may be.
  bool compute_all(std::byte* to, bool interruptible = true) const;
  void describe(GemmReport& r, int threads) const;

 private:
  /// One matrix of a batch: address and strides in elements.
  struct Matrix {
    const std::byte* data;
    std::int64_t rows, cols, row_stride, col_stride;
    bool fits_rows() const;
    bool fits_columns() const;
  };
  /// A tensor's last two axes, and how the ones before lie; a vector is a row on the left, a column on the right.
  struct Batch {
    Matrix matrix;
    DimList shape, strides;  // of the leading axes, in elements
    Batch(const TensorImpl& t, bool left);
  };
  template <class U>
  static void integer_gemm(const Matrix& a, const Matrix& b, std::byte* out, std::int64_t stride);
  void float_gemm(const Matrix& a, const Matrix& b, std::byte* out, std::int64_t stride) const;
  void vector_product(const Matrix& a, const Matrix& b, std::byte* out, std::int64_t stride) const;
  std::int64_t parts() const;
  void compute_part(const Tile& t, std::int64_t part, std::byte* to, std::int64_t stride) const;
  void add_part(const Tile& t, const std::byte* part, std::int64_t part_stride, std::byte* to,
                std::int64_t stride) const;
  void convert(const Tile& t, const std::byte* from, std::byte* to, std::int64_t stride) const;
  static TensorRef readable(const TensorImpl& t, Dtype dtype, bool left);
  void check_sizes() const;
  std::int64_t offset(const Batch& b, std::int64_t batch) const;

  Dtype dtype_, computed_;
  TensorRef a_, b_;
  Batch left_, right_;
  DimList lead_;
  std::int64_t count_ = 0;
  TileGrid grid_;
  const Blas* blas_ = nullptr;
};

/// out = a @ b; out is row-major. `report` may be null. Throws Interrupted.
void matmul(const TensorImpl& a, const TensorImpl& b, TensorImpl& out, GemmReport* report = nullptr);
/// The library's name, core and path, for the trace and hl.about().
std::string blas_description();

}  // namespace hyalite::cpu
