/// One table entry an op: everything the engine knows about it at run time, filled from the op list.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hyalite/scalar.h"
#include "hyalite/tensor.h"
#include "ops/attributes.h"
#include "ops/mark.h"
#include "ops/op.h"
#include "tensor/shape.h"
#include "tensor/small_vector.h"
#include "tensor/tensor_impl.h"

namespace hyalite {

/// An operand: a tensor, or a scalar already in the dtype the op computes in, never a buffer.
struct Operand {
  TensorImpl* tensor = nullptr;
  Dtype dtype = Dtype::float32;
  Scalar scalar;
  alignas(16) std::array<std::byte, 16> bytes;  // of the scalar in `dtype`
};

/// What an output will be, before there is any memory for it.
struct OutputSpec {
  Dtype dtype = Dtype::float32;
  DimList shape;
  DimList strides;          ///< in elements; the guard makes those of ops that say none
  std::int64_t offset = 0;  ///< of a view, from its operand's first element, in elements of its own dtype

  OutputSpec() {}  // not defaulted: `OutputSpec()` would zero all of it
  OutputSpec(Dtype d, Dims s) : dtype(d), shape(s) {}
};

/// The results of a call, as many as the op has: fresh tensors, or for an in-place op the target.
class Outputs {
 public:
  Outputs() { of_[0] = nullptr; }
  [[gnu::always_inline]] explicit Outputs(TensorRef only) : count_(1) { of_[0] = only.leak(); }
  [[gnu::always_inline]] Outputs(Outputs&& o) noexcept : count_(std::exchange(o.count_, 0)) {
    of_[0] = o.of_[0];
    if (count_ > 1) [[unlikely]]
      std::copy_n(o.of_, count_, of_);
  }
  Outputs& operator=(Outputs&&) = delete;
  [[gnu::always_inline]] ~Outputs() {
    if (count_ > 1) [[unlikely]]
      release_others();
    if (count_ != 0 && of_[0] != nullptr) of_[0]->release();
  }
  void add(TensorRef next) { of_[count_++] = next.leak(); }
  TensorImpl* operator[](int k) const { return of_[k]; }
  /// Hands one over.
  [[gnu::always_inline]] TensorRef take(int k = 0) { return TensorRef::adopt(std::exchange(of_[k], nullptr)); }
  std::span<TensorImpl* const> all() const { return {of_, static_cast<std::size_t>(count_)}; }

 private:
  [[gnu::noinline]] void release_others() {
    for (int k = 1; k < count_; ++k) {
      if (of_[k] != nullptr) of_[k]->release();
    }
  }
  int count_ = 0;
  TensorImpl* of_[most_outputs];
};

struct OpInfo;
/// One call of an op, before it is computed.
struct Call {
  const OpInfo& op;
  std::span<const Operand> in;
  const Attributes* attrs = nullptr;
  AttrRef* given = nullptr;  ///< the caller's own count of `attrs`, for one who keeps them to take
  const TensorImpl& x(int i) const { return *in[i].tensor; }
  /// The attributes of an op whose aggregate is A.
  template <class A>
  const A& attributes() const {
    return attrs->as<A>();
  }
};

inline constexpr int most_operands = 3;  ///< of an op with a fixed number

/// A call that owns what it names, to be computed at any time: its tensors are held, its attributes shared.
class OpCall {
 public:
  explicit OpCall(const Call& c) : op_(&c.op), attrs_(AttrRef::share(c.attrs)) {
    for (const Operand& o : c.in) {
      operands_.push_back(o);
      held_.push_back(TensorRef::share(o.tensor));
    }
  }
  Call call() const { return {*op_, {operands_.data(), operands_.size()}, attrs_.get()}; }

 private:
  const OpInfo* op_;
  SmallVector<Operand, most_operands> operands_;
  SmallVector<TensorRef, most_operands> held_;
  AttrRef attrs_;
};

/// What the gradient of one operand may look at (mark.h names the leaves), as tensors: those that the node saved, and
/// stand-ins that have only a shape for those that no gradient reads.
struct GradientCall {
  std::span<const Tensor> leaves;
  const Attributes* attrs;
  Dtype dtype;  ///< of an elementwise gradient
};

/// What an op's tangent may look at: the tangents of the operands, of which any may be empty, and the leaves as above.
struct TangentCall {
  std::span<const Tensor> tangents, leaves;
  const Attributes* attrs;
};

struct OpInfo {
  OpSchema schema;
  int index = 0;
  int arity = 0;  ///< -1: a list of tensors
  int outputs = 1;
  int elementwise = -1;  ///< place in the list of elementwise ops
  std::string node_name;
  std::vector<std::string> params;
  AttrRef defaults;                                  ///< null for an op without attributes
  std::array<GradientReads, most_operands> reads{};  ///< by operand; of elementwise ops, of others only what exists
  int device_field = -1;                             ///< the attribute that says where an op without operands works

  /// Dtype and shape of each output; throws on operands that do not fit. Null for elementwise ops, which broadcast, for
  /// views, and for composites that leave it to their parts.
  void (*infer)(const Call&, OutputSpec* const* outputs) = nullptr;
  /// The view, for ops that only look at their operand in another way; false where the strides do not allow one.
  bool (*view)(const Call&, OutputSpec&) = nullptr;
  /// The results by other ops, for ops without a kernel of their own.
  Outputs (*compose)(const Call&) = nullptr;
  /// The gradient for operand i as recorded ops.
  Tensor (*gradient)(const GradientCall&, int i) = nullptr;
  /// The gradients of a variadic op for the operands that are wanted, all in one walk over them.
  void (*gradients)(const GradientCall&, const std::vector<std::uint8_t>& wanted, std::span<Tensor> result) = nullptr;
  /// The tangent of the result, of ops that are neither elementwise nor linear and say it under their gradient.
  Tensor (*tangent)(const TangentCall&) = nullptr;
  bool has_gradient = false;
  bool needs_shapes = false;  ///< gradients ask for the operands' shapes

  /// Made of ops that record themselves.
  bool follows_parts() const { return compose != nullptr && gradient == nullptr && gradients == nullptr; }
  bool differentiable() const { return has_gradient || (follows_parts() && arity != 0); }
  /// Tensors alone may make a call: a fixed number of them, and every attribute has a default.
  bool takes_tensors_alone() const {
    return arity > 0 && !schema.identity_on_reals && (fields().empty() || !fields()[0].required);
  }
  std::string_view name() const { return schema.name; }
  std::span<const AttrField> fields() const {
    return defaults ? std::span<const AttrField>(defaults->layout().fields) : std::span<const AttrField>();
  }
};

/// By operand: the leaves (mark.h) that its gradient reads, which are what a node saves. Of elementwise ops this is
/// known at compile time; of others it is found once, on the meta device.
std::span<const GradientReads> gradient_reads(const OpInfo& op);

/// All ops; `find_op` throws ValueError for an unknown name.
const std::vector<OpInfo>& op_table();
const OpInfo& find_op(std::string_view name);

/// Bytes of a scalar in a dtype, rounded and wrapped as `astype` would.
void encode_scalar(const Scalar& s, Dtype dtype, std::byte* to);

}  // namespace hyalite
