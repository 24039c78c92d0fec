/// Attributes of ops: one aggregate with a field of every type, and those of every op in the list.
#include "ops/attributes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

#include "ops/op_info.h"

namespace hyalite {

enum class Side : std::uint8_t { left, right };
template <>
inline constexpr std::array<std::string_view, 2> choice_names<Side>{"left", "right"};

namespace {

struct First {
  double number = 0.5;
  std::int64_t integer = -3;
  bool flag = true;
  Dtype dtype = Dtype::float16;
  std::optional<std::int64_t> axis = {};
  static constexpr std::array<std::string_view, 5> names{"number", "integer", "flag", "dtype", "axis"};
  static constexpr int required = 2;
};
struct Second {
  std::optional<Dtype> dtype = {};
  std::optional<Device> device = {};
  Ints ints = {};
  std::optional<Ints> axes = {};
  std::string text = "ij->ji";
  static constexpr std::array<std::string_view, 5> names{"dtype", "device", "ints", "axes", "text"};
};
struct Third {
  Side side = Side::left;
  ChainRef chain = {};
  static constexpr std::array<std::string_view, 2> names{"side", "chain"};
};

Ints up_to(std::int64_t n) {
  Shape s;
  for (std::int64_t i = 0; i < n; ++i) s.push_back(i * i - 2);
  return s;
}

/// `values` with field i written by `change`, which must make it unequal, whatever the others are.
template <class A, class F>
void differs(A values, F change) {
  const AttrRef before = Attributes::make(values), same = Attributes::make(values);
  EXPECT_TRUE(*before == *same);
  EXPECT_EQ(before->hash(), same->hash());
  change(values);
  const AttrRef after = Attributes::make(values);
  EXPECT_FALSE(*before == *after);
  EXPECT_NE(before->hash(), after->hash());
  const Ref<Attributes> copy = Attributes::copy_of(*after);
  EXPECT_TRUE(*copy == *after);
  EXPECT_EQ(copy->hash(), after->hash());
}

TEST(Attributes, AreEqualFieldByField) {
  differs(First{}, [](First& a) { a.number = 0.25; });
  differs(First{.number = 0.0}, [](First& a) { a.number = -0.0; });  // other bits, other results
  differs(First{}, [](First& a) { a.integer = 3; });
  differs(First{}, [](First& a) { a.flag = false; });
  differs(First{}, [](First& a) { a.dtype = Dtype::bfloat16; });
  differs(First{}, [](First& a) { a.axis = 0; });
  differs(Second{}, [](Second& a) { a.dtype = Dtype::boolean; });
  differs(Second{}, [](Second& a) { a.device = Device{}; });
  differs(Second{}, [](Second& a) { a.ints = up_to(1); });
  differs(Second{.ints = up_to(40)}, [](Second& a) { a.ints = up_to(41); });
  differs(Second{}, [](Second& a) { a.axes = Ints(); });
  differs(Second{}, [](Second& a) { a.text = "ij->ij"; });
  differs(Third{}, [](Third& a) { a.side = Side::right; });
  const First nan{.number = std::nan("")};
  EXPECT_TRUE(*Attributes::make(nan) == *Attributes::make(nan));
}

TEST(Attributes, OfOtherAggregatesAreUnequal) {
  const AttrRef a = Attributes::make(First{}), b = Attributes::make(Third{});
  EXPECT_FALSE(*a == *b);
  EXPECT_NE(a->get_if<First>(), nullptr);
  EXPECT_EQ(a->get_if<Third>(), nullptr);
}

TEST(Attributes, SayWhatTheyHold) {
  const auto& fields = attr_layout<First>().fields;
  ASSERT_EQ(fields.size(), 5u);
  EXPECT_EQ(fields[1].name, "integer");
  EXPECT_EQ(fields[4].type, AttrType::axis);
  EXPECT_TRUE(fields[1].required);
  EXPECT_FALSE(fields[2].required);
  EXPECT_TRUE(fields[4].optional);
  EXPECT_EQ(attr_layout<Third>().fields[0].choices.size(), 2u);
  const AttrRef a = Attributes::make(First{});
  EXPECT_EQ(a->field<double>(0), 0.5);
  EXPECT_EQ(a->field<std::int64_t>(1), -3);
  EXPECT_EQ(a->text(0), "0.5");
  EXPECT_EQ(a->text(1), "-3");
  EXPECT_EQ(a->text(2), "True");
  EXPECT_EQ(a->text(3), "float16");
  EXPECT_EQ(a->text(4), "None");
  const AttrRef b = Attributes::make(Second{Dtype::int8, Device{DeviceKind::cuda, 1}, up_to(3), up_to(1), "x"});
  EXPECT_EQ(b->text(0), "int8");
  EXPECT_EQ(b->text(1), "cuda:1");
  EXPECT_EQ(b->text(2), "(-2, -1, 2)");
  EXPECT_EQ(b->text(3), "(-2,)");
  EXPECT_EQ(b->text(4), "'x'");
  EXPECT_EQ(Attributes::make(Third{Side::right, {}})->text(0), "'right'");
}

TEST(Attributes, ACopyIsItsMakersOwn) {
  const AttrRef a = Attributes::make(Second{.ints = up_to(9)});
  const Ref<Attributes> copy = Attributes::copy_of(*a);
  copy->field<Ints>(2) = up_to(2);
  copy->field<std::string>(4) = std::string(100, 'y');
  EXPECT_TRUE(a->as<Second>().ints == up_to(9));
  EXPECT_EQ(a->as<Second>().text, "ij->ji");
  EXPECT_EQ(copy->as<Second>().ints.size(), 2u);
}

TEST(Attributes, GiveTheirMemoryBack) {
  const auto fill = [] {
    const AttrRef a = Attributes::make(Second{.ints = up_to(200), .axes = up_to(7), .text = std::string(99, 'z')});
    return Attributes::copy_of(*a)->hash() == a->hash();
  };
  EXPECT_TRUE(fill());
  const std::int64_t before = pool::stats().allocated_bytes;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(fill());
  EXPECT_EQ(pool::stats().allocated_bytes, before);
}

TEST(Attributes, AreSharedByThreads) {
  const AttrRef a = Attributes::make(Second{.ints = up_to(30)});
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([a] {
      for (int i = 0; i < 10'000; ++i) {
        const AttrRef mine = a;
        if (mine->as<Second>().ints.size() != 30) std::abort();
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(Ints, AreAListOfAnyLength) {
  for (const std::int64_t n : {0, 1, 5, 6, 7, 64, 1000}) {
    Ints a = up_to(n), b = a;
    EXPECT_EQ(a.size(), static_cast<std::size_t>(n));
    EXPECT_EQ(a.empty(), n == 0);
    EXPECT_TRUE(a == b);
    for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(b[static_cast<std::size_t>(i)], i * i - 2);
    Ints c = std::move(a);
    EXPECT_TRUE(c == b);
    EXPECT_TRUE(a.empty());  // NOLINT: moved from, empty by design
    c = up_to(3);
    b = std::move(c);
    EXPECT_TRUE(b == up_to(3));
    b = Ints(b);
    EXPECT_EQ(Shape(b).size(), 3u);
  }
}

/// The list itself: names are unique, required fields come first, defaults are what a call without arguments uses.
TEST(Attributes, OfEveryOp) {
  for (const OpInfo& op : op_table()) {
    std::set<std::string_view> names;
    bool optional = false;
    for (const AttrField& f : op.fields()) {
      EXPECT_TRUE(names.insert(f.name).second) << op.name() << " " << f.name;
      EXPECT_FALSE(f.required && optional) << op.name() << " " << f.name;
      optional |= !f.required;
    }
    if (!op.defaults) continue;
    const Ref<Attributes> copy = Attributes::copy_of(*op.defaults);
    EXPECT_TRUE(*copy == *op.defaults) << op.name();
    EXPECT_EQ(copy->hash(), op.defaults->hash()) << op.name();
    for (std::size_t i = 0; i < op.fields().size(); ++i) EXPECT_NE(copy->text(static_cast<int>(i)), "") << op.name();
  }
}

}  // namespace
}  // namespace hyalite
