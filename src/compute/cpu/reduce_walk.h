/// How a reduction walks memory: collapsed axes, offsets, strided copies, tiled transposition, and scratch that is
/// reused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hyalite/error.h"

namespace hyalite::reduce_walk {

using std::int64_t;
using std::uint64_t;

/// One axis: strides in bytes.
struct Dim {
  int64_t size, stride;
  int64_t out = 0;  // stride in the output, elements
};

/// Drops axes of size 1 and merges neighbours that are one axis in memory.
inline void collapse(std::vector<Dim>& dims) {
  std::vector<Dim> merged;
  for (const Dim& d : dims) {
    if (d.size == 1) continue;
    if (!merged.empty() && merged.back().stride == d.stride * d.size && merged.back().out == d.out * d.size) {
      merged.back() = {merged.back().size * d.size, d.stride, d.out};
    } else {
      merged.push_back(d);
    }
  }
  dims = std::move(merged);
}

inline int64_t product(const std::vector<Dim>& dims, std::size_t from = 0) {
  int64_t n = 1;
  for (std::size_t i = from; i < dims.size(); ++i) n *= dims[i].size;
  return n;
}

/// Byte offset of element `index` of the axes in row-major order; `skip` is an axis left out of the count.
inline int64_t offset_of(const std::vector<Dim>& dims, int64_t index, int skip = -1,
                         int64_t Dim::*stride = &Dim::stride) {
  int64_t offset = 0;
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0 && index != 0; --i) {
    if (i == skip) continue;
    offset += index % dims[i].size * (dims[i].*stride);
    index /= dims[i].size;
  }
  return offset;
}

/// Offsets of `count` consecutive elements, from `first`, of the axes from `from` on.
inline void list_offsets(const std::vector<Dim>& dims, std::size_t from, int64_t first, int64_t count,
                         int64_t* offsets) {
  const std::vector<Dim> inner(dims.begin() + static_cast<std::ptrdiff_t>(from), dims.end());
  if (inner.empty()) {
    offsets[0] = 0;
    return;
  }
  const Dim last = inner.back();
  for (int64_t i = 0; i < count;) {
    const int64_t position = (first + i) % last.size, run = std::min(last.size - position, count - i);
    const int64_t base = offset_of(inner, first + i);
    for (int64_t r = 0; r < run; ++r) offsets[i + r] = base + r * last.stride;
    i += run;
  }
}

template <class T>
void copy_strided(const char* in, int64_t stride, int64_t count, char* out, int64_t out_stride) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(out + i * out_stride, in + i * stride, sizeof(T));
}

struct Wide {
  uint64_t words[2];
};

/// Copies `count` elements between strides (bytes).
inline void copy_elements(int size, const char* in, int64_t stride, int64_t count, char* out, int64_t out_stride) {
  if (stride == size && out_stride == size) {
    std::memcpy(out, in, static_cast<std::size_t>(count * size));
    return;
  }
  switch (size) {
    case 1:
      return copy_strided<std::uint8_t>(in, stride, count, out, out_stride);
    case 2:
      return copy_strided<std::uint16_t>(in, stride, count, out, out_stride);
    case 4:
      return copy_strided<std::uint32_t>(in, stride, count, out, out_stride);
    case 8:
      return copy_strided<uint64_t>(in, stride, count, out, out_stride);
    default:
      return copy_strided<Wide>(in, stride, count, out, out_stride);
  }
}

/// Copies `rows` rows (`row_stride` bytes apart) of `columns` elements, columns adjoining in `out`. The rows are the
/// nearer in memory: a strip of 16 columns keeps its lines in the level-1 cache until every row has been read.
template <class T>
void transpose_strips(const char* in, int64_t row_stride, int64_t rows, int64_t column_stride, int64_t columns,
                      char* out, int64_t out_stride) {
  constexpr int64_t strip = 16;
  for (int64_t c = 0; c < columns; c += strip) {
    const int64_t now = std::min(strip, columns - c);
    const char* from = in + c * column_stride;
    for (int64_t j = 0; j < std::min(strip, columns - c - now); ++j) {
      const char* next = from + (now + j) * column_stride;
      for (int64_t b = 0; b < std::min<int64_t>(rows * std::abs(row_stride), 256); b += 64)
        __builtin_prefetch(next + b);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const char* cell = from + r * row_stride;
      char* to = out + r * out_stride + c * static_cast<int64_t>(sizeof(T));
      for (int64_t j = 0; j < now; ++j) {
        std::memcpy(to + j * static_cast<int64_t>(sizeof(T)), cell + j * column_stride, sizeof(T));
      }
    }
  }
}

inline void transpose(int size, const char* in, int64_t row_stride, int64_t rows, int64_t column_stride,
                      int64_t columns, char* out, int64_t out_stride) {
  const auto run = size == 1   ? transpose_strips<std::uint8_t>
                   : size == 2 ? transpose_strips<std::uint16_t>
                   : size == 4 ? transpose_strips<std::uint32_t>
                   : size == 8 ? transpose_strips<uint64_t>
                               : transpose_strips<Wide>;
  run(in, row_stride, rows, column_stride, columns, out, out_stride);
}

/// The axis with the smallest step; -1 without axes.
inline int nearest(const std::vector<Dim>& dims) {
  int best = -1;
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i) {
    if (best < 0 || std::abs(dims[i].stride) < std::abs(dims[best].stride)) best = i;
  }
  return best;
}

/// A buffer that grows and is reused; its contents are not kept.
class Buffer {
 public:
  char* get(int64_t bytes) {
    if (bytes > size_) {
      data_.reset();
      data_.reset(static_cast<char*>(std::aligned_alloc(64, static_cast<std::size_t>((bytes + 127) / 64 * 64))));
      if (!data_) throw OutOfMemory("a kernel needs " + std::to_string(bytes) + " bytes of scratch");
      size_ = bytes;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> data_;
  int64_t size_ = 0;
};

}  // namespace hyalite::reduce_walk
