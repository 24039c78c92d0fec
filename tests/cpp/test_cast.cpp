/// Casts: the small float formats against a search among their values, and the table of loops against single elements.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "compute/cpu/cast.h"
#include "tensor/float_formats.h"

namespace hyalite {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

template <Dtype D>
struct Format {
  static constexpr Dtype dtype = D;
};
using SmallFormats = ::testing::Types<Format<Dtype::float16>, Format<Dtype::bfloat16>, Format<Dtype::float8_e4m3fn>,
                                      Format<Dtype::float8_e5m2>>;

/// The finite values of a format from its definition, ascending from 0; the index is the bit pattern.
template <Dtype D>
std::vector<double> positive_values() {
  constexpr FloatFormat format = float_format<D>;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int end = format.has_infinity ? ((1 << format.exponent_bits) - 1) << format.mantissa_bits
                                      : (1 << (format.exponent_bits + format.mantissa_bits)) - 1;
  std::vector<double> values;
  for (int bits = 0; bits < end; ++bits) {
    const int exponent = bits >> format.mantissa_bits;
    const int fraction = bits & ((1 << format.mantissa_bits) - 1);
    const int significand = exponent == 0 ? fraction : fraction + (1 << format.mantissa_bits);
    values.push_back(std::ldexp(significand, (exponent == 0 ? 1 : exponent) - bias - format.mantissa_bits));
  }
  return values;
}

template <class T>
class SmallFloat : public ::testing::Test {};
TYPED_TEST_SUITE(SmallFloat, SmallFormats);

TYPED_TEST(SmallFloat, DecodeGivesTheDefinedValue) {
  constexpr Dtype D = TypeParam::dtype;
  const auto values = positive_values<D>();
  const unsigned sign = 1u << (8 * itemsize(D) - 1);
  for (unsigned bits = 0; bits < sign; ++bits) {
    const auto plus = static_cast<FloatBits<D>>(bits), minus = static_cast<FloatBits<D>>(bits | sign);
    const double x = decode_float<D>(plus), y = decode_float<D>(minus);
    ASSERT_FALSE(std::signbit(x));
    ASSERT_TRUE(std::signbit(y));
    ASSERT_FALSE(std::signbit(decode_float<D, float>(plus)));
    if (bits < values.size()) {
      ASSERT_EQ(x, values[bits]);
      ASSERT_EQ(y, -values[bits]);
      ASSERT_EQ((decode_float<D, float>(minus)), static_cast<float>(-values[bits]));
    } else if (bits == values.size() && float_format<D>.has_infinity) {
      ASSERT_EQ(x, infinity);
      ASSERT_EQ((decode_float<D, float>(plus)), infinity);
    } else {
      ASSERT_TRUE(std::isnan(x));
      ASSERT_TRUE(std::isnan(decode_float<D, float>(plus)));
    }
  }
}

TYPED_TEST(SmallFloat, EncodeRoundsOnceTiesToEvenAroundEveryTie) {
  constexpr Dtype D = TypeParam::dtype;
  auto values = positive_values<D>();
  const unsigned sign = 1u << (8 * itemsize(D) - 1);
  values.push_back(2 * values.back() - values[values.size() - 2]);  // the tie above the largest overflows
  for (unsigned bits = 0; bits + 1 < values.size(); ++bits) {
    const double tie = (values[bits] + values[bits + 1]) / 2;  // exact: one bit more than the format has
    const auto expect = [&](double x, unsigned want) {
      ASSERT_EQ(encode_float<D>(x), want) << x;
      ASSERT_EQ(encode_float<D>(-x), want | sign) << x;
      if (static_cast<float>(x) != x) return;
      ASSERT_EQ(encode_float<D>(static_cast<float>(x)), want) << x;
      ASSERT_EQ(encode_float<D>(static_cast<float>(-x)), want | sign) << x;
    };
    const auto float_tie = static_cast<float>(tie);
    expect(values[bits], bits);
    expect(std::nextafter(tie, 0), bits);
    expect(std::nextafter(float_tie, 0.0f), bits);
    expect(tie, bits + (bits & 1));
    expect(std::nextafter(float_tie, std::numeric_limits<float>::max()), bits + 1);
    expect(std::nextafter(tie, infinity), bits + 1);
  }
}

TYPED_TEST(SmallFloat, EncodeKeepsNanAndOverflows) {
  constexpr Dtype D = TypeParam::dtype;
  const unsigned sign = 1u << (8 * itemsize(D) - 1);
  const unsigned overflow = FloatLayout<D, std::uint32_t>::overflow;
  for (const double x : {infinity, 1e300, 1e39}) {
    EXPECT_EQ(encode_float<D>(x), overflow);
    EXPECT_EQ(encode_float<D>(-x), overflow | sign);
    EXPECT_EQ(encode_float<D>(static_cast<float>(x)), overflow);
  }
  for (const std::uint64_t payload : {std::uint64_t{1}, std::uint64_t{1} << 51, std::uint64_t{0xFFFFFFFFFFFFF}}) {
    for (const std::uint64_t s : {std::uint64_t{0}, std::uint64_t{1} << 63}) {
      const FloatBits<D> nan = encode_float<D>(std::bit_cast<double>(s | 0x7FF0000000000000 | payload));
      EXPECT_TRUE(std::isnan(decode_float<D>(nan)));
      EXPECT_EQ((nan & sign) != 0, s != 0);
      EXPECT_EQ(encode_float<D>(decode_float<D>(nan)), nan);
    }
  }
}

TYPED_TEST(SmallFloat, IntegersRoundOnce) {
  constexpr Dtype D = TypeParam::dtype;
  const auto values = positive_values<D>();
  for (unsigned bits = 1; bits + 1 < values.size(); ++bits) {
    const double tie = (values[bits] + values[bits + 1]) / 2;
    if (tie < 1 || tie >= 0x1p63 || tie != std::floor(tie)) continue;
    const auto x = static_cast<std::int64_t>(tie);
    const auto u = static_cast<std::uint64_t>(x);
    const unsigned sign = 1u << (8 * itemsize(D) - 1);
    EXPECT_EQ(encode_integer<D>(x - 1), bits);
    EXPECT_EQ(encode_integer<D>(x), bits + (bits & 1));
    EXPECT_EQ(encode_integer<D>(x + 1), bits + 1) << x;  // beyond 2^53 float64 cannot tell this from the tie
    EXPECT_EQ(encode_integer<D>(-x - 1), (bits + 1) | sign);
    EXPECT_EQ(encode_integer<D>(-x + 1), bits | sign);
    EXPECT_EQ(encode_integer<D>(u + 1), bits + 1);
    EXPECT_EQ(encode_integer<D>(u - 1), bits);
  }
  EXPECT_EQ(encode_integer<D>(0), 0);
}

TEST(FloatFormats, PublishedCases) {
  // stillwater-sc/universal#1133
  EXPECT_EQ(decode_float<Dtype::bfloat16>(encode_float<Dtype::bfloat16>(0.2691408770292272f)), 0.26953125);
  EXPECT_EQ(decode_float<Dtype::bfloat16>(encode_float<Dtype::bfloat16>(128.5f)), 128);
  EXPECT_EQ(decode_float<Dtype::bfloat16>(encode_float<Dtype::bfloat16>(129.5f)), 130);
  EXPECT_TRUE(
      std::isnan(decode_float<Dtype::bfloat16>(encode_float<Dtype::bfloat16>(std::bit_cast<float>(0x7F800001u)))));
  // halide/Halide#8906, JuliaLang/julia#57809
  EXPECT_EQ(decode_float<Dtype::float16>(encode_float<Dtype::float16>(1 + 0x1p-11 + 0x1p-40)), 1.0009765625);
  EXPECT_EQ(decode_float<Dtype::bfloat16>(encode_float<Dtype::bfloat16>(1 + 0x1p-8 + 0x1p-40)), 1.0078125);
  // jax-ml/ml_dtypes#400, #221
  const auto e4m3 = [](double x) { return decode_float<Dtype::float8_e4m3fn>(encode_float<Dtype::float8_e4m3fn>(x)); };
  EXPECT_EQ(e4m3(4.25), 4);
  EXPECT_EQ(e4m3(4.75), 5);
  EXPECT_EQ(e4m3(464), 448);
  EXPECT_EQ(e4m3(0x1p-10), 0);
  EXPECT_EQ(e4m3(1.5 * 0x1p-9), 0x1p-8);
  EXPECT_TRUE(std::isnan(e4m3(465)));
  EXPECT_TRUE(std::isnan(e4m3(infinity)));
}

// Usable in constant expressions.
static_assert(encode_float<Dtype::float16>(1.0) == 0x3C00 && decode_float<Dtype::float8_e5m2>(0x3C) == 1.0);

// ---- The table ------------------------------------------------------------------------------------------------------

bool allowed(Dtype from, Dtype to) { return !is_complex(from) || is_complex(to) || to == Dtype::boolean; }

/// Elements of a dtype: every bit pattern up to 16 bits; else special values, then random bits.
std::vector<std::byte> sample(Dtype t) {
  const std::size_t size = itemsize(t);
  std::vector<std::byte> bytes;
  const auto add = [&](const auto& x) {
    const auto* p = reinterpret_cast<const std::byte*>(&x);
    bytes.insert(bytes.end(), p, p + sizeof x);
  };
  if (t == Dtype::boolean) {
    for (std::size_t i = 0; i < 300; ++i) bytes.push_back(static_cast<std::byte>(i * i % 7 % 2));
  } else if (size == 1) {
    for (unsigned i = 0; i < 256; ++i) bytes.push_back(static_cast<std::byte>(i));
  } else if (size == 2) {
    for (unsigned i = 0; i < 65536; ++i) add(static_cast<std::uint16_t>(i));
  } else {
    for (const double x : {0.0,     -0.0,    1.0,      -1.5,   127.5,    128.0,     255.5,     256.0,     -2.0,
                           32768.0, 65536.0, 68469.13, 0x1p31, -0x1p31,  0x1p32,    0x1p63,    -0x1p63,   0x1p64,
                           1e38,    -1e300,  1e-40,    5e-324, infinity, -infinity, nan_value, -nan_value}) {
      const Dtype part = real_part(t);
      if (part == Dtype::float32) add(static_cast<float>(x));
      if (part == Dtype::float64) add(x);
    }
    std::mt19937_64 random(7);
    while (bytes.size() < 1000 * size) add(random() >> (random() % 2 * (random() % 64)));
  }
  bytes.resize(bytes.size() / size * size);
  return bytes;
}

std::vector<std::byte> cast_bytes(Dtype from, const std::byte* in, Dtype to, std::size_t n) {
  std::vector<std::byte> out(n * itemsize(to));
  cast(cast_table(), from, in, to, out.data(), n);
  return out;
}

class EveryPair : public ::testing::TestWithParam<int> {
 protected:
  Dtype from() const { return static_cast<Dtype>(GetParam()); }
  template <class Check>
  void for_each_target(Check check) const {
    for (int t = 0; t < dtype_count; ++t) {
      SCOPED_TRACE(std::string(name(from())) + " to " + std::string(name(static_cast<Dtype>(t))));
      if (allowed(from(), static_cast<Dtype>(t))) check(static_cast<Dtype>(t));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Dtypes, EveryPair, ::testing::Range(0, dtype_count),
                         [](const auto& info) { return std::string(name(static_cast<Dtype>(info.param))); });

TEST_P(EveryPair, HasALoopWhereTheCastIsAllowed) {
  const auto hub = static_cast<std::size_t>(hub_of(from()));
  EXPECT_NE(cast_table().widen[GetParam()], nullptr);
  for (int t = 0; t < dtype_count; ++t)
    EXPECT_EQ(cast_table().narrow[hub][t] != nullptr, allowed(from(), static_cast<Dtype>(t)));
}

TEST_P(EveryPair, GivesTheSameBitsThroughTheHub) {
  const auto in = sample(from());
  const std::size_t n = in.size() / itemsize(from());
  std::vector<std::byte> wide(n * 16);
  cast_table().widen[GetParam()](in.data(), wide.data(), n);
  for_each_target([&](Dtype to) {
    // Same format: bits are copied, so a signalling NaN stays one; the hub makes it quiet.
    if (from() == to || (from() == Dtype::float32 && to == Dtype::complex64)) return;
    std::vector<std::byte> out(n * itemsize(to));
    cast_table().narrow[static_cast<std::size_t>(hub_of(from()))][static_cast<int>(to)](wide.data(), out.data(), n);
    EXPECT_EQ(cast_bytes(from(), in.data(), to, n), out);
  });
}

TEST_P(EveryPair, GivesTheSameBitsAtEveryLengthAndPosition) {
  const auto in = sample(from());
  const std::size_t size = itemsize(from());
  for_each_target([&](Dtype to) {
    const auto whole = cast_bytes(from(), in.data(), to, 200);
    for (std::size_t n = 0; n <= 130; ++n) {
      const std::size_t start = n % 70;
      std::vector<std::byte> shifted(n * size + 1), out(n * itemsize(to) + 2, std::byte{0xA5});
      if (n != 0) std::memcpy(shifted.data() + 1, in.data() + start * size, n * size);
      cast(cast_table(), from(), shifted.data() + 1, to, out.data() + 1, n);
      const std::size_t first = start * itemsize(to);
      ASSERT_TRUE(std::equal(out.begin() + 1, out.end() - 1, whole.begin() + static_cast<std::ptrdiff_t>(first)));
      ASSERT_EQ(out.front(), std::byte{0xA5});
      ASSERT_EQ(out.back(), std::byte{0xA5});
    }
  });
}

TEST_P(EveryPair, OfOneSizeWorksInPlace) {
  const auto in = sample(from());
  const std::size_t n = in.size() / itemsize(from());
  for_each_target([&](Dtype to) {
    if (itemsize(to) != itemsize(from())) return;
    auto both = in;
    cast(cast_table(), from(), both.data(), to, both.data(), n);
    EXPECT_EQ(both, cast_bytes(from(), in.data(), to, n));
  });
}

template <Dtype from, Dtype to>
void expect_encoded() {
  using Float = std::conditional_t<from == Dtype::float32, float, double>;
  const auto in = sample(from);
  const std::size_t n = in.size() / sizeof(Float);
  const auto out = cast_bytes(from, in.data(), to, n);
  for (std::size_t i = 0; i < n; ++i) {
    Float x;
    FloatBits<to> bits;
    std::memcpy(&x, in.data() + i * sizeof x, sizeof x);
    std::memcpy(&bits, out.data() + i * sizeof bits, sizeof bits);
    ASSERT_EQ(bits, encode_float<to>(x)) << x << " as " << name(from) << " to " << name(to);
  }
}

TYPED_TEST(SmallFloat, CastGivesTheBitsOfEncode) {
  expect_encoded<Dtype::float32, TypeParam::dtype>();
  expect_encoded<Dtype::float64, TypeParam::dtype>();
}

template <class To, class From>
std::vector<To> cast_values(Dtype from, const std::vector<From>& in, Dtype to) {
  std::vector<To> out(in.size());
  cast(cast_table(), from, in.data(), to, out.data(), in.size());
  return out;
}

template <class T>
void expect_saturation(Dtype to) {
  const auto low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  const T minus_two = std::is_signed_v<T> ? static_cast<T>(-2) : T{0};
  const std::vector<double> in = {nan_value, -nan_value, infinity, -infinity, 0x1p70, -0x1p70, -2.9, -0.0, 100.99};
  const std::vector<T> want = {0, 0, high, low, high, low, minus_two, 0, 100};
  EXPECT_EQ(cast_values<T>(Dtype::float64, in, to), want) << name(to);
  EXPECT_EQ(cast_values<T>(Dtype::float32, std::vector<float>(in.begin(), in.end()), to), want) << name(to);
  // The limits themselves, and one step outside, where float64 can hold them.
  if constexpr (sizeof(T) < 8) {
    const std::vector<double> edges = {high + 0.5, high + 1.0, high - 0.5, low - 0.5, low - 1.0};
    const std::vector<T> at_edges = {high, high, static_cast<T>(high - 1), low, low};
    EXPECT_EQ(cast_values<T>(Dtype::float64, edges, to), at_edges) << name(to);
  }
}

TEST(Cast, FloatToIntegerSaturatesAndNanGivesZero) {
  expect_saturation<std::int8_t>(Dtype::int8);
  expect_saturation<std::int16_t>(Dtype::int16);
  expect_saturation<std::int32_t>(Dtype::int32);
  expect_saturation<std::int64_t>(Dtype::int64);
  expect_saturation<std::uint8_t>(Dtype::uint8);
  expect_saturation<std::uint16_t>(Dtype::uint16);
  expect_saturation<std::uint32_t>(Dtype::uint32);
  expect_saturation<std::uint64_t>(Dtype::uint64);
  // Highway 1.0.3 demotes 0x8000 to uint8 0.
  EXPECT_EQ(cast_values<std::uint8_t>(Dtype::float32, std::vector<float>{32768, 65536, 256, 255}, Dtype::uint8),
            (std::vector<std::uint8_t>{255, 255, 255, 255}));
}

TEST(Cast, IntegerWrapsAndRoundsOnce) {
  EXPECT_EQ(cast_values<std::int8_t>(Dtype::int32, std::vector<std::int32_t>{300, -129, 128}, Dtype::int8),
            (std::vector<std::int8_t>{44, 127, -128}));
  EXPECT_EQ(cast_values<std::uint64_t>(Dtype::int8, std::vector<std::int8_t>{-1}, Dtype::uint64),
            (std::vector<std::uint64_t>{~std::uint64_t{0}}));
  // Through float64 the first would be a tie and round down.
  const std::vector<std::int64_t> in = {(std::int64_t{1} << 60) + (std::int64_t{1} << 36) + 1, -1};
  EXPECT_EQ(cast_values<float>(Dtype::int64, in, Dtype::float32), (std::vector<float>{0x1.000002p60f, -1.0f}));
  EXPECT_EQ(cast_values<float>(Dtype::uint64, std::vector<std::uint64_t>{~std::uint64_t{0}}, Dtype::float32),
            (std::vector<float>{0x1p64f}));
}

TEST(Cast, BoolIsNotZeroAndNanIsTrue) {
  const std::vector<double> in = {0.0, -0.0, nan_value, 5e-324, -infinity};
  EXPECT_EQ(cast_values<std::uint8_t>(Dtype::float64, in, Dtype::boolean), (std::vector<std::uint8_t>{0, 0, 1, 1, 1}));
  const std::vector<float> pairs = {0, -0.0f, 0, 1, 2, 0, 0, NAN};
  std::vector<std::uint8_t> out(4);
  cast(cast_table(), Dtype::complex64, pairs.data(), Dtype::boolean, out.data(), 4);
  EXPECT_EQ(out, (std::vector<std::uint8_t>{0, 1, 1, 1}));
}

TEST(Cast, ComplexToRealThrowsAndNamesReal) {
  for (const Dtype from : {Dtype::complex64, Dtype::complex128}) {
    for (int t = 0; t < dtype_count; ++t) {
      const auto to = static_cast<Dtype>(t);
      if (allowed(from, to)) continue;
      const double in[2] = {1, 2};
      double out[2];
      EXPECT_THROW(first_that_does_not_survive(cast_table(), from, in, to, 0), TypeError);
      try {
        cast(cast_table(), from, in, to, out, 1);
        FAIL() << name(to);
      } catch (const TypeError& e) {
        EXPECT_EQ(std::string(e.what()), "astype(): " + std::string(name(from)) + " to " + std::string(name(to)) +
                                             " would drop the imaginary part; write hl.real(x).astype(hl." +
                                             std::string(name(to)) + ")");
      }
    }
  }
}

template <class From>
std::int64_t first_lost(Dtype from, Dtype to, From value) {
  std::vector<From> in(700, From{1});
  in[613] = in[650] = value;
  return first_that_does_not_survive(cast_table(), from, in.data(), to, in.size());
}

TEST(Cast, CheckFindsTheFirstValueThatChanges) {
  constexpr std::int64_t lost = 613, none = -1;
  using enum Dtype;
  EXPECT_EQ(first_lost(float32, int32, NAN), lost);
  EXPECT_EQ(first_lost(float64, int64, infinity), lost);
  EXPECT_EQ(first_lost(float64, int64, 0x1p63), lost);
  EXPECT_EQ(first_lost(float64, int64, -0x1p63), none);
  EXPECT_EQ(first_lost(float64, uint64, 0x1p64), lost);
  EXPECT_EQ(first_lost(float64, int8, 1.5), lost);
  EXPECT_EQ(first_lost(float64, int8, -0.0), none);
  EXPECT_EQ(first_lost(float64, float32, 1e300), lost);
  EXPECT_EQ(first_lost(float64, float32, 0.1), lost);
  EXPECT_EQ(first_lost(float64, float32, nan_value), none);
  EXPECT_EQ(first_lost(float64, float8_e4m3fn, 1000.0), lost);
  EXPECT_EQ(first_lost(float64, complex64, 0.5), none);
  EXPECT_EQ(first_lost(int64, float64, (std::int64_t{1} << 53) + 1), lost);
  EXPECT_EQ(first_lost(int64, float64, std::numeric_limits<std::int64_t>::max()), lost);
  EXPECT_EQ(first_lost(uint64, float32, std::numeric_limits<std::uint64_t>::max()), lost);
  EXPECT_EQ(first_lost(uint64, int64, std::uint64_t{1} << 63), lost);
  EXPECT_EQ(first_lost(int32, uint32, std::int32_t{-7}), lost);
  EXPECT_EQ(first_lost(int64, boolean, std::int64_t{2}), lost);
  EXPECT_EQ(first_lost(uint8, float16, std::uint8_t{255}), none);
  EXPECT_EQ(first_lost(uint16, float16, std::uint16_t{65535}), lost);
}

}  // namespace
}  // namespace hyalite
