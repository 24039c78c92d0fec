/// Follows one run of a function: its ops become nodes, its writes new values of the memory that they write.
#pragma once

#include <functional>
#include <unordered_map>

#include "compute/lazy/nodes.h"
#include "tensor/context.h"

namespace hyalite {

/// On while a function is traced: the CPU's ops then go to a backend that makes nodes. Memory that was there before is
/// an input of the graph, whoever brings it: an argument, or what the function reaches by other names.
class Tracer final : public lazy::GraphBuilder {
 public:
  Tracer() = default;
  ~Tracer() override;
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// Memory that was there before.
  struct Captured {
    Ref<Storage> storage;
    lazy::Value first, now;
    /// Whether what it holds at the end is for others to see.
    bool written() const { return now != first && !first.node->constant; }
  };
  const std::vector<Captured>& captured() const { return captured_; }

  lazy::Use read(const TensorImpl& t) override;
  void will_write(const TensorImpl& t) override {
    if (t.storage()->cell() == nullptr) meet(t);
  }
  /// Notes a tensor that was there before.
  void meet(const TensorImpl& t);
  lazy::Value value_of(Storage& s) override;
  void set_value(Storage& s, lazy::Value v) override;
  TensorRef foreseen(const lazy::NodeRef& node, int k) override;
  /// A tensor whose value is given when the graph runs. The maker numbers its slot.
  TensorRef given(Dtype dtype, Dims shape);
  /// Memory that the function made of values from outside may be read while it is traced.
  void allow_reading(Storage& s) { made_outside_.emplace(&s, Ref<Storage>::share(&s)); }
  /// Whether it did, which is then no memory of anybody else.
  bool may_read(const Storage& s) const { return made_outside_.contains(&s); }
  /// What made a traced tensor that somebody still holds; null where nobody does.
  const lazy::Node* held_by_others() const;
  /// Calls f for each tensor that was there before, when it is first met.
  void watch(std::function<void(TensorImpl&)> f) { met_ = std::move(f); }

 private:
  friend struct TracedCell;
  Captured& captured_of(Storage& s);
  std::vector<Captured> captured_;
  std::unordered_map<const Storage*, std::size_t> places_;
  std::unordered_map<const Storage*, Ref<Storage>> made_outside_;
  std::unordered_map<const TensorImpl*, TensorRef> tensors_;
  std::function<void(TensorImpl&)> met_;
  struct TracedCell* cells_ = nullptr;  // those that are alive
};

/// Turns a tracer on for a scope.
class Tracing {
 public:
  explicit Tracing(Tracer& t) : set_(context().tracer, &t) {}

 private:
  ScopedSet<Tracer*> set_;
};

}  // namespace hyalite
