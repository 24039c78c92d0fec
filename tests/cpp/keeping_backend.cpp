/// A second backend for the CPU, for tests: it keeps calls, and computes them when somebody asks for a value, as a lazy
/// device does. It is linked into a Python module of its own, in whose table it stands at the CPU's place.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "compute/backend.h"
#include "compute/cpu/backend.h"
#include "ops/movement.h"

namespace hyalite {
namespace {

struct Kept {
  OpCall call;
  std::vector<TensorRef> outputs;
  bool in_place;
};
thread_local std::vector<Kept> waiting;
std::atomic<long> computed{0};

RunFn entry(const Call& c) { return cpu::backend().run[static_cast<std::size_t>(c.op.index)]; }

void eval() {
  for (const Kept& k : std::exchange(waiting, {})) {
    const Call call = k.call.call();
    TensorImpl* target = k.in_place ? k.outputs[0].get() : nullptr;
    const Outputs made = entry(call)(SchemaGuard::check(nullptr, call, target), target, nullptr);
    for (std::size_t i = 0; !k.in_place && i < k.outputs.size(); ++i) cpu::backend().copy(*made[i], *k.outputs[i]);
    ++computed;
  }
}

/// Whether values decide if it raises.
bool cannot_wait(const Call& c) {
  const Check check = c.op.schema.check;
  return check == Check::cast ? c.attributes<AstypeBackward::Attr>().check : check != Check::none;
}

/// The call, over copies of what somebody outside may write before it is computed.
OpCall own(const Call& c) {
  std::vector<Operand> in(c.in.begin(), c.in.end());
  std::vector<TensorRef> copies;
  for (Operand& o : in) {
    if (o.tensor == nullptr || !o.tensor->storage()->exposed()) continue;
    copies.push_back(cpu::backend().empty(o.tensor->dtype(), o.tensor->shape()));
    cpu::backend().copy(*o.tensor, *copies.back());
    o.tensor = copies.back().get();
  }
  return OpCall({c.op, in, c.attrs});
}

Outputs keep(const Validated& v, TensorImpl* target, Recorder* rec) {
  const Call& c = v.call();
  if (rec != nullptr || cannot_wait(c) || (target != nullptr && target->storage()->exposed())) {
    eval();
    return entry(c)(v, target, rec);
  }
  Kept& k = waiting.emplace_back(Kept{own(c), {}, target != nullptr});
  Outputs o;
  for (int i = 0; i < c.op.outputs; ++i) {
    if (target != nullptr) {
      k.outputs.push_back(TensorRef::share(target));
    } else {
      k.outputs.push_back(cpu::backend().allocate(v.out_dtype(i), v.shape(i), v.strides(i)));
      // Whoever reads it too soon shall see that.
      if (TensorImpl& t = *k.outputs.back(); t.numel() != 0) std::memset(t.address(), 0xff, t.storage()->bytes());
    }
    o.add(k.outputs.back());
  }
  return o;
}

Backend& keeping() {
  static Backend b = [] {
    Backend made = cpu::backend();
    made.copy = [](const TensorImpl& from, TensorImpl& to) { eval(), cpu::backend().copy(from, to); };
    made.fill = [](TensorImpl& to, const std::byte* value) { eval(), cpu::backend().fill(to, value); };
    made.synchronise = eval;
    made.gradient = [](const GradientRequest& q) { return eval(), cpu::backend().gradient(q); };
    for (RunFn& f : made.run) f = f != nullptr ? keep : nullptr;
    return made;
  }();
  return b;
}

[[maybe_unused]] const bool installed = [] {
  detail::ready_backends[static_cast<std::size_t>(DeviceKind::cpu)] = &keeping();
  return true;
}();

}  // namespace
}  // namespace hyalite

extern "C" {
[[gnu::visibility("default")]] long hyalite_waiting() { return static_cast<long>(hyalite::waiting.size()); }
[[gnu::visibility("default")]] long hyalite_computed() { return hyalite::computed; }
}
