/// One traced run of a function, made ready to run again on other tensors without the function.
#pragma once

#include <functional>
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

/// Bytes of a piece of memory; a range of none is not the same as no range.
struct ByteRange {
  std::int64_t first = 1, end = 0;
  bool any() const { return first <= end; }
  /// Takes in the elements of a form.
  void add(const TensorImpl& form);
};

/// The recorded run. Made in two parts: `Trace` while the function runs, then this from what it returned.
class Compiled : public std::enable_shared_from_this<Compiled> {
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
    bool only_sizes = false;  ///< sizes, strides or numbers, which are no other signature
  };
  Difference difference(const ModeKey& mode, std::span<TensorImpl* const> arguments,
                        std::span<const std::string> names) const;
  /// Throws what the plan throws; effects that came before it stay.
  void run(std::span<TensorImpl* const> arguments, Recorder* rec, SmallVector<TensorRef, 4>& results) const;
  const lazy::Plan& plan() const { return *plan_; }
  /// Which argument an input of the plan is, or is a part of; -1 for a tensor reached by another name.
  int argument_of(int slot) const { return slots_[static_cast<std::size_t>(slot)].argument; }
  /// A value as the plan made it, and as its ops make it one by one from the same arguments.
  struct Pair {
    int tier, step;
    std::string name, line;
    TensorRef plan, ops;
  };
  /// Runs the ops one by one, and the plan: on the CPU in tier 0, and in tier 1 unless the compiler is not there; or on
  /// a device that computes later. All over copies of all memory, so that nothing is written. Throws Unsupported where
  /// the device cannot.
  std::vector<Pair> compare(std::span<TensorImpl* const> arguments, Device device) const;
  /// How long a call takes as the plan, and as its ops one by one; medians in seconds.
  struct Times {
    double plan, ops;
    int rounds;
  };
  /// Takes turns for about so many seconds, over copies of all memory, so that nothing is written.
  Times measure(std::span<TensorImpl* const> arguments, double seconds) const;
  /// Of the gradients of the results; null where none was wanted.
  const lazy::Plan* backward_plan() const { return backward_ ? &*backward_->plan : nullptr; }
  /// The function itself on such arguments, op by op; its results. For gradients that are recorded themselves.
  using Again = std::function<std::vector<Tensor>(std::span<const TensorRef> arguments)>;

 private:
  friend class Trace;
  friend class CompiledNode;
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
  /// Gradients of the results, by a plan of their own: what is made of elementwise ops is computed again, what else the
  /// first plan made is kept.
  struct Backward {
    std::optional<lazy::Plan> plan;
    /// A tensor that a gradient goes to: an argument, or one that the function reached by other names.
    struct Target {
      int argument = -1;
      TensorRef held;
    };
    std::vector<Target> targets;
    std::vector<int> places;           ///< by target: of its gradient among the plan's results; -1: none
    std::vector<TensorRef> gradients;  ///< by target: how it lies
    std::vector<int> outputs;          ///< by output of the node: which result it is
    std::vector<TensorRef> forms;      ///< of the outputs' gradients
    std::vector<int> kept;             ///< places among the first plan's results
    std::vector<ByteRange> reads;      ///< by slot: of the input's memory, where it lay when it was traced
    std::vector<int> edges;            ///< by argument: which target it is; -1: none
    bool reads_values = false;         ///< the gradients are not the same for all arguments
  };
  /// All memory that the plan takes, copied.
  struct Copies {
    std::vector<TensorRef> held;
    std::vector<lazy::Memory> memory;
  };
  Copies copies(std::span<TensorImpl* const> arguments) const;
  void record(std::span<TensorImpl* const> arguments, std::span<const lazy::Memory> inputs,
              std::span<const Ref<Storage>> made, SmallVector<TensorRef, 4>& results) const;
  TensorRef result(const Result& r, std::span<TensorImpl* const> arguments, std::span<const lazy::Memory> inputs,
                   std::span<const Ref<Storage>> made) const;

  ModeKey mode_;
  std::vector<ArgumentKey> arguments_;
  std::vector<Slot> slots_;
  std::vector<Held> held_;
  std::vector<Result> results_;
  std::vector<Gradient> gradients_;
  lazy::Roots roots_;
  std::optional<lazy::Plan> plan_;
  std::optional<Backward> backward_;
  Again again_;
};

/// Follows the function. What it does to tensors that were there is undone when this goes, to be done by the plan.
class Trace {
 public:
  Trace(std::span<TensorImpl* const> arguments, lazy::Tier tier);
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

  /// Follows the gradients of what the function returned, where any is wanted; while it may still run.
  void differentiate(std::span<TensorImpl* const> results);
  /// Of what the function returned. Throws Unsupported where a value has left the function by another way.
  std::shared_ptr<const Compiled> finish(std::span<TensorImpl* const> results, Compiled::Again again);
  /// The line of a traced tensor that somebody still holds; empty where nobody does. Asked after the results are gone.
  std::string escaped() const;

 private:
  struct Before {
    TensorRef tensor;
    bool wants_grad;
    TensorRef gradient;
    NodeRef grad_fn;
    std::uint32_t output;
    std::uint64_t history;
  };
  void note(TensorImpl& t);
  void restore();
  void plan_backward(lazy::Roots& roots);
  int argument_of(const TensorImpl& t) const;
  Compiled::Result result_of(TensorImpl& t, lazy::Roots& roots);

  /// What `differentiate` has found.
  struct Wanted {
    Compiled::Backward::Target target;
    lazy::Use gradient;
  };
  std::vector<TensorRef> arguments_;
  std::vector<Before> before_;
  std::vector<Wanted> wanted_;
  std::vector<lazy::NodeRef> given_;  // the gradients that come in
  std::vector<int> outputs_;          // which results they are of
  std::uint64_t since_, boundary_ = 0;
  lazy::Tier tier_;
  Tracer tracer_;
  std::shared_ptr<Compiled> compiled_;
};

}  // namespace hyalite
