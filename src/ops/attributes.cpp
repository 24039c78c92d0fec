/// What attributes of every type have in common: lists of integers, text, hashes.
#include "ops/attributes.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "tensor/device.h"
#include "tensor/shape.h"

namespace hyalite {

std::int64_t* Ints::spill() {
  const pool::Block b = pool::allocate(size_ * sizeof(std::int64_t));
  capacity_ = b.capacity;
  return far_ = static_cast<std::int64_t*>(b.data);
}

void Ints::release() noexcept { pool::release(far_, capacity_); }

void Ints::swap(Ints& o) noexcept {
  // Both forms of the union are plain bytes.
  std::byte mine[sizeof(Ints)];
  std::memcpy(mine, static_cast<void*>(this), sizeof mine);
  std::memcpy(static_cast<void*>(this), static_cast<const void*>(&o), sizeof mine);
  std::memcpy(static_cast<void*>(&o), mine, sizeof mine);
}

bool Ints::operator==(const Ints& o) const { return std::ranges::equal(*this, o); }

Ref<Attributes> Attributes::copy_of(const Attributes& a) {
  return Ref<Attributes>::adopt(build(*a.layout_, [&](void* to) { a.layout_->copy(to, a.values()); }));
}

void Attributes::destroy() const noexcept {
  auto* a = const_cast<Attributes*>(this);
  layout_->destroy(a + 1);
  const std::size_t capacity = capacity_;
  a->~Attributes();
  pool::release(a, capacity);
}

namespace detail {

std::string field_text(double v) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, v).ptr;
  const std::string s(text, end);
  return s.find_first_not_of("-0123456789") == std::string::npos ? s + ".0" : s;
}
std::string field_text(const Scalar& v) {
  switch (v.kind) {
    case Kind::boolean:
      return field_text(v.integer != 0);
    case Kind::integer:
      return v.is_unsigned ? std::to_string(static_cast<std::uint64_t>(v.integer)) : std::to_string(v.integer);
    case Kind::floating:
      return field_text(v.re);
    case Kind::complex:
      return "(" + field_text(v.re) + (std::signbit(v.im) ? "" : "+") + field_text(v.im) + "j)";
  }
  return "";
}
std::string field_text(std::int64_t v) { return std::to_string(v); }
std::string field_text(bool v) { return v ? "True" : "False"; }
std::string field_text(Dtype v) { return std::string(name(v)); }
std::string field_text(Device v) { return to_string(v); }
std::string field_text(const Ints& v) { return to_string(Dims(v)); }
std::string field_text(const std::string& v) { return "'" + v + "'"; }
std::string field_text(const ChainRef&) { return "a chain of views"; }

std::size_t field_hash(double v) { return static_cast<std::size_t>(std::bit_cast<std::uint64_t>(v)); }
std::size_t field_hash(const Scalar& v) {
  const auto kind = static_cast<std::size_t>(v.kind) << 1 | std::size_t{v.is_unsigned};
  return joined_hash(joined_hash(joined_hash(kind, static_cast<std::size_t>(v.integer)), field_hash(v.re)),
                     field_hash(v.im));
}
std::size_t field_hash(Device v) { return joined_hash(static_cast<std::size_t>(v.kind), v.index); }
std::size_t field_hash(const Ints& v) {
  std::size_t h = v.size();
  for (const std::int64_t i : v) h = joined_hash(h, static_cast<std::size_t>(i));
  return h;
}

bool same_field(const Scalar& a, const Scalar& b) {
  return a.kind == b.kind && a.is_unsigned == b.is_unsigned && a.integer == b.integer && same_field(a.re, b.re) &&
         same_field(a.im, b.im);
}
bool same_field(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

}  // namespace detail
}  // namespace hyalite
