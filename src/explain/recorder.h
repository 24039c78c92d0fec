/// The recorder inside all phases: what was decided, by which rule, from which values, and how long it took.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "explain/event.h"
#include "explain/plan_graph.h"

namespace hyalite {

struct OpInfo;

/// In words.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// One step that really happened.
struct Step {
  Phase phase;
  Who from, to;
  StepKind kind;
  std::string label;
  Facts facts;
  std::string why;
  int depth = 0;            ///< ops within ops
  int op = 0;               ///< its op's place in `Recorder::ops`; -1 for the op to come
  std::int64_t ticks = -1;  ///< from begin to end; negative: this run did not time it
  // Counted by the code that did the work; empty where it counts nothing.
  std::optional<std::int64_t> bytes_moved;  ///< read and written, by the step and by the copies within it
  std::optional<std::int64_t> bytes_least;  ///< that no other way of computing the same could have spared
  std::optional<double> operations;         ///< of arithmetic
  int copies = 0;                           ///< made on the way, beside the result
  std::int64_t copied_bytes = 0;            ///< written by them
  std::string source_op;                    ///< op whose formula is the kernel's source
  int number = 0;                           ///< counted as steps begin
  int parent = -1;                          ///< number of the step that it lies within
  const void* kernel = nullptr;             ///< machine code that ran; null where it is not one function
  int plan = -1, plan_kernel = -1;          ///< places in `Recorder::plans` and its kernels; -1 outside of a plan
  std::vector<Launch> launches;             ///< on a device that works by itself
};

/// One call of an op, seen from outside.
struct RecordedOp {
  std::string name, where, result_dtype, result_device, grad_fn;
  std::vector<std::int64_t> result_shape;
  std::vector<std::string> participants;  ///< names for Who
  std::string isa;
  std::string library;  ///< that computed in place of a kernel of ours
  int threads = 0;      ///< 0 where none were counted
  int parent = -1;      ///< place of the op that called it
};

/// Filled by one run of the explained function. Reads the clock for at most one step a run, so that steps shorter than
/// a reading of the clock can be timed by the median of several runs.
class Recorder {
 public:
  /// `timed`: number of the step to time in this run, or `time_all` for every step in one run, or `time_none`.
  static constexpr int time_none = -1, time_all = -2;
  explicit Recorder(int timed = time_none) : timed_(timed) {}

  std::vector<Step> steps;  ///< as they ended
  std::vector<RecordedOp> ops;
  std::vector<PlanGraph> plans;
  bool has_effects = false;  ///< something outlives the run, an in-place write or a `grad`: it must not run again

  /// Begins a step and starts its clock. Steps nest only through calls of `begin_op`.
  void begin(Phase phase, Who from, Who to, StepKind kind);
  /// Stops the clock of the step begun last. Call it before the texts for `end` are made, or they count as its time.
  void stop();
  /// Ends the step begun last, and stops its clock if it still runs.
  void end(Event event, const Sayings& said = {});
  /// The same in words, which `end(Event)` finds.
  void end(std::string label, Facts facts = {}, std::string why = {});
  void begin_op(std::string name);
  /// Also ends the op's steps that an exception left open; `error` is what it says.
  void end_op(std::string error = "an exception ended it");
  /// Runs what a front end does for an op. What raises before the op begins is given to the op all the same.
  template <class F>
  auto guarded(std::string_view op, F f) {
    const Mark mark{steps.size(), open_.size(), ops.size()};
    try {
      return f();
    } catch (const std::exception& error) {
      refuse(op, mark, error.what());
      throw;
    } catch (...) {
      refuse(op, mark, "a Python exception");
      throw;
    }
  }
  /// Counts a copy that the step begun last had to make.
  void copied(std::int64_t bytes_written);
  /// Of the step begun last.
  int copies_so_far() const { return open_.empty() ? 0 : open_.back().step.copies; }
  /// A kernel was asked of a device, in the step begun last.
  void launched(Launch l);
  /// Names who took part in the op that is being recorded.
  void took_part(std::string_view op, std::string_view node);
  /// Says through which door the op that ended last as `op`, or as what it is of some operands, was entered, such as
  /// `__add__`.
  void entered_by(const OpInfo& op, std::string door);
  int depth() const { return depth_; }
  RecordedOp& current_op() { return ops[static_cast<std::size_t>(open_ops_.back().index)]; }
  Step& last() { return steps.back(); }

  /// A plan begins; what is recorded until `end_plan` belongs to it, and to the kernel named last. Only a run that
  /// times every step keeps plans, since their texts take longer than they do.
  bool keeps_plans() const { return timed_ == time_all; }
  void begin_plan(PlanGraph plan) {
    plans.push_back(std::move(plan));
    plan_ = static_cast<int>(plans.size()) - 1;
  }
  void begin_plan_kernel(int k) { plan_kernel_ = k; }
  void end_plan() { plan_ = plan_kernel_ = -1; }

 private:
  struct Open {
    Step step;
    std::uint64_t started = 0;
  };
  struct OpenOp {
    int index;
    std::size_t steps;  // open when it began
  };
  struct Mark {
    std::size_t steps, open, ops;
  };
  void refuse(std::string_view op, const Mark& since, const std::string& error);
  void close_to(std::size_t open, const std::string& error);
  bool timed(const Step& step) const { return timed_ == time_all || timed_ == step.number; }
  int op_now(Phase phase) const;

  int timed_;
  int begun_ = 0;
  int depth_ = 0;
  int plan_ = -1, plan_kernel_ = -1;
  int last_outer_ = 0;  // the op that a step after its end still belongs to
  std::vector<Open> open_;
  std::vector<OpenOp> open_ops_;
  Recorder* hidden_ = nullptr;  // while the one timed step runs: what lies within it is not slowed by recording
};

/// One step as a phase sees it: told to the recorder where there is one, else a branch.
class Span {
 public:
  [[gnu::always_inline]] Span(Recorder* r, Phase phase, Who from, Who to, StepKind kind) : r_(r) {
    if (r_ != nullptr) [[unlikely]]
      r_->begin(phase, from, to, kind);
  }
  /// Stops the clock, so that what is said of the step takes no time of it. Whether anybody listens.
  [[gnu::always_inline]] bool over() {
    if (r_ == nullptr) [[likely]]
      return false;
    r_->stop();
    return true;
  }
  /// Only where somebody listens.
  void end(Event event, const Sayings& said = {}) { r_->end(event, said); }

 private:
  Recorder* r_;
};

}  // namespace hyalite
