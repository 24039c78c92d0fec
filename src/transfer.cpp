/// Every copy between devices goes through the CPU, and is counted by the recorder.
#include "transfer.h"

#include "compute/backend.h"

namespace hyalite {
namespace {

TensorRef downloaded(const TensorImpl& t, const Backend& from) {
  TensorRef dense = TensorRef::share(const_cast<TensorImpl*>(&t));
  if (!t.contiguous() || t.offset() != 0) {  // made dense where it lies
    dense = from.empty(t.dtype(), t.shape());
    from.copy(t, *dense);
  }
  TensorRef to = at_once({}).empty(t.dtype(), t.shape());
  from.download(*dense, *to);
  if (Recorder* r = active_recorder(context())) [[unlikely]]
    r->copied(to->nbytes());
  return to;
}

TensorRef uploaded(const TensorImpl& t, const Backend& to) {
  TensorRef dense = TensorRef::share(const_cast<TensorImpl*>(&t));
  if (!t.contiguous()) {
    dense = at_once({}).empty(t.dtype(), t.shape());
    at_once({}).copy(t, *dense);
  }
  if (Recorder* r = active_recorder(context())) [[unlikely]]
    r->copied(t.nbytes());
  return to.upload(*dense);
}

}  // namespace

Tensor moved_to(const Tensor& x, Device device) {
  const TensorImpl& t = *x.impl();
  if (device == t.device()) return x;
  const Backend& there = for_device(context(), device);  // raises Unsupported naming the devices there are
  if (device.kind == DeviceKind::meta) return Tensor::adopt(there.allocate(t.dtype(), t.shape(), t.strides()).leak());
  TensorRef local = on_host(t, "to");
  return Tensor::adopt((there.upload != nullptr ? uploaded(*local, there) : std::move(local)).leak());
}

void need_values(const TensorImpl& t, const char* op) {
  if (t.device().kind != DeviceKind::meta) return;
  throw Unsupported(std::string(op) + "(): a tensor on meta has a shape and no values; make it with device=\"cpu\"",
                    {{"device", std::string("meta")}});
}

TensorRef on_host(const TensorImpl& t, const char* op) {
  need_values(t, op);
  const Backend& from = for_device(context(), t.device());
  if (from.download == nullptr) return TensorRef::share(const_cast<TensorImpl*>(&t));
  return downloaded(t, from);
}

}  // namespace hyalite
