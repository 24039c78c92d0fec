/// The element types, and what each of them is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hyalite {

/// Element type of a tensor. The order is fixed: tables are indexed by it.
enum class Dtype : std::uint8_t {
  boolean,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  complex64,
  complex128,
  float8_e4m3fn,
  float8_e5m2,
};

inline constexpr int dtype_count = 17;

/// Kinds in promotion order: a scalar of a lower kind takes the dtype of the tensor.
enum class Kind : std::uint8_t { boolean, integer, floating, complex };

struct DtypeInfo {
  std::string_view name;  ///< as Python spells it
  std::uint8_t size;      ///< bytes of an element
  Kind kind;
  bool is_signed;
};

inline constexpr std::array<DtypeInfo, dtype_count> dtype_table{{
    {"bool", 1, Kind::boolean, false},
    {"int8", 1, Kind::integer, true},
    {"int16", 2, Kind::integer, true},
    {"int32", 4, Kind::integer, true},
    {"int64", 8, Kind::integer, true},
    {"uint8", 1, Kind::integer, false},
    {"uint16", 2, Kind::integer, false},
    {"uint32", 4, Kind::integer, false},
    {"uint64", 8, Kind::integer, false},
    {"float16", 2, Kind::floating, true},
    {"bfloat16", 2, Kind::floating, true},
    {"float32", 4, Kind::floating, true},
    {"float64", 8, Kind::floating, true},
    {"complex64", 8, Kind::complex, true},
    {"complex128", 16, Kind::complex, true},
    {"float8_e4m3fn", 1, Kind::floating, true},
    {"float8_e5m2", 1, Kind::floating, true},
}};

constexpr const DtypeInfo& info(Dtype t) { return dtype_table[static_cast<std::size_t>(t)]; }
constexpr std::string_view name(Dtype t) { return info(t).name; }
constexpr std::size_t itemsize(Dtype t) { return info(t).size; }
constexpr Kind kind(Dtype t) { return info(t).kind; }
constexpr bool is_signed_integer(Dtype t) { return kind(t) == Kind::integer && info(t).is_signed; }
constexpr bool is_unsigned_integer(Dtype t) { return kind(t) == Kind::integer && !info(t).is_signed; }
constexpr bool is_complex(Dtype t) { return kind(t) == Kind::complex; }
/// Real floating type, float8 included.
constexpr bool is_floating(Dtype t) { return kind(t) == Kind::floating; }
/// A gradient can have this type: real or complex floating, float8 (storage only) excepted.
constexpr bool is_differentiable(Dtype t) {
  return kind(t) >= Kind::floating && t != Dtype::float8_e4m3fn && t != Dtype::float8_e5m2;
}
/// The real type with the precision of `t`'s components.
constexpr Dtype real_part(Dtype t) {
  return t == Dtype::complex64 ? Dtype::float32 : t == Dtype::complex128 ? Dtype::float64 : t;
}

/// A set of dtypes, one bit each.
using DtypeSet = std::uint32_t;
constexpr DtypeSet bit(Dtype t) { return DtypeSet{1} << static_cast<unsigned>(t); }
constexpr bool contains(DtypeSet s, Dtype t) { return (s & bit(t)) != 0; }

}  // namespace hyalite
