/// Moves a tile of elements between any strides and a contiguous block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hyalite::cpu {

/// rows x cols elements of `size` bytes; strides in bytes.
struct Tile {
  std::int64_t rows, cols;
  std::int64_t row_stride, col_stride;
  std::size_t size;
};

/// Strided to row-major contiguous.
void gather(std::byte* to, const std::byte* from, const Tile& tile);
using RowGather = void (*)(std::byte* to, const std::byte* from, std::int64_t n, std::int64_t stride);
/// The same for one row of elements of `size` bytes, `stride` bytes apart.
RowGather row_gather(std::size_t size);
/// Row-major contiguous to strided.
void scatter(std::byte* to, const std::byte* from, const Tile& tile);

/// Copies a transposed tile line by line: `from` is contiguous along rows, `to` along columns. With `stream` full,
/// aligned cache lines are written past the caches. `row_stride` is that of `to`, `col_stride` that of `from`.
void transpose_copy(std::byte* to, const std::byte* from, const Tile& tile, bool stream);

}  // namespace hyalite::cpu
