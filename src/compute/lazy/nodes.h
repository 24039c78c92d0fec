/// What a backend that computes later does with what it is asked: a node for each call.
#pragma once

#include "compute/lazy/graph.h"

namespace hyalite::lazy {

/// Who knows which value each piece of memory holds: a tracer, or a device.
class GraphBuilder {
 public:
  virtual ~GraphBuilder() = default;
  /// The elements of `t` as they are at this point.
  virtual Use read(const TensorImpl& t) = 0;
  /// A tensor is about to be written.
  virtual void will_write(const TensorImpl&) {}
  /// The value of the memory at this point.
  virtual Value value_of(Storage& s) = 0;
  virtual void set_value(Storage& s, Value v) = 0;
  /// A tensor that is output `k` of the node.
  virtual TensorRef foreseen(const NodeRef& node, int k) = 0;
};

/// A form: dtype, shape, strides and offset, without memory.
TensorRef form_of(Dtype dtype, Dims shape, Dims strides, std::int64_t offset);
TensorRef form_of(const TensorImpl& t);

// The entries of a backend (compute/backend.h).
Outputs add_call(GraphBuilder& b, const Validated& v, TensorImpl* target);
TensorRef add_memory(GraphBuilder& b, Dtype dtype, Dims shape, Dims strides);
void add_copy(GraphBuilder& b, const TensorImpl& from, TensorImpl& to);
void add_fill(GraphBuilder& b, TensorImpl& to, const std::byte* value);
/// An empty handle where `computes` has no fused kernel for it.
Tensor add_gradient(GraphBuilder& b, const GradientRequest& q, const Backend& computes);

}  // namespace hyalite::lazy
