/// The table of the meta device: an entry for every op that is computed, and nothing behind it.
#include "compute/meta/backend.h"

#include <algorithm>

namespace hyalite::meta {
namespace {

constinit thread_local Watch* watch = nullptr;

TensorRef allocate(Dtype dtype, Dims shape, Dims strides) {
  checked_numel(shape, itemsize(dtype));
  return TensorImpl::make(dtype, {DeviceKind::meta}, shape, strides, Storage::without_memory());
}

Outputs run(const Validated& v, TensorImpl* target, Recorder* rec) {
  const Call& c = v.call();
  if (watch != nullptr) [[unlikely]] {
    for (const Operand& o : c.in) {
      if (o.tensor != nullptr) watch->note(*o.tensor);
    }
  }
  Span span(rec, Phase::compute, Who::backend, Who::backend, StepKind::self);
  Outputs o;
  if (target != nullptr) {
    o.add(TensorRef::share(target));
  } else {
    for (int k = 0; k < c.op.outputs; ++k) {
      o.add(allocate(v.out_dtype(k), v.shape(k), v.strides(k)));
    }
  }
  if (span.over()) span.end(Event::nothing_computed);
  return o;
}

void copy(const TensorImpl& from, TensorImpl& to) {
  if (to.device().kind != DeviceKind::meta) {
    throw Unsupported("a tensor on meta has a shape and no values; make it with device=\"cpu\"",
                      {{"device", std::string("meta")}});
  }
  if (watch != nullptr) watch->note(from);
}

}  // namespace

Watch::Watch() : outer_(watch) { watch = this; }
Watch::~Watch() { watch = outer_; }
void Watch::note(const TensorImpl& t) { read_.push_back(t.storage()); }
bool Watch::reads(const TensorImpl& t) const { return std::ranges::find(read_, t.storage()) != read_.end(); }

Backend& backend() {
  static Backend b = [] {
    Backend made{"meta",
                 allocate,
                 [](std::size_t) { return Storage::without_memory(); },
                 copy,
                 [](TensorImpl&, const std::byte*) {},
                 [] {},
                 [](const GradientRequest&) { return Tensor(); },
                 [](const GradientRequest&) { return false; },
                 [](const OpInfo&, Dtype, Dtype) { return Folds::no; },
                 nullptr,
                 [] { return false; },
                 std::vector<RunFn>(op_table().size())};
    for (const OpInfo& op : op_table()) {
      const bool computed = op.schema.kind == OpKind::elementwise || op.schema.kind == OpKind::primitive;
      if (computed) made.run[static_cast<std::size_t>(op.index)] = run;
    }
    return made;
  }();
  return b;
}

}  // namespace hyalite::meta
