/// Attributes of an op at run time: the op's own aggregate of named fields, immutable, counted and hashed. One list of
/// fields gives keywords, stubs, traces and docs.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <concepts>
#include <cstring>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "hyalite/attribute.h"
#include "hyalite/device.h"
#include "hyalite/scalar.h"
#include "tensor/pool.h"
#include "tensor/ref.h"

namespace hyalite {

/// A list of integers, such as a shape; up to six lie inline.
class Ints {
 public:
  static constexpr std::size_t most_inline = 6;

  Ints() {}
  Ints(std::span<const std::int64_t> values) : size_(values.size()) {
    std::int64_t* to = size_ <= most_inline ? near_ : spill();
    std::copy(values.begin(), values.end(), to);
  }
  Ints(const Shape& values) : Ints(std::span<const std::int64_t>(values)) {}
  Ints(const Ints& o) : Ints(std::span<const std::int64_t>(o)) {}
  Ints(Ints&& o) noexcept {
    // Both forms of the union are plain bytes.
    std::memcpy(static_cast<void*>(this), static_cast<const void*>(&o), sizeof o);
    o.size_ = o.capacity_ = 0;
  }
  Ints& operator=(Ints o) noexcept {
    swap(o);
    return *this;
  }
  ~Ints() {
    if (capacity_ != 0) [[unlikely]]
      release();
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::int64_t* data() const { return capacity_ != 0 ? far_ : near_; }
  const std::int64_t* begin() const { return data(); }
  const std::int64_t* end() const { return data() + size_; }
  std::int64_t operator[](std::size_t i) const { return data()[i]; }
  operator std::span<const std::int64_t>() const { return {data(), size_}; }
  operator Shape() const { return {begin(), end()}; }
  /// While there is room inline.
  void add(std::int64_t value) {
    assert(size_ < most_inline);
    near_[size_++] = value;
  }
  bool operator==(const Ints& o) const;

 private:
  void swap(Ints& o) noexcept;
  /// Room for all of it in a block of the pool.
  std::int64_t* spill();
  void release() noexcept;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;  // bytes of the pool's block; 0 when inline
  union {
    std::int64_t near_[most_inline];
    std::int64_t* far_;
  };
};

enum class AttrType : std::uint8_t {
  number,   ///< float, a kernel argument
  scalar,   ///< a number of any kind
  integer,  ///< int
  flag,     ///< bool
  dtype,
  device,
  axis,    ///< None or an int
  ints,    ///< a tuple of ints, or one
  axes,    ///< None, an int or a tuple of ints
  text,    ///< str
  choice,  ///< one of an enum's names
  chain,   ///< the views from a base to a tensor; internal
};

/// The names of an enum that is an attribute, in the order of its values; specialised beside the enum.
template <class E>
inline constexpr std::array<std::string_view, 0> choice_names{};

/// What the type of a field says of it.
template <class T>
struct FieldTraits {
  static_assert(std::is_enum_v<T>, "this type is no attribute");
  static constexpr AttrType type = AttrType::choice;
  static constexpr std::span<const std::string_view> choices{choice_names<T>};
};
#define HYALITE_FIELD(T, kind)                                    \
  template <>                                                     \
  struct FieldTraits<T> {                                         \
    static constexpr AttrType type = AttrType::kind;              \
    static constexpr std::span<const std::string_view> choices{}; \
  };
HYALITE_FIELD(double, number)
HYALITE_FIELD(Scalar, scalar)
HYALITE_FIELD(std::int64_t, integer)
HYALITE_FIELD(bool, flag)
HYALITE_FIELD(Dtype, dtype)
HYALITE_FIELD(std::optional<Dtype>, dtype)
HYALITE_FIELD(std::optional<Device>, device)
HYALITE_FIELD(std::optional<std::int64_t>, axis)
HYALITE_FIELD(Ints, ints)
HYALITE_FIELD(std::optional<Ints>, axes)
HYALITE_FIELD(std::string, text)
HYALITE_FIELD(ChainRef, chain)
#undef HYALITE_FIELD

/// An aggregate of attributes: its fields, `names` for them in their order, and in `required` how many of the first
/// have no default.
template <class A>
concept AttrAggregate = requires {
  A::names.size();
};

template <AttrAggregate A>
inline constexpr int field_count = static_cast<int>(A::names.size());

template <AttrAggregate A>
inline constexpr int required_count = [] {
  if constexpr (requires { A::required; }) {
    return A::required;
  } else {
    return 0;
  }
}();

/// Calls f(index, field) for each field.
template <class A, class F>
void each_field(A& a, F f) {
  constexpr int n = field_count<std::remove_const_t<A>>;
  static_assert(n >= 1 && n <= 6, "add a case");
  if constexpr (n == 1) {
    auto& [p] = a;
    f(0, p);
  } else if constexpr (n == 2) {
    auto& [p, q] = a;
    f(0, p), f(1, q);
  } else if constexpr (n == 3) {
    auto& [p, q, r] = a;
    f(0, p), f(1, q), f(2, r);
  } else if constexpr (n == 4) {
    auto& [p, q, r, s] = a;
    f(0, p), f(1, q), f(2, r), f(3, s);
  } else if constexpr (n == 5) {
    auto& [p, q, r, s, t] = a;
    f(0, p), f(1, q), f(2, r), f(3, s), f(4, t);
  } else {
    auto& [p, q, r, s, t, u] = a;
    f(0, p), f(1, q), f(2, r), f(3, s), f(4, t), f(5, u);
  }
}

/// One attribute as the front end sees it.
struct AttrField {
  std::string_view name;
  AttrType type = AttrType::number;
  std::size_t offset = 0;  ///< in the aggregate, in bytes
  bool required = false;   ///< has no default
  bool optional = false;   ///< may be None
  std::span<const std::string_view> choices;
};

class Attributes;
using AttrRef = Ref<const Attributes>;

/// Its address is the aggregate's type.
template <class A>
inline constexpr char attr_tag = 0;

/// What there is to know of an aggregate without its type.
struct AttrLayout {
  const void* tag = nullptr;  ///< attr_tag
  std::vector<AttrField> fields;
  std::size_t size = 0;
  void (*copy)(void* to, const void* from) = nullptr;
  void (*destroy)(void*) noexcept = nullptr;
  bool (*equal)(const void*, const void*) = nullptr;
  std::size_t (*hash)(const void*) = nullptr;
  std::string (*text)(const void*, int field) = nullptr;  ///< as Python writes the value
};

template <class A>
const AttrLayout& attr_layout();

/// Shared by reference count and never changed once somebody else can see it.
class alignas(16) Attributes {
 public:
  template <AttrAggregate A>
  static AttrRef make(A values) {
    return make_by([&] { return std::move(values); });
  }
  /// From what f returns, which is made where it stays.
  template <class F>
  static AttrRef make_by(F f) {
    using A = decltype(f());
    return AttrRef::adopt(build(attr_layout<A>(), [&](void* to) { new (to) A(f()); }));
  }
  /// A copy, to be changed by its maker.
  static Ref<Attributes> copy_of(const Attributes& a);

