/// Tiles by element size; what is contiguous along either axis is moved by whole rows or small squares.
#include "compute/cpu/gather.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hyalite::cpu {
namespace {

#if defined(__SSE2__)
/// One aligned cache line, past the caches.
void stream_line(std::byte* to, const void* from) {
  for (int i = 0; i < 4; ++i) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, _mm_load_si128(static_cast<const __m128i*>(from) + i));
  }
}
#else
void stream_line(std::byte* to, const void* from) { std::memcpy(to, from, 64); }
#endif

struct Bytes16 {
  std::uint64_t a, b;
};

template <class T>
T get(const std::byte* p) {
  T x;
  std::memcpy(&x, p, sizeof(T));
  return x;
}

/// A square at a time, so that both sides are read and written by whole cache lines.
template <class T, bool gathering>
void transpose(std::byte* to, const std::byte* from, const Tile& t) {
  constexpr std::int64_t square = 16;
  for (std::int64_t r0 = 0; r0 < t.rows; r0 += square) {
    const std::int64_t r1 = r0 + square < t.rows ? r0 + square : t.rows;
    for (std::int64_t c = 0; c < t.cols; ++c) {
      for (std::int64_t r = r0; r < r1; ++r) {
        const std::int64_t strided = r * t.row_stride + c * t.col_stride;
        const std::int64_t dense = (r * t.cols + c) * static_cast<std::int64_t>(sizeof(T));
        std::memcpy(to + (gathering ? dense : strided), from + (gathering ? strided : dense), sizeof(T));
      }
    }
  }
}

/// Every second element, or all in reverse order, of 32 bits: shuffled four at a time. What is left over, the caller
/// moves.
template <int step>
std::int64_t gather_quads(std::byte* to, const std::byte* from, std::int64_t n) {
  typedef std::uint32_t V __attribute__((vector_size(16)));
  std::int64_t c = 0;
  // The last element of a vector of pairs may lie past the operand's end: one quad fewer.
  for (; c + 4 < n; c += 4) {
    V r;
    if constexpr (step == 2) {
      r = __builtin_shufflevector(get<V>(from + c * 8), get<V>(from + c * 8 + 16), 0, 2, 4, 6);
    } else {
      const V x = get<V>(from - c * 4 - 12);
      r = __builtin_shufflevector(x, x, 3, 2, 1, 0);
    }
    std::memcpy(to + c * 4, &r, sizeof r);
  }
  return c;
}

template <class T, bool gathering>
void move(std::byte* to, const std::byte* from, const Tile& t) {
  constexpr std::int64_t size = sizeof(T);
  if (t.col_stride == size) {
    for (std::int64_t r = 0; r < t.rows; ++r) {
      const std::int64_t strided = r * t.row_stride, dense = r * t.cols * size;
      std::memcpy(to + (gathering ? dense : strided), from + (gathering ? strided : dense), t.cols * size);
    }
    return;
  }
  if (t.row_stride == size && t.rows > 1) return transpose<T, gathering>(to, from, t);
  for (std::int64_t r = 0; r < t.rows; ++r) {
    const std::int64_t row = r * t.row_stride;
    const std::int64_t dense = r * t.cols * size;
    if (gathering && t.col_stride == 0) {
      const T x = get<T>(from + row);
      for (std::int64_t c = 0; c < t.cols; ++c) std::memcpy(to + dense + c * size, &x, size);
      continue;
    }
    std::int64_t c = 0;
    if constexpr (gathering && size == 4) {
      if (t.col_stride == 8) c = gather_quads<2>(to + dense, from + row, t.cols);
      if (t.col_stride == -4) c = gather_quads<-1>(to + dense, from + row, t.cols);
    }
    for (; c < t.cols; ++c) {
      const std::int64_t strided = row + c * t.col_stride;
      std::memcpy(to + (gathering ? dense + c * size : strided), from + (gathering ? strided : dense + c * size), size);
    }
  }
}

