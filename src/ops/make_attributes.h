/// The attributes of an op by its place in the list, from the arguments of its C++ function.
#pragma once

#include "ops/op_info.h"

namespace hyalite::detail {

template <class T>
const T& attribute(const T& v) {
  return v;
}
inline Ints attribute(const Shape& v) { return v; }
inline std::optional<Ints> attribute(const Axes& v) { return from_axes(v); }

/// The op's defaults, with each argument as the field in its place. The op's type, and so its formula, is not needed.
template <class... Args>
AttrRef attributes(int op, const Args&... args) {
  Ref<Attributes> made = Attributes::copy_of(*op_table()[static_cast<std::size_t>(op)].defaults);
  const auto set = [&](int i, auto value) { made->field<decltype(value)>(i) = std::move(value); };
  int i = 0;
  (set(i++, attribute(args)), ...);
  return AttrRef::adopt(made.leak());
}

}  // namespace hyalite::detail
