/// validate -> compute -> record -> return: the only call path of every op.
#pragma once

#include "internal_ops.h"
#include "ops/op_info.h"
#include "record/autograd_meta.h"

namespace hyalite {

/// The result of an op with one output. `target`, if not null, is written in place and returned.
TensorRef apply(const OpInfo& op, std::span<const Operand> in, const Attrs* attrs = nullptr,
                TensorImpl* target = nullptr);
/// The results of an op with two outputs.
std::pair<TensorRef, TensorRef> apply_two(const OpInfo& op, std::span<const Operand> in, const Attrs* attrs = nullptr);
/// An op of one tensor.
Tensor apply_one(const OpInfo& op, const Tensor& x, const Attrs& attrs);

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
Tensor call(int op, std::initializer_list<Arg> args, Attrs attrs = {});
std::pair<Tensor, Tensor> call_two(int op, std::initializer_list<Arg> args, Attrs attrs = {});
Tensor call_list(int op, const std::vector<Tensor>& tensors, Attrs attrs = {});
inline AttrValue attribute(const Axes& a) { return a.list ? AttrValue(*a.list) : AttrValue(); }
inline AttrValue attribute(const std::optional<Dtype>& d) { return d ? AttrValue(*d) : AttrValue(); }
}  // namespace detail

// What gradients are written with, beside the ops.

/// The sum of `g` over the axes along which `shape` was broadcast: the gradient of broadcasting, in one place.
Tensor sum_to_shape(const Tensor& g, Dims shape);
/// The last two axes exchanged.
Tensor swap_last(const Tensor& t);
/// 0 + 1i, 0-d.
Tensor imaginary_unit(Dtype dtype);
/// Writes `value` over `to` without a record.
void copy_into(const Tensor& to, const Tensor& value);
Tensor copy_of(const Tensor& t);
/// The view at the end of the chain.
Tensor follow(const Tensor& t, const std::shared_ptr<const ViewChain>& chain);

}  // namespace hyalite
