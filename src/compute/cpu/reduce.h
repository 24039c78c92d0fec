/// Reductions on the CPU: the driver's interface, and the table of kernels that each instruction set fills.
/// The order of every operation is fixed by docs/reduction.md.
#pragma once

#include <cstdint>

#include "hyalite/dtype.h"

namespace hyalite {

enum class ReduceOp : std::uint8_t { sum, prod, mean, max, min, any, all, argmax, argmin };

/// One reduction. `out` is dense and row-major over the kept axes.
struct ReduceArgs {
  ReduceOp op;
  Dtype dtype;   ///< of the input
  Dtype result;  ///< of the output; see `reduce_supports`
  const void* in;
  void* out;
  int ndim;
  const std::int64_t* shape;
  const std::int64_t* strides;  ///< bytes, any sign, 0 included
  std::uint64_t axes_mask;      ///< bit i: axis i is reduced
};

inline constexpr std::int64_t reduce_block = 1024;  ///< elements of a block
inline constexpr int reduce_lanes = 16;             ///< accumulators of a block
inline constexpr std::int64_t panel_step = 64;      ///< rows of a panel that are added at a time

/// The loops for one operation and one input type. `bits` is what the operation does to each element first: max and min
/// flip it (min is the flipped max), any and all mask it. Accumulators are `acc_size` bytes; every buffer of them has
/// `reduce_padding` elements more than it needs, because the last vector is written whole.
struct ReduceKernel {
  int in_size;
  int acc_size;
  int panel_lanes;  ///< rows of accumulators `panel` needs in its scratch
  int dense_lanes;  ///< rows of accumulators `dense` needs in its scratch
  int min_width;    ///< `panel` needs at least so many outputs

  /// `units` runs of `length` (at most a block) contiguous elements, `unit_stride` bytes apart, to one value each.
  void (*contiguous)(const void* in, std::int64_t unit_stride, std::int64_t length, std::int64_t units, void* out,
                     std::uint64_t bits);
  /// One block (at most) of rows at `row_offsets` (bytes), `width` contiguous elements each, to `width` values.
  void (*panel)(const void* in, const std::int64_t* row_offsets, std::int64_t rows, std::int64_t width, void* scratch,
                void* out, std::uint64_t bits);
  /// The same in parts: rows [first, first + rows) of a block, where all but the last part are `panel_step` rows, and
  /// then the values of `rows` rows. `scratch` is as for `panel`.
  void (*panel_add)(const void* in, const std::int64_t* row_offsets, std::int64_t first, std::int64_t rows,
                    std::int64_t width, void* scratch, std::uint64_t bits);
  /// Rows that one lane takes, at most four, side by side: `begins` if they are its first. Each row of a part is given
  /// once, those of a lane in their order.
  void (*panel_lane)(const void* in, std::int64_t rows, std::int64_t width, int lane, bool begins, void* scratch,
                     std::uint64_t bits);
  void (*panel_end)(std::int64_t rows, std::int64_t width, void* scratch, void* out);
  /// The same for rows that follow each other without a gap; meant for few outputs, even one.
  void (*dense)(const void* in, std::int64_t rows, std::int64_t width, void* scratch, void* out, std::uint64_t bits);
  /// a[i] = a[i] op b[i].
  void (*join)(void* a, const void* b, std::int64_t count);
  /// Joins v[0..count) by the left-balanced tree into v[0]; count >= 1.
  void (*tree)(void* v, std::int64_t count);
  /// Takes value[i] and its index over where it is greater than best[i], or the first NaN (max only, else null).
  void (*select)(void* best, std::int64_t* best_index, const void* value, const std::int64_t* index,
                 std::int64_t count);
  /// The first of `length` contiguous elements equal to `*value`, or the first NaN if that is NaN (max only, else
  /// null).
  std::int64_t (*locate)(const void* in, std::int64_t length, const void* value, std::uint64_t bits);
};

inline constexpr std::int64_t reduce_padding = 64;  ///< lanes of the widest vector

/// Every kernel of one instruction set.
struct ReduceKernels {
  ReduceKernel sum[dtype_count];  ///< by component for complex; no entry for float8
  ReduceKernel max[dtype_count];  ///< real types; float16 and bfloat16 accumulate in float32
  ReduceKernel any[4];            ///< by log2 of the element size: unsigned integers of 1, 2, 4, 8 bytes
  ReduceKernel all[4];            ///< nonzero accumulator: some element was zero
  ReduceKernel prod_int64;
  ReduceKernel prod_float32;
  ReduceKernel prod_float64;
  ReduceKernel prod_complex128;
};

/// Whether `reduce` has the combination. sum, prod: 64-bit integers accumulate for integer results; a floating result
/// has the input's dtype or a wider one of its kind. mean: any floating result for integers, else as sum. max, min: the
/// input's dtype. any, all: boolean. argmax, argmin: int64. No float8, and complex neither for max, min, argmax,
/// argmin.
bool reduce_supports(ReduceOp op, Dtype dtype, Dtype result) noexcept;

/// Computes one reduction with up to `num_threads()` threads; false when the user interrupted it (the output is then
/// unfinished). The combination is one that `reduce_supports`; max, min, argmax and argmin have something to reduce.
bool reduce(const ReduceArgs& args, const ReduceKernels& kernels);

}  // namespace hyalite
