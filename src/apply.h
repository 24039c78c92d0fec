/// validate -> compute -> record -> return: the only call path of every op.
#pragma once

#include "internal_ops.h"
#include "ops/op_info.h"
#include "record/autograd_meta.h"

namespace hyalite {

/// The result of an op with one output. `target`, if not null, is written in place and returned.
TensorRef apply(const OpInfo& op, std::span<const Operand> in, const Attributes* attrs = nullptr,
                TensorImpl* target = nullptr);
/// The same; the caller's count of the attributes goes to whatever keeps them.
TensorRef apply(const OpInfo& op, std::span<const Operand> in, AttrRef&& attrs);
/// All results of an op.
Outputs apply_all(const OpInfo& op, std::span<const Operand> in, const Attributes* attrs = nullptr);
/// An op of one tensor.
Tensor apply_one(const OpInfo& op, const Tensor& x, const Attributes* attrs);

/// An operand from a scalar, in `dtype`.
Operand scalar_operand(const Scalar& s, Dtype dtype);
inline Operand tensor_operand(TensorImpl* t) {
  Operand o;
  o.tensor = t;
  return o;
}

/// A row-major copy without history.
TensorRef clone(const TensorImpl& t);
/// a += b without a record: for gradients that nobody else may see.
void add_in_place(TensorImpl& a, const TensorImpl& b);

namespace detail {
/// Calls op number `op` of this build's table. Throws what the op's guard throws.
Tensor call(int op, std::initializer_list<Arg> args, const AttrRef& attrs = {});
Outputs call_all(int op, std::initializer_list<Arg> args, const AttrRef& attrs = {});
/// The results as the C++ interface gives them.
template <std::size_t n>
std::array<Tensor, n> taken(Outputs o) {
  std::array<Tensor, n> r;
  for (std::size_t k = 0; k < n; ++k) r[k] = Tensor::adopt(o.take(static_cast<int>(k)).leak());
  return r;
}
Tensor call_list(int op, const std::vector<Tensor>& tensors, const AttrRef& attrs = {});
}  // namespace detail

// What gradients are written with, beside the ops.

/// The sum of `g` over the axes along which `shape` was broadcast: the gradient of broadcasting, in one place.
Tensor sum_to_shape(const Tensor& g, Dims shape);
/// Whether a gradient may be nothing somewhere: -0 in it is no number then, and all other zeros are +0
/// (docs/decisions/0011-nothing-is-not-zero.md).
inline bool has_nothings(const Tensor& g) { return g.impl()->nothings; }
/// `g`, now said to hold nothings.
Tensor with_nothings(Tensor g);
/// A gradient that is nothing throughout.
Tensor nothings(const Shape& shape, Dtype dtype, Device device);
/// `g` as it may stand beside nothings: +0 for -0 unless it holds nothings itself.
Tensor numbers_of(const Tensor& g);
/// `g` as a user sees it: +0 for nothing.
Tensor without_nothings(const Tensor& g);
/// The sum of two gradients of one value.
Tensor add_gradients(const Tensor& a, const Tensor& b);
/// `value`, made from the gradient `g`: nothing where g is. The shapes broadcast.
Tensor settled(const Tensor& value, const Tensor& g);
/// The same for a value to whose elements all of g along `axis` contributed: nothing where all of it is.
Tensor settled_over(const Tensor& value, const Tensor& g, std::int64_t axis);
/// `g` where the condition holds, and nothing elsewhere.
Tensor take_where(const Tensor& condition, const Tensor& g);
/// `g` in another dtype: of a complex g the real part if that is real.
Tensor gradient_as(const Tensor& g, Dtype dtype);
/// `t` in another dtype; itself in its own.
inline Tensor astype_if(const Tensor& t, Dtype dtype) { return t.dtype() == dtype ? t : astype(t, dtype); }
/// float16 and bfloat16 as float32, others as they are.
Dtype widened(Dtype dtype);
inline Tensor widened(const Tensor& t) { return astype_if(t, widened(t.dtype())); }
/// A gradient divided by a count, which 16-bit types may not hold, and rounded once to `dtype`.
Tensor divided(const Tensor& g, const Tensor& count, Dtype dtype);
Tensor divided(const Tensor& g, Constant count, Dtype dtype);
/// True at the first largest element along the axis.
Tensor first_largest(const Tensor& x, std::int64_t axis);
/// matmul(a, b) summed to `shape`, over the axes along which that was broadcast. No product of each batch is kept.
Tensor matmul_to_shape(const Tensor& a, const Tensor& b, Dims shape);
/// The last two axes exchanged.
Tensor swap_last(const Tensor& t);
TensorRef swap_last(TensorImpl& t);
/// 0 + 1i, 0-d, on the device of `x` and in the complex dtype that goes with its own.
Tensor imaginary_unit(const Tensor& x);
/// Writes `value` over `to` without a record.
void copy_into(const Tensor& to, const Tensor& value);
Tensor copy_of(const Tensor& t);
/// The view at the end of the chain.
Tensor follow(const Tensor& t, const std::shared_ptr<const ViewChain>& chain);

}  // namespace hyalite
