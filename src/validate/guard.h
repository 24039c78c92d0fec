/// SchemaGuard: every op passes it before anything is computed; what it returns is the only key to the backends.
#pragma once

#include <cstddef>
#include <new>

#include "explain/recorder.h"
#include "ops/op_info.h"
#include "tensor/context.h"

namespace hyalite {

/// A call that has passed the guard. Only SchemaGuard makes one, and backends compute nothing else.
class Validated {
 public:
  const Call& call() const { return call_; }
  Device device() const { return device_; }
  Dtype dtype() const { return dtype_; }  ///< the kernel computes in
  /// Of output k; so the others. All outputs of an elementwise op have one shape.
  Dtype out_dtype(int k = 0) const {
    return k == 0 ? out_dtype_ : is_elementwise() ? call_.op.schema.result_dtype(dtype_, k) : spec(k).dtype;
  }
  Dims shape(int k = 0) const { return like_ != nullptr ? like_->shape() : Dims(spec(k).shape); }
  /// In elements. Not known of an in-place op, whose output is there, nor of a composite, whose ops make theirs.
  Dims strides(int k = 0) const { return like_ != nullptr ? like_->strides() : Dims(spec(k).strides); }
  /// The operand whose shape and strides the outputs take over; null where they had to be made.
  const TensorImpl* like() const { return like_; }
  /// All other tensors lie as that one does.
  bool uniform() const { return uniform_; }
  /// Of a view: where it begins, and whether the operand's strides allow it.
  std::int64_t offset() const { return spec_at(0).offset; }
  bool viewable() const { return viewable_; }
  bool mixed() const { return mixed_; }               ///< a comparison of unequal dtypes
  int real_operand() const { return real_operand_; }  ///< the one that is real beside a complex one; -1: none

 private:
  friend class SchemaGuard;
  explicit Validated(const Call& call) : call_(call) {}
  const Call& call_;
  Device device_;
  Dtype dtype_ = Dtype::float32, out_dtype_ = Dtype::float32;
  const TensorImpl* like_ = nullptr;
  bool uniform_ = false;
  bool mixed_ = false;
  bool viewable_ = true;
  int real_operand_ = -1;
  /// Room for specs, which the common call does not make.
  struct Room {
    alignas(OutputSpec) std::byte bytes[sizeof(OutputSpec)];
  };
  std::array<Room, most_outputs> out_;

  /// The k-th spec, made now.
  OutputSpec& make_spec(int k) { return *new (out_[static_cast<std::size_t>(k)].bytes) OutputSpec(); }
  const OutputSpec& spec_at(int k) const {
    return *std::launder(reinterpret_cast<const OutputSpec*>(out_[static_cast<std::size_t>(k)].bytes));
  }
  bool is_elementwise() const { return call_.op.elementwise >= 0; }
  const OutputSpec& spec(int k) const { return spec_at(is_elementwise() ? 0 : k); }
};

class SchemaGuard {
 public:
  /// Checks dtypes and devices first, then shapes, then determinism. Throws DtypeMismatch, DeviceMismatch,
  /// ShapeMismatch, NotDeterministic; nothing has been written by then. `target` is the tensor an in-place op writes;
  /// it may be null, and so may `rec`.
  [[gnu::always_inline]] static Validated check(Recorder* rec, const Call& call, const TensorImpl* target) {
    Span span(rec, Phase::validate, Who::op, Who::guard, StepKind::guard);
    Validated v(call);
    if (call.op.schema.kind == OpKind::view) {
      check_view(v);
    } else if (call.op.elementwise < 0) {
      check_other(v);
    } else if (!alike(v)) {
      check_elementwise(v, target != nullptr);
    }
    if (deterministic()) [[unlikely]] {
      check_determinism(v);
    }
    if (target != nullptr) check_target(v, *target);
    if (span.over()) report(*rec, v, target);
    return v;
  }

 private:
  /// Of an elementwise op, a contiguous tensor, or two of one dtype, device and shape, which it takes: the common case,
  /// accepted in a few steps.
  [[gnu::always_inline]] static bool alike(Validated& v) {
    const Call& c = v.call_;
    if (c.in.size() > 2) return false;
    const TensorImpl *a = c.in[0].tensor, *b = c.in.back().tensor;
    if (a == nullptr || b == nullptr || a->dtype() != b->dtype() || !a->contiguous() || !b->contiguous()) return false;
    if (a->device() != b->device() || !same_shape(*a, *b) || !contains(c.op.schema.types, a->dtype())) return false;
    v.device_ = joined(a->device(), b->device());
    v.dtype_ = a->dtype();
    v.out_dtype_ = c.op.schema.result_dtype(a->dtype());
    v.like_ = a;
    v.uniform_ = true;
    return true;
  }
  static void check_elementwise(Validated& v, bool in_place);
  static void check_view(Validated& v);
  static void check_other(Validated& v);
  static void check_creation(Validated& v);
  /// Asks the op what its outputs will be.
  static void foresee(Validated& v);
  static void check_determinism(const Validated& v);
  static void check_target(Validated& v, const TensorImpl& target);
  static void report(Recorder& r, const Validated& v, const TensorImpl* target);
};

/// The dtype autocast wants the op to run in, or the operands' own. `dtype` is that of the first floating operand.
Dtype autocast_dtype(const Autocast& autocast, const OpSchema& schema, Dtype dtype);

}  // namespace hyalite