  void retain() const noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() const noexcept {
    if (give_count_back(refs_)) destroy();
  }

  template <AttrAggregate A>
  const A& as() const {
    assert(layout_->tag == &attr_tag<A>);
    return *static_cast<const A*>(values());
  }
  /// Null if they are another aggregate.
  template <AttrAggregate A>
  const A* get_if() const {
    return layout_->tag == &attr_tag<A> ? static_cast<const A*>(values()) : nullptr;
  }
  const AttrLayout& layout() const { return *layout_; }
  const void* values() const { return this + 1; }
  /// Field i, of the type T that its AttrType stands for.
  template <class T>
  const T& field(int i) const {
    assert(FieldTraits<T>::type == layout_->fields[static_cast<std::size_t>(i)].type);
    return *reinterpret_cast<const T*>(static_cast<const std::byte*>(values()) +
                                       layout_->fields[static_cast<std::size_t>(i)].offset);
  }
  template <class T>
  T& field(int i) {
    return const_cast<T&>(std::as_const(*this).field<T>(i));
  }
  std::string text(int i) const { return layout_->text(values(), i); }
  std::size_t hash() const { return layout_->hash(values()); }
  bool operator==(const Attributes& o) const {
    return this == &o || (layout_ == o.layout_ && layout_->equal(values(), o.values()));
  }

