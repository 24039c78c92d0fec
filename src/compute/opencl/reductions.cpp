/// Reductions: an item for each result where there are many, else a group of items.
#include "compute/opencl/reductions.h"

#include <algorithm>
#include <cstdlib>

#include "compute/opencl/folds.h"
#include "ops/reduce.h"

namespace hyalite::opencl {
namespace {

constexpr std::int64_t enough_groups = 256, enough_items = 1 << 14;  // to keep a device busy
constexpr std::int64_t least_of_part = 4096, least_of_item = 32;     // elements of a part worth a second kernel

/// Axes of a reduction that are kept, or reduced, joined where they lie in one step.
struct Axes {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t count = 1;

  void add(std::int64_t size, std::int64_t stride) {
    count *= size;
    if (size == 1) return;
    if (!sizes.empty() && strides.back() == stride * size) {
      sizes.back() *= size;
      strides.back() = stride;
      return;
    }
    sizes.push_back(size);
    strides.push_back(stride);
  }
  /// C's text that adds to `at` where number `i` of these lies; the numbers begin at m[first].
  std::string place(const std::string& i, const std::string& at, int first) const {
    std::string s;
    std::string rest = i;
    for (int a = static_cast<int>(sizes.size()) - 1; a >= 0; --a) {
      const std::string k = std::to_string(first + 2 * a), r = i + "r" + std::to_string(a);
      if (a == 0) {
        s += "    " + at + " += " + rest + " * m[" + std::to_string(first + 1) + "];\n";
      } else {
        s += "    const long " + r + " = " + rest + " / m[" + k + "];\n    " + at + " += (" + rest + " - " + r +
             " * m[" + k + "]) * m[" + std::to_string(first + 2 * a + 1) + "];\n";
        rest = r;
      }
    }
    return s;
  }
  void append(std::vector<std::int64_t>& numbers) const {
    for (std::size_t a = 0; a < sizes.size(); ++a) {
      numbers.push_back(sizes[a]);
      numbers.push_back(strides[a]);
    }
  }
};

/// The places of the greatest or the least, the first of equals; of numbers that are not, the first.
std::string places_body(Fold f, Dtype in, Dtype out, const Axes& kept, const Axes& reduced, bool groups) {
  const Dtype v = computed(in);
  const std::string V = value_type(v), W = std::to_string(group_size);
  const bool is_real = is_floating(v);
  const std::string more = f == Fold::argmax ? "v > a" : "v < a";
  const std::string better = (is_real ? "(v != v && a == a) || " : "") + more;
  const std::string locals = "  __local " + V + " all[" + W + "];\n  __local long places[" + W + "];\n";
  std::string s = "__kernel void hyalite_reduce(long count, long n, __global const " + stored_type(in) +
                  "* x, __global " + stored_type(out) + "* out, __constant const long* m) {\n";
  s += begin_lines(groups, locals, "o", "count");
  s += "    long base = m[0];\n" + kept.place("o", "base", 1) + "    " + V + " a = 0; long place = -1;\n";
  s += groups ? "    for (long j = me; j < n; j += " + W + ") {\n" : "    for (long j = 0; j < n; ++j) {\n";
  s += "    long at = base;\n" + reduced.place("j", "at", 2 * static_cast<int>(kept.sizes.size()) + 1);
  s += "    const " + V + " v = " + loaded(in, "x[at]") + ";\n    if (place < 0 || " + better +
       ") { a = v; place = j; }\n    }\n";
  if (groups) {
    s += "    all[me] = a;\n    places[me] = place;\n    for (int part = " + W +
         " / 2; part > 0; part /= 2) {\n      barrier(CLK_LOCAL_MEM_FENCE);\n      if (me < part) {\n";
    const std::string nan = is_real ? "(v != v ? a == a || q < place : a == a && " : "(";
    s += "        const " + V + " v = all[me + part]; const long q = places[me + part];\n";
    s += "        if (q >= 0 && (place < 0 || " + nan + "(" + more +
         " || (v == a && q < place))))) { a = v; place = q; }\n";
    s += "        all[me] = a; places[me] = place;\n      }\n    }\n";
  }
  s += first_item(groups) + "out[o] = (" + value_type(out) + ")place;\n";
  return s + end_lines(groups);
}

/// Reductions to a value: of all elements, or, in `parts` of them, to states.
std::string fold_body(const FoldText& t, Dtype in, Dtype out, const Axes& kept, const Axes& reduced,
                      const Spread& spread) {
  const bool groups = spread.groups, parts = spread.parts > 1;
  const std::string W = std::to_string(group_size);
  std::string s = std::string("__kernel void ") + (parts ? "hyalite_reduce_parts" : "hyalite_reduce") +
                  "(long count, long n, " + (parts ? "long parts, " : "") + "__global const " + stored_type(in) +
                  "* x, __global " + (parts ? t.state : stored_type(out)) + "* out, __constant const long* m) {\n";
  s += begin_lines(groups, "  __local " + t.state + " states[" + W + "];\n", parts ? "w" : "o",
                   parts ? "count * parts" : "count");
  if (parts) s += part_lines(groups);
  s += "    long base = m[0];\n" + kept.place("o", "base", 1);
  s += "    " + t.state + " a = " + t.begin + ";\n    for (" + part_loop(spread) + ") {\n";
  s += "    long at = base;\n" + reduced.place("j", "at", 2 * static_cast<int>(kept.sizes.size()) + 1);
  s += "    const " + value_type(computed(in)) + " v = " + loaded(in, "x[at]") + ";\n    " + t.join + "\n    }\n";
  if (groups) s += merge_lines(t, "a", "states");
  s += first_item(groups) + (parts ? "out[w] = a" : "out[o] = " + t.end) + ";\n";
  return s + end_lines(groups);
}

/// From the states of parts to values.
std::string join_body(const FoldText& t, Dtype out, bool groups) {
  const std::string W = std::to_string(group_size);
  std::string s = "__kernel void hyalite_reduce_join(long count, long n, long parts, __global const " + t.state +
                  "* parts_of, __global " + stored_type(out) + "* out) {\n" +
                  begin_lines(groups, "  __local " + t.state + " states[" + W + "];\n", "o", "count") + "    " +
                  t.state + " a = " + t.begin + ";\n    for (" + join_loop(groups) + ") {\n      const " + t.state +
                  " b = parts_of[" + join_place(groups) + "];\n      " + t.merge + "\n    }\n";
  if (groups) s += merge_lines(t, "a", "states");
  s += first_item(groups) + "out[o] = " + t.end + ";\n";
  return s + end_lines(groups);
}

}  // namespace

Spread spread_over(const ClDevice& d, std::int64_t kept, std::int64_t reduced, bool rows) {
  Spread s;
  s.groups = rows && reduced >= 32 && d.facts().group >= group_size;
  // Few results, of which even groups would leave a device idle, are made of parts.
  if (s.groups && kept < enough_groups) {
    s.parts = std::clamp<std::int64_t>(reduced / least_of_part, 1, enough_groups / kept);
  } else if (!s.groups && kept < enough_items) {
    s.parts = std::clamp<std::int64_t>(reduced / least_of_item, 1, enough_items / kept);
  }
  return s;
}

std::string begin_lines(bool groups, const std::string& locals, const std::string& of, const std::string& count) {
  const std::string kind = groups ? "group" : "global", step = groups ? "get_num_groups" : "get_global_size";
  return (groups ? locals + "  const int me = get_local_id(0);\n" : "") + "  for (long " + of + " = get_" + kind +
         "_id(0); " + of + " < " + count + "; " + of + " += " + step + "(0)) {\n";
}
std::string first_item(bool groups) { return groups ? "    if (me == 0) " : "    "; }
std::string end_lines(bool groups) { return groups ? "    barrier(CLK_LOCAL_MEM_FENCE);\n  }\n}\n" : "  }\n}\n"; }

std::string part_lines(bool groups) {
  return groups ? "    const long o = w / parts, length = (n + parts - 1) / parts, first = (w - o * parts) * length;\n"
                : "    const long o = w % count, part = w / count;\n";
}
std::string part_loop(const Spread& s) {
  const std::string W = std::to_string(group_size);
  if (s.parts > 1) {
    return s.groups ? "long j = first + me; j < min(n, first + length); j += " + W : "long j = part; j < n; j += parts";
  }
  return s.groups ? "long j = me; j < n; j += " + W : "long j = 0; j < n; ++j";
}
std::string join_loop(bool groups) {
  return groups ? "long j = me; j < parts; j += " + std::to_string(group_size) : "long j = 0; j < parts; ++j";
}
std::string join_place(bool groups) { return groups ? "o * parts + j" : "j * count + o"; }

template <Fold f>
Outputs reduce(ClDevice& d, const Validated& v, TensorImpl* target) {
  const Call& c = v.call();
  const TensorImpl& x = c.x(0);
  Outputs o = outputs(d, v, target);
  const std::optional<Ints>* given = nullptr;
  if (const auto* a = c.attrs->get_if<SumAttr>()) given = &a->axis;
  if (const auto* a = c.attrs->get_if<ReductionAttr>()) given = &a->axis;
  std::uint64_t mask = 0;
  if (given != nullptr) {
    mask = reduction::axes_mask(*given, x.ndim(), c.op.name());
  } else if (const auto* a = c.attrs->get_if<PlaceAttr>()) {
    mask = a->axis ? std::uint64_t{1} << normalize_axis(*a->axis, x.ndim(), c.op.name().data())
                   : (std::uint64_t{1} << x.ndim()) - 1;
  }
  Axes kept, reduced;
  for (int i = 0; i < x.ndim(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    ((mask >> i & 1) != 0 ? reduced : kept).add(x.shape()[at], x.strides()[at]);
  }
  const TensorRef out = dense_result(d, *o[0]);
  std::vector<std::int64_t> numbers{x.offset()};
  kept.append(numbers);
  reduced.append(numbers);
  const Ref<Storage> m = sent(d, numbers);
  const bool rows = reduced.strides.empty() || kept.strides.empty() ||
                    std::abs(reduced.strides.back()) <= std::abs(kept.strides.back());
  if constexpr (f == Fold::argmax || f == Fold::argmin) {
    Spread spread;
    spread.groups = reduced.count >= 32 && (rows || kept.count < 4096) && d.facts().group >= group_size;
    launch(d, places_body(f, x.dtype(), out->dtype(), kept, reduced, spread.groups), "hyalite_reduce",
           {scalar(kept.count), scalar(reduced.count), memory_of(x), memory_of(*out), ClDevice::buffer(*m)},
           spread.items(kept.count));
  } else {
    const FoldText t = fold_text(f, x.dtype(), out->dtype(), d.facts().has_float64);
    const Spread spread = spread_over(d, kept.count, reduced.count, rows);
    const std::int64_t items = spread.items(kept.count);
    const std::string body = fold_body(t, x.dtype(), out->dtype(), kept, reduced, spread);
    if (spread.parts == 1) {
      launch(d, body, "hyalite_reduce",
             {scalar(kept.count), scalar(reduced.count), memory_of(x), memory_of(*out), ClDevice::buffer(*m)}, items);
    } else {
      const Ref<Storage> states = d.memory(static_cast<std::size_t>(kept.count * spread.parts) * largest_state);
      launch(d, body, "hyalite_reduce_parts",
             {scalar(kept.count), scalar(reduced.count), scalar(spread.parts), memory_of(x), ClDevice::buffer(*states),
              ClDevice::buffer(*m)},
             spread.items(kept.count * spread.parts));
      launch(
          d, join_body(t, out->dtype(), spread.groups), "hyalite_reduce_join",
          {scalar(kept.count), scalar(reduced.count), scalar(spread.parts), ClDevice::buffer(*states), memory_of(*out)},
          items);
    }
  }
  put(d, out, *o[0]);
  return o;
}

#define HYALITE_FOLD(f) template Outputs reduce<Fold::f>(ClDevice&, const Validated&, TensorImpl*);
HYALITE_FOLD(sum)
HYALITE_FOLD(prod)
HYALITE_FOLD(mean)
HYALITE_FOLD(max)
HYALITE_FOLD(min)
HYALITE_FOLD(any)
HYALITE_FOLD(all)
HYALITE_FOLD(argmax)
HYALITE_FOLD(argmin)
#undef HYALITE_FOLD

}  // namespace hyalite::opencl
