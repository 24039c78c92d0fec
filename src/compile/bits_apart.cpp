/// Bits as numbers that count what lies between them.
#include "compile/bits_apart.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "compute/backend.h"

namespace hyalite {
namespace {

struct Format {
  std::size_t size;        ///< of a part
  bool is_signed_number;   ///< two's complement
  std::uint64_t infinity;  ///< of sign and magnitude: what is above is a NaN; 0: no float

  bool is_float() const { return infinity != 0; }
};

Format format_of(Dtype t) {
  const std::size_t size = itemsize(real_part(t));
  switch (real_part(t)) {
    case Dtype::float64:
      return {size, false, 0x7ff0000000000000};
    case Dtype::float32:
      return {size, false, 0x7f800000};
    case Dtype::float16:
      return {size, false, 0x7c00};
    case Dtype::bfloat16:
      return {size, false, 0x7f80};
    case Dtype::float8_e5m2:
      return {size, false, 0x7c};
    case Dtype::float8_e4m3fn:
      return {size, false, 0x7e};
    default:
      return {size, is_signed_integer(t), 0};
  }
}

std::uint64_t bits_at(const std::byte* p, std::size_t size) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, p, size);
  return bits;
}

}  // namespace

BitsApart bits_apart(const TensorImpl& a, const TensorImpl& b, bool nans_alike) {
  const Format f = format_of(a.dtype());
  const std::size_t whole = itemsize(a.dtype());
  const std::uint64_t top = std::uint64_t{1} << (8 * f.size - 1);
  const auto is_nan = [&](std::uint64_t bits) { return f.is_float() && (bits & (top - 1)) > f.infinity; };
  const auto number = [&](std::uint64_t bits) -> __int128 {
    if (f.is_float()) return (bits & top) != 0 ? -static_cast<__int128>(bits & (top - 1)) : static_cast<__int128>(bits);
    return f.is_signed_number && (bits & top) != 0 ? static_cast<__int128>(bits) - 2 * static_cast<__int128>(top)
                                                   : static_cast<__int128>(bits);
  };
  BitsApart all;
  const std::byte *x0 = host_address(a), *y0 = host_address(b);
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const std::byte *x = x0 + static_cast<std::size_t>(i) * whole, *y = y0 + static_cast<std::size_t>(i) * whole;
    if (std::memcmp(x, y, whole) == 0) continue;
    bool differs = false;
    std::int64_t ulp = 0;
    for (std::size_t part = 0; part < whole; part += f.size) {
      const std::uint64_t p = bits_at(x + part, f.size), q = bits_at(y + part, f.size);
      if (p == q || (nans_alike && is_nan(p) && is_nan(q))) continue;
      differs = true;
      const __int128 between = number(p) > number(q) ? number(p) - number(q) : number(q) - number(p);
      constexpr auto most = std::numeric_limits<std::int64_t>::max();
      ulp = std::max(ulp, between > most ? most : static_cast<std::int64_t>(between));
    }
    if (!differs) continue;
    if (all.count++ == 0) {
      all.first = i;
      all.ulp = ulp;
    }
    all.largest_ulp = std::max(all.largest_ulp, ulp);
  }
  return all;
}

}  // namespace hyalite
