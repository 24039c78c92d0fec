/// A Python-like number: weak, so it takes the dtype of the tensor it meets.
#pragma once

#include <complex>
#include <concepts>
#include <cstdint>

#include "hyalite/dtype.h"

namespace hyalite {

/// A boolean, integer (of 65 bits: int64 or uint64), float or complex number without a dtype of its own.
struct Scalar {
  Kind kind = Kind::integer;
  bool is_unsigned = false;  ///< `integer` holds a uint64
  std::int64_t integer = 0;
  double re = 0, im = 0;

  Scalar() = default;
  Scalar(bool b) : kind(Kind::boolean), integer(b) {}
  template <std::integral I>
  requires(!std::same_as<I, bool>) Scalar(I i)
      : kind(Kind::integer),
        is_unsigned(std::is_unsigned_v<I> && sizeof(I) == 8 && static_cast<std::int64_t>(i) < 0),
        integer(static_cast<std::int64_t>(i)) {}
  template <std::floating_point F>
  Scalar(F f) : kind(Kind::floating), re(static_cast<double>(f)) {}
  template <class F>
  Scalar(std::complex<F> z) : kind(Kind::complex), re(z.real()), im(z.imag()) {}

  /// The real part as a double, rounded once.
  double real() const {
    if (kind >= Kind::floating) return re;
    return is_unsigned ? static_cast<double>(static_cast<std::uint64_t>(integer)) : static_cast<double>(integer);
  }
};

}  // namespace hyalite
