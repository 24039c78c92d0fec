/// Steps become calls of the eager kernels.
#include "compute/cpu/code.h"

#include <algorithm>
#include <cstring>

#include "compute/cpu/elementwise.h"
#include "compute/cpu/operands.h"

namespace hyalite::cpu {

using lazy::NodeKind;
using lazy::Program;

std::byte* scratch(std::size_t bytes) {
  thread_local reduce_walk::Buffer memory;
  return reinterpret_cast<std::byte*>(memory.get(static_cast<std::int64_t>(bytes)));
}

void Numbers::lay(const Program& p, std::size_t count) {
  bytes_ = count * 16;
  const auto all = static_cast<std::int64_t>(bytes_ * p.numbers.size());
  first_ = reinterpret_cast<std::byte*>(memory_.get(all));
  for (std::size_t k = 0; k < p.numbers.size(); ++k) {
    const std::size_t size = itemsize(p.numbers[k].dtype);
    std::memcpy(at(static_cast<int>(k)), p.numbers[k].bytes.data(), size);
    repeat(at(static_cast<int>(k)), size, count * size);
  }
}

void Instruction::operator()(const void* const* at, void* const* to_at, std::size_t n, bool stream) const {
  switch (kind) {
    case kernel:
      return run(at, to_at, n, attr.data(), stream && streams);
    case cast:
      return hyalite::cast(kernels().cast, from, at[0], to, to_at[0], n);
    case move:
      if (to_at[0] != at[0]) std::memcpy(to_at[0], at[0], n * itemsize(from));
      return;
    case generated:
      return run(at, to_at, n, numbers.data(), stream && streams);
  }
}

Code::Code(const Program& p) {
  int k = 0;
  for (const TensorRef& t : p.in) add_register(t->dtype(), {Place::input, k++});
  k = 0;
  for (const Operand& o : p.numbers) add_register(o.dtype, {Place::number, k++});
  for (const Program::Step& s : p.steps) {
    for (const TensorRef& t : s.node->out) add_register(t->dtype());
    ops += (ops.empty() ? "" : ", ") + s.node->name();
  }
}

int Code::add_register(Dtype t, Place at) {
  const int r = static_cast<int>(dtype.size());
  dtype.push_back(t);
  size.push_back(itemsize(t));
  place.push_back(at);
  alias.push_back(r);
  return r;
}

int Code::converted(int r, Dtype to, std::vector<Instruction>& list, int pass) {
  const Dtype from = dtype[static_cast<std::size_t>(r)];
  if (from == to) return r;
  const auto [at, fresh] = converted_.try_emplace({pass, r, to}, 0);
  if (fresh) {
    at->second = add_register(to);
    list.push_back({Instruction::cast, nullptr, {}, from, to, {r}, {at->second}});
  }
  return at->second;
}

void Code::add(const Program::Step& s, std::vector<Instruction>& list, int pass) {
  const lazy::Node& n = *s.node;
  std::vector<int> from = s.from;
  for (int& r : from) r = r < 0 ? r : alias[static_cast<std::size_t>(r)];
  if (n.kind == NodeKind::copy || n.kind == NodeKind::fill || n.converts) {
    alias[static_cast<std::size_t>(s.to)] = converted(from[0], n.out[0]->dtype(), list, pass);
    return;
  }
  heavy |= n.kind == NodeKind::gradient || n.op->schema.ulp > 0;
  Instruction i;
  if (n.kind == NodeKind::gradient) {
    const Kernel k =
        gradient_kernel(*n.op, n.operand, n.computed, n.attrs.get(), n.from_nothings, n.numbers_and_nothings);
    i.run = k.run;
    i.attr = k.attr;
    const int own = static_cast<int>(n.op->fields().size());
    i.formula = {n.op, computed(n.computed), n.operand, true, n.from_nothings, k.attr[static_cast<std::size_t>(own)],
                 own};
    for (int& r : from) {
      if (r >= 0) r = converted(r, computed(dtype[static_cast<std::size_t>(r)]), list, pass);
    }
  } else {
    std::array<Dtype, max_arity> dtypes{};
    for (std::size_t k = 0; k < from.size(); ++k) dtypes[k] = dtype[static_cast<std::size_t>(from[k])];
    const Kernel k =
        forward_kernel(*n.op, {dtypes.data(), from.size()}, n.computed, n.mixed, n.real_operand, n.attrs.get());
    i.run = k.run;
    i.attr = k.attr;
    i.formula = {n.op,
                 computed(n.computed),
                 -1,
                 !n.mixed && n.real_operand < 0,
                 false,
                 -1,
                 static_cast<int>(n.op->fields().size())};
    for (std::size_t j = 0; j < from.size(); ++j) from[j] = converted(from[j], k.in[j], list, pass);
  }
  i.in = std::move(from);
  std::vector<std::pair<int, int>> narrowed;
  for (std::size_t k = 0; k < n.out.size(); ++k) {
    const int r = s.to + static_cast<int>(k);
    const Dtype wide = computed(n.computed);
    const Dtype made = n.kind == NodeKind::gradient ? wide : n.op->schema.result_dtype(wide, static_cast<int>(k));
    if (made == n.out[k]->dtype()) {
      i.out.push_back(r);
    } else {
      i.out.push_back(add_register(made));
      narrowed.emplace_back(i.out.back(), r);
    }
  }
  list.push_back(std::move(i));
  for (const auto& [wide, narrow] : narrowed) {
    const auto w = static_cast<std::size_t>(wide), r = static_cast<std::size_t>(narrow);
    list.push_back({Instruction::cast, nullptr, {}, dtype[w], dtype[r], {wide}, {narrow}});
  }
}

int last_read(const std::vector<Instruction>& list, int r) {
  for (int i = static_cast<int>(list.size()) - 1; i >= 0; --i) {
    const std::vector<int>& in = list[static_cast<std::size_t>(i)].in;
    if (std::ranges::find(in, r) != in.end()) return i;
  }
  return -1;
}

int written_by(const std::vector<Instruction>& list, int r) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (std::ranges::find(list[i].out, r) != list[i].out.end()) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace hyalite::cpu
