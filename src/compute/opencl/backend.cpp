/// Two tables a device: one that adds nodes, and one that plans run on.
#include "compute/opencl/backend.h"

#include <array>
#include <utility>

#include "compute/opencl/group.h"
#include "compute/opencl/kernels.h"
#include "compute/opencl/primitives.h"
#include "ops/movement.h"

namespace hyalite::opencl {
namespace {

constexpr int most_devices = 8;

ClDevice& device(int index) { return *ClDevice::all()[static_cast<std::size_t>(index)]; }

/// Before anything waits: what the device cannot compute is said where it is asked for.
void check_call(const ClDevice& d, const Validated& v) {
  const Call& c = v.call();
  for (const Operand& o : c.in) {
    if (o.tensor != nullptr) check_dtype(d, o.tensor->dtype(), c.op.name());
  }
  for (int k = 0; k < c.op.outputs; ++k) check_dtype(d, v.out_dtype(k), c.op.name());
  const auto* cast = c.attrs != nullptr ? c.attrs->get_if<AstypeBackward::Attr>() : nullptr;
  if (cast != nullptr && cast->check) {
    throw Unsupported(
        "astype(): check=True compares values, which opencl does not; leave it out, or convert on the CPU");
  }
}

/// A call, and a step for who records it.
template <class F>
Outputs told(Recorder* rec, ClDevice& d, const Validated& v, F run) {
  check_call(d, v);
  const ClDevice::Counts before = rec != nullptr ? d.counts() : ClDevice::Counts();
  Span span(rec, Phase::compute, Who::backend, Who::kernel, StepKind::request);
  Outputs o = run();
  if (span.over()) rec->end(Event::queued, {{Fact::op, v.call().op.name()}, {Fact::kernel, d.came_since(before)}});
  return o;
}

/// What runs plans. A device is a template argument, since a table's entries are plain functions.
template <int I>
Backend& executor() {
  static Backend b = [] {
    Backend made{"opencl",
                 [](Dtype dtype, Dims shape, Dims strides) { return make(device(I), dtype, shape, strides); },
                 [](std::size_t bytes) { return device(I).memory(bytes); },
                 [](const TensorImpl& from, TensorImpl& to) { convert(device(I), from, to); },
                 [](TensorImpl& to, const std::byte* value) { fill(device(I), to, value); },
                 [] { device(I).finish(); },
                 [](const GradientRequest&) { return Tensor(); },
                 at_once({}).has_gradient,
                 [](const OpInfo& op, Dtype, Dtype) { return fold_of(op.name()) ? Folds::yes : Folds::no; },
                 [](const lazy::Program& p, lazy::Tier) { return fuse(device(I), p); },
                 [] { return false; },
                 std::vector<RunFn>(op_table().size())};
    for (const OpInfo& op : op_table()) {
      if (op.schema.kind != OpKind::elementwise) continue;
      made.run[static_cast<std::size_t>(op.index)] = [](const Validated& v, TensorImpl* target, Recorder* rec) {
        return told(rec, device(I), v, [&] { return run_elementwise(device(I), v, target); });
      };
    }
    const auto entries = primitives();
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      ((made.run[static_cast<std::size_t>(find_op(entries[K].op).index)] =
            [](const Validated& v, TensorImpl* target, Recorder* rec) {
              return told(rec, device(I), v, [&] { return primitives()[K].run(device(I), v, target); });
            }),
       ...);
    }
    (std::make_index_sequence<primitive_count>());
    made.upload = [](const TensorImpl& from) {
      check_dtype(device(I), from.dtype(), "to");
      TensorRef to = make(device(I), from.dtype(), from.shape(), from.strides());
      device(I).upload(from.address(), *to->storage(), static_cast<std::size_t>(from.nbytes()));
      return to;
    };
    made.download = [](const TensorImpl& from, TensorImpl& to) {
      device(I).download(*from.storage(), to.address(), static_cast<std::size_t>(to.nbytes()));
    };
    return made;
  }();
  return b;
}

template <int I>
lazy::LazyDevice& waiting() {
  static lazy::LazyDevice& d =
      *new lazy::LazyDevice(Device{DeviceKind::opencl, static_cast<std::uint8_t>(I)}, executor<I>());
  return d;
}

/// What adds nodes.
template <int I>
Backend& table() {
  static Backend b = [] {
    const Backend& real = executor<I>();
    Backend made{"opencl",
                 [](Dtype dtype, Dims shape, Dims strides) {
                   check_dtype(device(I), dtype, "empty");
                   const lazy::LazyDevice::Entry entry(waiting<I>());
                   return lazy::add_memory(waiting<I>(), dtype, shape, strides);
                 },
                 nullptr,
                 [](const TensorImpl& from, TensorImpl& to) {
                   const lazy::LazyDevice::Entry entry(waiting<I>());
                   lazy::add_copy(waiting<I>(), from, to);
                 },
                 [](TensorImpl& to, const std::byte* value) {
                   const lazy::LazyDevice::Entry entry(waiting<I>());
                   lazy::add_fill(waiting<I>(), to, value);
                 },
                 [] {
                   waiting<I>().run();
                   device(I).finish();
                 },
                 [](const GradientRequest& q) {
                   const lazy::LazyDevice::Entry entry(waiting<I>());
                   return lazy::add_gradient(waiting<I>(), q, executor<I>());
                 },
                 real.has_gradient,
                 real.folds,
                 nullptr,
                 real.generates,
                 std::vector<RunFn>(op_table().size())};
    const RunFn run = [](const Validated& v, TensorImpl* target, Recorder* rec) {
      check_call(device(I), v);
      const lazy::LazyDevice::Entry entry(waiting<I>());
      Span span(rec, Phase::compute, Who::backend, Who::backend, StepKind::self);
      Outputs o = lazy::add_call(waiting<I>(), v, target);
      if (span.over()) waiting<I>().tell(*rec, v.call().op.name());
      return o;
    };
    for (std::size_t i = 0; i < made.run.size(); ++i) made.run[i] = real.run[i] != nullptr ? run : nullptr;
    made.executor = &executor<I>();
    made.upload = [](const TensorImpl& from) {
      const TensorRef there = executor<I>().upload(from);
      return waiting<I>().over(from.dtype(), from.shape(), from.strides(), there->storage_ref());
    };
    made.download = [](const TensorImpl& dense, TensorImpl& to) {
      const Ref<Storage> memory = waiting<I>().memory_of(dense);
      Recorder* const rec = active_recorder(context());
      Span span(rec, Phase::compute, Who::backend, Who::backend, StepKind::self);
      device(I).download(*memory, to.address(), static_cast<std::size_t>(to.nbytes()));
      if (span.over()) rec->end(Event::fetched, {{Fact::bytes, to.nbytes()}});
    };
    return made;
  }();
  return b;
}

template <std::size_t... I>
constexpr auto tables(std::index_sequence<I...>) {
  return std::array<Backend& (*)(), sizeof...(I)>{&table<static_cast<int>(I)>...};
}
template <std::size_t... I>
constexpr auto lazies(std::index_sequence<I...>) {
  return std::array<lazy::LazyDevice& (*)(), sizeof...(I)>{&waiting<static_cast<int>(I)>...};
}
constexpr auto all_tables = tables(std::make_index_sequence<most_devices>());
constexpr auto all_lazies = lazies(std::make_index_sequence<most_devices>());

}  // namespace

Backend* backend(int index) {
  const int count = std::min(most_devices, static_cast<int>(ClDevice::all().size()));
  return index < count ? &all_tables[static_cast<std::size_t>(index)]() : nullptr;
}

lazy::LazyDevice& lazy_device(int index) { return all_lazies[static_cast<std::size_t>(index)](); }

}  // namespace hyalite::opencl
