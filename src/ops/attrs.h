/// Attributes of an op at run time: one list of fields gives keywords, stubs, JSON and docs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "hyalite/attribute.h"

namespace hyalite {

enum class AttrType : std::uint8_t {
  number,   ///< float, a kernel argument
  integer,  ///< int
  flag,     ///< bool
  dtype,    ///< dtype or None
  ints,     ///< a tuple of ints, or one
  axes,     ///< None, an int or a tuple of ints
  chain,    ///< the views from a base to a tensor; internal
};

/// One attribute as the front end sees it. `required` has no default; `fallback` is the default of a number, integer
/// or flag; dtype, ints and axes default to None.
struct AttrField {
  std::string_view name;
  AttrType type;
  double fallback = 0;
  bool required = false;
};

inline bool is_none(const Attrs& a, int i) { return std::holds_alternative<std::monostate>(a[i]); }
inline const std::vector<std::int64_t>& ints(const Attrs& a, int i) {
  return std::get<std::vector<std::int64_t>>(a[i]);
}
inline Axes axes(const Attrs& a) { return is_none(a, 0) ? Axes() : Axes(ints(a, 0)); }
inline std::int64_t integer(const Attrs& a, int i) { return std::get<std::int64_t>(a[i]); }
inline bool flag(const Attrs& a, int i) { return std::get<bool>(a[i]); }
inline Dtype dtype(const Attrs& a, int i) { return std::get<Dtype>(a[i]); }

inline const std::shared_ptr<const ViewChain>& chain(const Attrs& a, int i) {
  return std::get<std::shared_ptr<const ViewChain>>(a[i]);
}

}  // namespace hyalite
