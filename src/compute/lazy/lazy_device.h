/// A device that computes later: calls add nodes to one graph, which runs when a value is asked for or enough waits.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "compute/lazy/nodes.h"
#include "compute/lazy/plan_cache.h"
#include "explain/recorder.h"

namespace hyalite::lazy {

/// What waits on a device.
struct Pending {
  std::int64_t nodes = 0;                           ///< added since it last ran
  std::int64_t bytes = 0;                           ///< of values that somebody holds and that are not computed
  std::string line;                                 ///< where the largest of them was asked for
  std::int64_t runs = 0, kernels = 0, flushes = 0;  ///< so far: plans, their steps, those run because enough waited
  std::int64_t planned = 0;                         ///< plans that were made: the others had been kept
};

/// The storage of a tensor on such a device is a cell: it knows the value that the memory holds, a node's output. A
/// write puts another value there. Values become memory when the graph runs; nodes that nobody reads never do.
class LazyDevice final : public GraphBuilder {
 public:
  /// `executor` computes plans over memory of its own; it outlives this.
  LazyDevice(Device device, Backend& executor) : device_(device), executor_(executor) {}
  LazyDevice(const LazyDevice&) = delete;
  LazyDevice& operator=(const LazyDevice&) = delete;

  Use read(const TensorImpl& t) override;
  Value value_of(Storage& s) override;
  void set_value(Storage& s, Value v) override;
  TensorRef foreseen(const NodeRef& node, int k) override;

  /// A tensor over memory of the executor.
  TensorRef over(Dtype dtype, Dims shape, Dims strides, Ref<Storage> memory);
  /// Memory of the executor with the tensor's value. Runs what it needs.
  Ref<Storage> memory_of(const TensorImpl& t);

  /// Computes every value that somebody holds. What raises leaves all values as they were: they still wait.
  void run();
  Pending pending() const;

  /// Held while nodes are added: the graph is one for all threads. Lets go of the GIL while it waits.
  class Lock {
   public:
    explicit Lock(const LazyDevice& d);

   private:
    std::unique_lock<std::recursive_mutex> lock_;
  };
  /// For an entry of the backend: locks, and runs what waits if that is enough.
  class Entry {
   public:
    explicit Entry(LazyDevice& d) : lock_(d) { d.run_if_enough(); }

   private:
    Lock lock_;
  };
  /// Ends the step of a call that has added its node.
  void tell(Recorder& rec, std::string_view op) const;

 private:
  struct Cell;
  Cell& cell_of(const Storage& s) const;
  void run_if_enough();

  Device device_;
  Backend& executor_;
  mutable std::recursive_mutex mutex_;
  Cell* cells_ = nullptr;  // those that are alive
  PlanCache plans_;
  std::int64_t nodes_ = 0, waiting_bytes_ = 0, runs_ = 0, kernels_ = 0, flushes_ = 0;
  Location mark_{};  // the line of the node with which this stretch began; compared, not described
};

}  // namespace hyalite::lazy