template <bool gathering>
void by_size(std::byte* to, const std::byte* from, const Tile& t) {
  switch (t.size) {
    case 1:
      return move<std::uint8_t, gathering>(to, from, t);
    case 2:
      return move<std::uint16_t, gathering>(to, from, t);
    case 4:
      return move<std::uint32_t, gathering>(to, from, t);
    case 8:
      return move<std::uint64_t, gathering>(to, from, t);
    default:
      return move<Bytes16, gathering>(to, from, t);
  }
}

}  // namespace

void gather(std::byte* to, const std::byte* from, const Tile& tile) { by_size<true>(to, from, tile); }
void scatter(std::byte* to, const std::byte* from, const Tile& tile) { by_size<false>(to, from, tile); }

namespace {

constexpr std::int64_t line = 64;

/// A square of elements that fills whole cache lines on both sides, turned over in registers or element by element.
template <class T>
struct Square {
  static constexpr std::int64_t edge = line / static_cast<std::int64_t>(sizeof(T));
  alignas(64) T out[edge][edge];

  void load(const std::byte* from, std::int64_t col_stride) {
    if constexpr (sizeof(T) == 4) {
      for (std::int64_t c = 0; c < edge; c += 4) {
        for (std::int64_t r = 0; r < edge; r += 4) quad(from + c * col_stride + r * 4, col_stride, r, c);
      }
    } else {
      for (std::int64_t c = 0; c < edge; ++c) {
        for (std::int64_t r = 0; r < edge; ++r) {
          out[r][c] = get<T>(from + c * col_stride + r * static_cast<std::int64_t>(sizeof(T)));
        }
      }
    }
  }
  /// Four by four, with the compilers' own vectors.
  void quad(const std::byte* from, std::int64_t stride, std::int64_t r, std::int64_t c) {
    typedef std::uint32_t V __attribute__((vector_size(16)));
    const V x0 = get<V>(from), x1 = get<V>(from + stride), x2 = get<V>(from + 2 * stride),
            x3 = get<V>(from + 3 * stride);
    const V low01 = __builtin_shufflevector(x0, x1, 0, 4, 1, 5), low23 = __builtin_shufflevector(x2, x3, 0, 4, 1, 5);
    const V high01 = __builtin_shufflevector(x0, x1, 2, 6, 3, 7), high23 = __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
    const V y[4] = {
        __builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
        __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
    for (int k = 0; k < 4; ++k) std::memcpy(&out[r + k][c], &y[k], sizeof(V));
  }
  void store(std::byte* to, std::int64_t row_stride, bool stream) const {
    for (std::int64_t r = 0; r < edge; ++r) {
      if (stream) {
        stream_line(to + r * row_stride, out[r]);
      } else {
        std::memcpy(to + r * row_stride, out[r], line);
      }
    }
  }
};

template <class T>
void transpose_lines(std::byte* to, const std::byte* from, const Tile& t, bool stream) {
  constexpr std::int64_t edge = Square<T>::edge, size = sizeof(T);
  Square<T> square;
  const std::int64_t rows = t.rows / edge * edge, cols = t.cols / edge * edge;
  auto rest = [&](std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) {
    for (std::int64_t r = r0; r < r1; ++r) {
      for (std::int64_t c = c0; c < c1; ++c) {
        std::memcpy(to + r * t.row_stride + c * size, from + r * size + c * t.col_stride, size);
      }
    }
  };
  for (std::int64_t c = 0; c < cols; c += edge) {
    for (std::int64_t r = 0; r < rows; r += edge) {
      square.load(from + r * size + c * t.col_stride, t.col_stride);
      square.store(to + r * t.row_stride + c * size, t.row_stride, stream);
    }
  }
  rest(rows, t.rows, 0, t.cols);
  rest(0, rows, cols, t.cols);
}

}  // namespace

void transpose_copy(std::byte* to, const std::byte* from, const Tile& t, bool stream) {
  switch (t.size) {
    case 1:
      return transpose_lines<std::uint8_t>(to, from, t, stream);
    case 2:
      return transpose_lines<std::uint16_t>(to, from, t, stream);
    case 4:
      return transpose_lines<std::uint32_t>(to, from, t, stream);
    case 8:
      return transpose_lines<std::uint64_t>(to, from, t, stream);
    default:
      return transpose_lines<Bytes16>(to, from, t, stream);
  }
}

}  // namespace hyalite::cpu
