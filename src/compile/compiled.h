/// One traced run of a function, made ready to run again on other tensors without the function.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "compute/lazy/plan.h"
#include "compute/lazy/tracer.h"
#include "record/node.h"
#include "tensor/context.h"

namespace hyalite {

/// What has to be as it was when the function was traced.
struct ModeKey {
  bool grad_mode, autocast;
  Dtype autocast_dtype;
  bool deterministic;
  bool operator==(const ModeKey&) const = default;
  static ModeKey now();
};

/// What one argument has to be. The first of a piece of memory may lie anywhere; the others as far from it as then.
struct ArgumentKey {
  Dtype dtype;
  Device device;
  bool wants_grad, read_only, has_gradient;
  Shape64 shape, strides;
  int memory = 0;             ///< the first argument in the same storage, itself or one before
  std::int64_t distance = 0;  ///< from that one, in bytes
  int same = 0;               ///< the first argument that is this very tensor
};

/// The recorded run. Made in two parts: `Trace` while the function runs, then this from what it returned.
class Compiled {
 public:
  /// One result: a tensor of the plan, or one that was there before.
  struct Result {
    int place = -1;     ///< among the plan's results
    int argument = -1;  ///< it is that argument itself
    TensorRef held;     ///< a tensor that the function reached by other names
    int slot = -1;      ///< it is a view of an input's memory
    TensorRef form;     ///< how it lies
  };

  bool serves(const ModeKey& mode, std::span<TensorImpl* const> arguments) const;
  /// Why it does not serve these.
  struct Difference {
    std::string what;         ///< empty where nothing differs
    bool only_sizes = false;  ///< sizes or strides, which are no other signature
  };
  Difference difference(const ModeKey& mode, std::span<TensorImpl* const> arguments,
                        std::span<const std::string> names) const;
  /// Throws what the plan throws; effects that came before it stay.
  void run(std::span<TensorImpl* const> arguments, Recorder* rec, SmallVector<TensorRef, 4>& results) const;
  const lazy::Plan& plan() const { return *plan_; }

 private:
  friend class Trace;
  /// Memory of an input: of an argument, or held.
  struct Slot {
    int argument = -1;
    std::int64_t offset = 0;  ///< of that argument when it was traced, in bytes
    Ref<Storage> held;
    bool written = false;
  };
  /// A gradient that the function leaves on a tensor.
  struct Gradient {
    int argument = -1;
    TensorRef of;
    Result value;
    bool none = false;
  };
  /// A tensor reached by other names whose state the trace has seen.
  struct Held {
    TensorRef tensor;
    bool wants_grad;
    TensorRef gradient;
  };
  TensorRef result(const Result& r, std::span<TensorImpl* const> arguments, std::span<const lazy::Memory> inputs,
                   std::span<const Ref<Storage>> made) const;

  ModeKey mode_;
  std::vector<ArgumentKey> arguments_;
  std::vector<Slot> slots_;
  std::vector<Held> held_;
  std::vector<Result> results_;
  std::vector<Gradient> gradients_;
  std::optional<lazy::Plan> plan_;
};

/// Follows the function. What it does to tensors that were there is undone when this goes, to be done by the plan.
class Trace {
 public:
  explicit Trace(std::span<TensorImpl* const> arguments);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// While it lives the function may run.
  class Running {
   public:
    explicit Running(Trace& t) : tracer_(context().tracer, &t.tracer_), recorder_(context().recorder, nullptr) {}

   private:
    ScopedSet<Tracer*> tracer_;
    ScopedSet<Recorder*> recorder_;
  };

  /// Of what the function returned. Throws Unsupported where a value has left the function by another way.
  std::shared_ptr<const Compiled> finish(std::span<TensorImpl* const> results);
  /// The line of a traced tensor that somebody still holds; empty where nobody does. Asked after the results are gone.
  std::string escaped() const;

 private:
  struct Before {
    TensorRef tensor;
    bool wants_grad;
    bool had_autograd;
    TensorRef gradient;
    NodeRef grad_fn;
    std::uint32_t output;
    std::uint64_t history;
  };
  void note(TensorImpl& t);
  void restore();
  int argument_of(const TensorImpl& t) const;
  Compiled::Result result_of(TensorImpl& t, lazy::Roots& roots);

  std::vector<TensorRef> arguments_;
  std::vector<Before> before_;
  Tracer tracer_;
  std::shared_ptr<Compiled> compiled_;
};

}  // namespace hyalite