 private:
  explicit Attributes(const AttrLayout& layout, std::size_t capacity) : capacity_(capacity), layout_(&layout) {}
  template <class F>
  static Attributes* build(const AttrLayout& layout, F construct) {
    const pool::Block b = pool::allocate(sizeof(Attributes) + layout.size);
    auto* a = new (b.data) Attributes(layout, b.capacity);
    try {
      construct(a + 1);
    } catch (...) {
      pool::release(b.data, b.capacity);
      throw;
    }
    return a;
  }
  void destroy() const noexcept;

  mutable std::atomic<std::uint32_t> refs_{1};
  std::size_t capacity_;
  const AttrLayout* layout_;
};

namespace detail {

// The value of one field as text, as a hash.
std::string field_text(double v);
std::string field_text(const Scalar& v);
std::string field_text(std::int64_t v);
std::string field_text(bool v);
std::string field_text(Dtype v);
std::string field_text(Device v);
std::string field_text(const Ints& v);
std::string field_text(const std::string& v);
std::string field_text(const ChainRef& v);
template <class E>
requires std::is_enum_v<E> std::string field_text(E v) {
  return field_text(std::string(choice_names<E>[static_cast<std::size_t>(v)]));
}
template <class T>
std::string field_text(const std::optional<T>& v) {
  return v ? field_text(*v) : "None";
}

inline std::size_t joined_hash(std::size_t a, std::size_t b) {
  return a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2));
}
std::size_t field_hash(double v);  // of its bits
std::size_t field_hash(const Scalar& v);
std::size_t field_hash(const Ints& v);
std::size_t field_hash(Device v);
template <class T>
requires std::integral<T> || std::is_enum_v<T> std::size_t field_hash(T v) { return static_cast<std::size_t>(v); }
inline std::size_t field_hash(const std::string& v) { return std::hash<std::string>()(v); }
inline std::size_t field_hash(const ChainRef& v) { return std::hash<const void*>()(v.get()); }
template <class T>
std::size_t field_hash(const std::optional<T>& v) {
  return v ? joined_hash(1, field_hash(*v)) : 0;
}

/// Numbers are equal when their bits are: 0 and -0 make different kernels' results.
bool same_field(double a, double b);
bool same_field(const Scalar& a, const Scalar& b);
template <class T>
bool same_field(const T& a, const T& b) {
  return a == b;
}

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

}  // namespace detail

template <class A>
const AttrLayout& attr_layout() {
  static const AttrLayout layout = [] {
    static_assert(alignof(A) <= alignof(Attributes));
    AttrLayout l;
    l.tag = &attr_tag<A>;
    const A first{};
    each_field(first, [&]<class T>(int i, const T& field) {
      l.fields.push_back({A::names[static_cast<std::size_t>(i)], FieldTraits<T>::type,
                          static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&field) -
                                                   reinterpret_cast<const std::byte*>(&first)),
                          i < required_count<A>, detail::is_optional<T>, FieldTraits<T>::choices});
    });
    l.size = sizeof(A);
    l.copy = [](void* to, const void* from) { new (to) A(*static_cast<const A*>(from)); };
    l.destroy = [](void* a) noexcept { static_cast<A*>(a)->~A(); };
    l.equal = [](const void* a, const void* b) {
      bool same = true;
      each_field(*static_cast<const A*>(a), [&]<class T>(int, const T& x) {
        const auto at = reinterpret_cast<const std::byte*>(&x) - static_cast<const std::byte*>(a);
        same &= detail::same_field(x, *reinterpret_cast<const T*>(static_cast<const std::byte*>(b) + at));
      });
      return same;
    };
    l.hash = [](const void* a) {
      std::size_t h = 0;
      each_field(*static_cast<const A*>(a),
                 [&](int, const auto& x) { h = detail::joined_hash(h, detail::field_hash(x)); });
      return h;
    };
    l.text = [](const void* a, int wanted) {
      std::string text;
      each_field(*static_cast<const A*>(a), [&](int i, const auto& x) {
        if (i == wanted) text = detail::field_text(x);
      });
      return text;
    };
    return l;
  }();
  return layout;
}

/// Axes as the C++ interface takes them.
inline Axes to_axes(const std::optional<Ints>& a) { return a ? Axes(Shape(*a)) : Axes(); }
inline std::optional<Ints> from_axes(const Axes& a) { return a.list ? std::optional<Ints>(*a.list) : std::nullopt; }

}  // namespace hyalite
