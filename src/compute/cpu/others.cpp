/// Products of all elements but one, from products of those before and those behind. Numbers carry an exponent of their
/// own, so that no product on the way leaves the range.
#include "compute/cpu/others.h"

#include <cmath>
#include <complex>
#include <vector>

#include "compute/blocking.h"
#include "compute/cpu/operands.h"
#include "compute/cpu/threads.h"

namespace hyalite::cpu {
namespace {

double size_of(double x) { return std::fabs(x); }
double size_of(std::complex<double> z) { return std::max(std::fabs(z.real()), std::fabs(z.imag())); }
bool is_nothing(double x) { return x == 0 && std::signbit(x); }
bool is_nothing(std::complex<double> z) { return z == 0.0 && std::signbit(z.real()); }
double scaled(double x, int by) { return std::ldexp(x, by); }
std::complex<double> scaled(std::complex<double> z, int by) {
  return {std::ldexp(z.real(), by), std::ldexp(z.imag(), by)};
}

/// value * 2 ^ exponent. A sum without terms is -0, nothing, and stays so times infinity; other zeros are +0.
template <class V>
struct Wide {
  V value = -V(0);
  std::int64_t exponent = 0;

  /// With the value of usual size, unless it is 0, infinite or NaN.
  static Wide of(V v, std::int64_t exponent = 0) {
    const double size = size_of(v);
    if (size == 0) return {V(0), 0};
    if (size > 0x1p300 || size < 0x1p-300) {
      if (!std::isfinite(size)) return {v, exponent};
      const int e = std::ilogb(size);
      return {scaled(v, -e), exponent + e};
    }
    return {v, exponent};
  }
  friend Wide operator*(Wide a, Wide b) {
    if (is_nothing(a.value) || is_nothing(b.value)) return {};
    return of(a.value * b.value, a.exponent + b.exponent);
  }
  friend Wide operator+(Wide a, Wide b) {
    if (is_nothing(a.value) || (a.value == V(0) && !is_nothing(b.value))) return b;
    if (b.value == V(0)) return a;
    if (a.exponent < b.exponent) std::swap(a, b);
    const std::int64_t apart = b.exponent - a.exponent;
    return of(a.value + scaled(b.value, static_cast<int>(std::max<std::int64_t>(apart, -3000))), a.exponent);
  }
  V number() const {
    const std::int64_t e = std::clamp<std::int64_t>(exponent, -3000, 3000);
    return scaled(value, static_cast<int>(e)) + V(0);
  }
};

/// A product of (x + e1 d1 + e2 d2 + ...) with e * e = 0: the coefficient of each set of the e, by its bits.
template <class V>
class Product {
 public:
  explicit Product(std::size_t sets) : terms_(sets) { terms_[0] = Wide<V>::of(V(1)); }
  void multiply(Wide<V> x, const std::vector<Wide<V>>& directions) {
    for (std::size_t set = terms_.size(); set-- > 0;) {
      Wide<V> sum = terms_[set] * x;
      for (std::size_t a = 0; a < directions.size(); ++a) {
        if ((set >> a & 1) != 0) sum = sum + terms_[set & ~(std::size_t{1} << a)] * directions[a];
      }
      terms_[set] = sum;
    }
  }
  const std::vector<Wide<V>>& terms() const { return terms_; }

 private:
  std::vector<Wide<V>> terms_;
};

template <class V, class T>
void rows(const T* x, const T* directions, T* out, std::int64_t from, std::int64_t to, std::int64_t all, std::int64_t n,
          std::int64_t count) {
  const std::size_t sets = std::size_t{1} << count;
  std::vector<Wide<V>> before(static_cast<std::size_t>(n) * sets), along(static_cast<std::size_t>(count));
  for (std::int64_t row = from; row < to; ++row) {
    const auto load = [&](std::int64_t i) {
      for (std::int64_t a = 0; a < count; ++a) {
        const V d = V(directions[(a * all + row) * n + i]);
        along[static_cast<std::size_t>(a)] = is_nothing(d) ? Wide<V>() : Wide<V>::of(d);
      }
      return Wide<V>::of(V(x[row * n + i]));
    };
    Product<V> product(sets);
    for (std::int64_t i = 0; i < n; ++i) {
      std::copy(product.terms().begin(), product.terms().end(), before.begin() + i * static_cast<std::int64_t>(sets));
      const Wide<V> element = load(i);
      product.multiply(element, along);
    }
    Product<V> behind(sets);
    for (std::int64_t i = n; i-- > 0;) {
      const Wide<V>* left = before.data() + i * static_cast<std::int64_t>(sets);
      Wide<V> sum = left[sets - 1] * behind.terms()[0];
      for (std::size_t set = 1; set < sets; ++set) sum = sum + left[sets - 1 - set] * behind.terms()[set];
      out[row * n + i] = static_cast<T>(sum.number());
      const Wide<V> element = load(i);
      behind.multiply(element, along);
    }
  }
}

template <class V, class T>
void all_rows(const TensorImpl& x, const TensorImpl& directions, TensorImpl& out) {
  const std::int64_t count = directions.shape()[0], n = x.shape()[1], all = x.shape()[0];
  const auto part = [&](std::int64_t from, std::int64_t to) {
    rows<V>(reinterpret_cast<const T*>(x.address()), reinterpret_cast<const T*>(directions.address()),
            reinterpret_cast<T*>(out.address()), from, to, all, n, count);
  };
  if (x.numel() > (1 << 14)) {
    const Blocking released;
    parallel_for(all, part);
  } else {
    part(0, all);
  }
}

}  // namespace

void others(const TensorImpl& x, const TensorImpl& directions, TensorImpl& out) {
  const TensorRef a = dense(x, x.dtype()), b = dense(directions, directions.dtype());
  switch (x.dtype()) {
    case Dtype::float32:
      return all_rows<double, float>(*a, *b, out);
    case Dtype::float64:
      return all_rows<double, double>(*a, *b, out);
    case Dtype::complex64:
      return all_rows<std::complex<double>, std::complex<float>>(*a, *b, out);
    default:
      return all_rows<std::complex<double>, std::complex<double>>(*a, *b, out);
  }
}

}  // namespace hyalite::cpu
