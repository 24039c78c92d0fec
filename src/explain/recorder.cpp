/// Collects the steps of one run.
#include "explain/recorder.h"

#include <cassert>

#include "explain/ceiling.h"
#include "ops/op_info.h"
#include "tensor/context.h"

namespace hyalite {

void Recorder::begin(Phase phase, Who from, Who to, StepKind kind) {
  Open& open = open_.emplace_back();
  open.step.phase = phase;
  open.step.from = from;
  open.step.to = to;
  open.step.kind = kind;
  open.step.depth = depth_ > 0 ? depth_ - 1 : 0;
  open.step.op = op_now(phase);
  open.step.number = begun_++;
  open.step.plan = plan_;
  open.step.plan_kernel = plan_kernel_;
  if (open_.size() > 1) open.step.parent = open_[open_.size() - 2].step.number;
  if (timed_ == open.step.number) hidden_ = std::exchange(context().recorder, nullptr);
  if (timed(open.step)) open.started = explain::ticks();
}

void Recorder::stop() {
  Open& open = open_.back();
  if (timed(open.step) && open.step.ticks < 0) {
    open.step.ticks = static_cast<std::int64_t>(explain::ticks() - open.started);
    if (timed_ == open.step.number) context().recorder = hidden_;
  }
}

void Recorder::end(std::string label, Facts facts, std::string why) {
  assert(!open_.empty());
  stop();
  Step& step = open_.back().step;
  step.label = std::move(label);
  step.facts = std::move(facts);
  step.why = std::move(why);
  steps.push_back(std::move(step));
  open_.pop_back();
}

void Recorder::begin_op(std::string name) {
  const int index = static_cast<int>(ops.size());
  RecordedOp& op = ops.emplace_back();
  op.name = std::move(name);
  if (open_ops_.empty()) {
    last_outer_ = index;
  } else {
    op.parent = open_ops_.back().index;
  }
  open_ops_.push_back({index, open_.size()});
  ++depth_;
}

void Recorder::close_to(std::size_t open, const std::string& error) {
  while (open_.size() > open) end(Event::raised, {{Fact::reason, error}});
}

void Recorder::end_op(std::string error) {
  assert(!open_ops_.empty());
  close_to(open_ops_.back().steps, error);
  open_ops_.pop_back();
  --depth_;
}

void Recorder::refuse(std::string_view op, const Mark& since, const std::string& error) {
  close_to(since.open, error);
  for (std::size_t i = since.ops; i < ops.size(); ++i) {
    if (ops[i].name == op) return;  // it had begun, and has ended its steps itself
  }
  const auto place = static_cast<int>(ops.size());
  ops.emplace_back().name = op;
  if (!open_ops_.empty()) ops.back().parent = open_ops_.back().index;
  for (std::size_t i = since.steps; i < steps.size(); ++i) {
    if (steps[i].op < 0) steps[i].op = place;
  }
}

void Recorder::launched(Launch l) {
  if (!open_.empty()) open_.back().step.launches.push_back(std::move(l));
}

void Recorder::copied(std::int64_t bytes_written) {
  if (open_.empty()) return;
  ++open_.back().step.copies;
  open_.back().step.copied_bytes += bytes_written;
}

/// Before its op begins a step belongs to an op to come (a cast may come first), after its end to the one that was.
int Recorder::op_now(Phase phase) const {
  if (!open_ops_.empty()) return open_ops_.back().index;
  return phase == Phase::python ? -1 : last_outer_;
}

void Recorder::entered_by(const OpInfo& op, std::string door) {
  for (auto o = ops.rbegin(); o != ops.rend(); ++o) {
    if (o->name != op.name() && o->name != op.schema.with_two) continue;
    if (o->participants.size() == who_count) o->participants[static_cast<std::size_t>(Who::slot)] = std::move(door);
    return;
  }
}

}  // namespace hyalite
