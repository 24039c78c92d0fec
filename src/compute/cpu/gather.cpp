/// Tiles by element size; what is contiguous along either axis is moved by whole rows or small squares.
#include "compute/cpu/gather.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hyalite::cpu {
namespace {

typedef std::uint32_t Quad __attribute__((vector_size(16)));

/// Sixteen aligned bytes, past the caches where there is a way.
[[gnu::always_inline]] inline void stream_quad(std::byte* to, Quad x) {
#if defined(__SSE2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), reinterpret_cast<__m128i>(x));
#else
  std::memcpy(to, &x, sizeof x);
#endif
}

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
  std::int64_t c = 0;
  // The last element of a vector of pairs may lie past the operand's end: one quad fewer.
  for (; c + 4 < n; c += 4) {
    Quad r;
    if constexpr (step == 2) {
      r = __builtin_shufflevector(get<Quad>(from + c * 8), get<Quad>(from + c * 8 + 16), 0, 2, 4, 6);
    } else {
      const Quad x = get<Quad>(from - c * 4 - 12);
      r = __builtin_shufflevector(x, x, 3, 2, 1, 0);
    }
    std::memcpy(to + c * 4, &r, sizeof r);
  }
  return c;
}

/// `n` elements, `stride` bytes apart.
template <class T>
void gather_row(std::byte* to, const std::byte* from, std::int64_t n, std::int64_t stride) {
  constexpr std::int64_t size = sizeof(T);
  std::int64_t c = 0;
  if constexpr (size == 4) {
    if (stride == 8) c = gather_quads<2>(to, from, n);
    if (stride == -4) c = gather_quads<-1>(to, from, n);
  }
  for (; c < n; ++c) std::memcpy(to + c * size, from + c * stride, size);
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
    if constexpr (gathering) {
      gather_row<T>(to + dense, from + row, t.cols, t.col_stride);
      continue;
    }
    for (std::int64_t c = 0; c < t.cols; ++c) {
      std::memcpy(to + row + c * t.col_stride, from + dense + c * size, size);
    }
  }
}

/// f of an element of so many bytes.
template <class F>
auto by_size(std::size_t size, F f) {
  switch (size) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    case 8:
      return f(std::uint64_t{});
    default:
      return f(Bytes16{});
  }
}

}  // namespace

RowGather row_gather(std::size_t size) {
  return by_size(size, []<class T>(T) -> RowGather { return gather_row<T>; });
}

void gather(std::byte* to, const std::byte* from, const Tile& tile) {
  by_size(tile.size, [&]<class T>(T) { move<T, true>(to, from, tile); });
}
void scatter(std::byte* to, const std::byte* from, const Tile& tile) {
  by_size(tile.size, [&]<class T>(T) { move<T, false>(to, from, tile); });
}

namespace {

constexpr std::int64_t line = 64;

/// A square of elements that fills whole cache lines on both sides.
template <class T>
constexpr std::int64_t edge_of = line / static_cast<std::int64_t>(sizeof(T));

/// Turned over in a buffer.
template <class T, bool stream>
void turn_square(std::byte* to, std::int64_t row_stride, const std::byte* from, std::int64_t col_stride) {
  constexpr std::int64_t edge = edge_of<T>, quads = line / sizeof(Quad);
  alignas(line) T out[edge][edge];
  for (std::int64_t c = 0; c < edge; ++c) {
    for (std::int64_t r = 0; r < edge; ++r) {
      out[r][c] = get<T>(from + c * col_stride + r * static_cast<std::int64_t>(sizeof(T)));
    }
  }
  for (std::int64_t r = 0; r < edge; ++r) {
    const auto* row = reinterpret_cast<const std::byte*>(out[r]);
    if constexpr (stream) {
      for (std::int64_t k = 0; k < quads; ++k) stream_quad(to + r * row_stride + k * 16, get<Quad>(row + k * 16));
    } else {
      std::memcpy(to + r * row_stride, row, line);
    }
  }
}

/// Four vectors of four, turned over: y[k] has element k of each.
[[gnu::always_inline]] inline void turn(Quad (&y)[4], const std::byte* from, std::int64_t stride) {
  const Quad x0 = get<Quad>(from), x1 = get<Quad>(from + stride), x2 = get<Quad>(from + 2 * stride),
             x3 = get<Quad>(from + 3 * stride);
  const Quad low01 = __builtin_shufflevector(x0, x1, 0, 4, 1, 5), low23 = __builtin_shufflevector(x2, x3, 0, 4, 1, 5);
  const Quad high01 = __builtin_shufflevector(x0, x1, 2, 6, 3, 7), high23 = __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
  y[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  y[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  y[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  y[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

/// 32 bits, four rows at a time in registers. Few instructions, so that the next square's lines are asked for while
/// this one's are under way.
template <bool stream>
void turn_square_32(std::byte* to, std::int64_t row_stride, const std::byte* from, std::int64_t col_stride) {
#pragma GCC unroll 4
  for (int r = 0; r < 16; r += 4) {
    Quad y[4][4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) turn(y[c], from + 4 * c * col_stride + 4 * r, col_stride);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      std::byte* row = to + (r + k) * row_stride;
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        if constexpr (stream) {
          stream_quad(row + 16 * c, y[c][k]);
        } else {
          std::memcpy(row + 16 * c, &y[c][k], sizeof(Quad));
        }
      }
    }
  }
}

template <class T, bool stream>
void transpose_lines(std::byte* to, const std::byte* from, const Tile& t) {
  constexpr std::int64_t edge = edge_of<T>, size = sizeof(T);
  const std::int64_t rows = t.rows / edge * edge, cols = t.cols / edge * edge;
  auto rest = [&](std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) {
    for (std::int64_t r = r0; r < r1; ++r) {
      for (std::int64_t c = c0; c < c1; ++c) {
        std::memcpy(to + r * t.row_stride + c * size, from + r * size + c * t.col_stride, size);
      }
    }
  };
  for (std::int64_t r = 0; r < rows; r += edge) {
    for (std::int64_t c = 0; c < cols; c += edge) {
      std::byte* square = to + r * t.row_stride + c * size;
      const std::byte* source = from + r * size + c * t.col_stride;
      if constexpr (size == 4) {
        turn_square_32<stream>(square, t.row_stride, source, t.col_stride);
      } else {
        turn_square<T, stream>(square, t.row_stride, source, t.col_stride);
      }
    }
  }
  rest(rows, t.rows, 0, t.cols);
  rest(0, rows, cols, t.cols);
}

}  // namespace

void transpose_copy(std::byte* to, const std::byte* from, const Tile& t, bool stream) {
  by_size(t.size,
          [&]<class T>(T) { stream ? transpose_lines<T, true>(to, from, t) : transpose_lines<T, false>(to, from, t); });
}

}  // namespace hyalite::cpu
