/// The attributes of an op by its place in the list, from the arguments of its C++ function.
#pragma once

#include "ops/all.h"

namespace hyalite::detail {

template <class List>
struct AttributesOf;
template <class... Ops>
struct AttributesOf<OpList<Ops...>> {
  template <std::size_t index>
  using Op = std::tuple_element_t<index, std::tuple<Ops...>>;
};

template <class T>
const T& attribute(const T& v) {
  return v;
}
inline Ints attribute(const Shape& v) { return v; }
inline std::optional<Ints> attribute(const Axes& v) { return from_axes(v); }

/// Each argument becomes the field in its place.
template <std::size_t index, class... Args>
AttrRef attributes(const Args&... args) {
  using Op = typename AttributesOf<AllOps>::template Op<index>;
  if constexpr (HasAttr<Op>) {
    return Attributes::make(typename Op::template Attr<double>{attribute(args)...});
  } else {
    return Attributes::make(typename Op::Attr{attribute(args)...});
  }
}

}  // namespace hyalite::detail
