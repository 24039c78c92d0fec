/// The public C++ interface over the engine: the tensor handle, creation, calls of ops.
#include <complex>
#include <cstring>

#include "apply.h"
#include "compute/backend.h"
#include "tensor/context.h"
#include "tensor/small_vector.h"

namespace hyalite {
namespace detail {

void retain(TensorImpl* p) noexcept { p->retain(); }
void release(TensorImpl* p) noexcept { p->release(); }

namespace {

/// The dtype a scalar takes among tensors: theirs when its kind is theirs or lower.
Dtype scalar_dtype(const OpInfo& op, std::initializer_list<Arg> args) {
  std::size_t i = 0;
  for (const Arg& a : args) {
    if (a.tensor != nullptr && !op.schema.is_condition(i)) return a.tensor->dtype();
    ++i;
  }
  return Dtype::float32;
}

using Operands = SmallVector<Operand, most_operands>;

Operands operands(const OpInfo& op, std::initializer_list<Arg> args) {
  const Dtype dtype = scalar_dtype(op, args);
  Operands in;
  for (const Arg& a : args) {
    if (a.tensor != nullptr) {
      if (!*a.tensor) throw ValueError(std::string(op.name()) + "(): an operand is an empty handle", {});
      in.push_back(tensor_operand(a.tensor->impl()));
    } else if (a.scalar.kind > kind(dtype)) {
      throw DtypeMismatch(std::string(op.name()) + "(): a number of a higher kind than " + std::string(name(dtype)) +
                              "; write x.astype() first",
                          {{"op", std::string(op.name())}});
    } else {
      in.push_back(scalar_operand(a.scalar, dtype));
    }
  }
  return in;
}

}  // namespace

Tensor call(int index, std::initializer_list<Arg> args, const AttrRef& attrs) {
  const OpInfo& op = op_table()[static_cast<std::size_t>(index)];
  if (op.schema.identity_on_reals && !is_complex(args.begin()->tensor->dtype())) return *args.begin()->tensor;
  const Operands in = operands(op, args);
  return Tensor::adopt(apply(op, {in.data(), in.size()}, attrs.get()).leak());
}

Outputs call_all(int index, std::initializer_list<Arg> args, const AttrRef& attrs) {
  const OpInfo& op = op_table()[static_cast<std::size_t>(index)];
  const Operands in = operands(op, args);
  return apply_all(op, {in.data(), in.size()}, attrs.get());
}

Tensor call_list(int index, const std::vector<Tensor>& tensors, const AttrRef& attrs) {
  const OpInfo& op = op_table()[static_cast<std::size_t>(index)];
  std::vector<Operand> in;
  for (const Tensor& t : tensors) {
    if (!t) throw ValueError(std::string(op.name()) + "(): an operand is an empty handle", {});
    in.push_back(tensor_operand(t.impl()));
  }
  return Tensor::adopt(apply(op, in, attrs.get()).leak());
}

}  // namespace detail

Dtype Tensor::dtype() const { return impl_->dtype(); }
Device Tensor::device() const { return impl_->device(); }
int Tensor::ndim() const { return impl_->ndim(); }
std::int64_t Tensor::numel() const { return impl_->numel(); }
std::span<const std::int64_t> Tensor::shape() const { return impl_->shape(); }
std::span<const std::int64_t> Tensor::strides() const { return impl_->strides(); }
void* Tensor::data() const { return host_address(*impl_); }

double Tensor::item() const {
  if (numel() != 1) {
    throw ValueError("item(): " + to_string(shape()) + " has not one element; index it first",
                     {{"shape", to_vector(shape())}});
  }
  if (is_complex(dtype())) throw TypeError("item(): complex has no double; write real(x).item()", {});
  const TensorRef wide = host_empty(Dtype::float64, shape());
  at_once(device()).copy(*impl_, *wide);
  double r;
  std::memcpy(&r, host_address(*wide), sizeof r);
  return r;
}

bool Tensor::requires_grad() const { return wants_grad(*impl_); }
Tensor& Tensor::requires_grad_(bool on) {
  set_requires_grad(*impl_, on);
  return *this;
}
Tensor Tensor::grad() const {
  return impl_->autograd != nullptr ? Tensor::share(impl_->autograd->grad.get()) : Tensor();
}
void Tensor::set_grad(const Tensor& g) { meta_of(*impl_).grad = TensorRef::share(g.impl()); }
std::string Tensor::grad_fn() const {
  const NodeRef n = hyalite::grad_fn(*impl_);
  return n ? n->name() : "";
}
Tensor Tensor::detach() const { return Tensor::adopt(detached(*impl_).leak()); }
void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  run_backward({this, 1}, {&gradient, 1}, {}, {retain_graph, create_graph});
}

std::vector<Tensor> grad(const std::vector<Tensor>& roots, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& gradients, bool retain_graph, bool create_graph) {
  return run_backward(roots, gradients, inputs, {retain_graph, create_graph});
}

NoGrad::NoGrad() : old_(context().grad_mode) { context().grad_mode = false; }
NoGrad::~NoGrad() { context().grad_mode = old_; }

Tensor zeros(const Shape& shape, Dtype dtype, Device device) { return full(shape, Scalar(0), dtype, device); }

Tensor from_values(std::span<const double> values, const Shape& shape, Dtype dtype) {
  const TensorRef wide = host_empty(Dtype::float64, shape);
  if (wide->numel() != static_cast<std::int64_t>(values.size())) {
    throw ShapeMismatch(
        "from_values(): " + std::to_string(values.size()) + " values do not fill " + to_string(Dims(shape)),
        {{"op", std::string("from_values")}});
  }
  std::memcpy(host_address(*wide), values.data(), values.size_bytes());
  TensorRef t = host_empty(dtype, shape);
  at_once({}).copy(*wide, *t);
  return Tensor::adopt(t.leak());
}

}  // namespace hyalite
