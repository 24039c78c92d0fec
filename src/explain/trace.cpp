/// Joins what was recorded with its times and with the machine's ceilings.
#include "explain/trace.h"

#include <algorithm>
#include <cmath>

#include "compute/cpu/kernels.h"
#include "compute/cpu/threads.h"
#include "explain/ceiling.h"
#include "explain/disassemble.h"
#include "explain/format.h"

namespace hyalite {
namespace {

constexpr double near_the_ceiling = 0.6;  // of the bandwidth: from here on memory is what limits
constexpr double far_from_it = 0.25;      // and below this it is not
// What is smaller or shorter has ended before the memory's pipeline is full.
constexpr std::int64_t smallest_rated_bytes = 32 << 10;
constexpr double shortest_rated_ns = 1000;

/// Puts the steps in the order of their beginning and turns numbers into places.
std::vector<TraceStep> ordered_steps(std::vector<Step> steps, const Timing& timing) {
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.number < b.number; });
  std::vector<TraceStep> ordered;
  for (Step& step : steps) {
    TraceStep& made = ordered.emplace_back();
    made.step = std::move(step);
    const auto number = static_cast<std::size_t>(made.step.number);
    if (number < timing.ns.size()) made.ns = timing.ns[number];
    if (made.step.parent < 0) continue;
    const auto parent = std::lower_bound(ordered.begin(), ordered.end() - 1, made.step.parent,
                                         [](const TraceStep& s, int wanted) { return s.step.number < wanted; });
    const bool found = parent != ordered.end() - 1 && parent->step.number == made.step.parent;
    made.step.parent = found ? static_cast<int>(parent - ordered.begin()) : -1;
  }
  for (std::size_t i = 0; i < ordered.size(); ++i) ordered[i].step.number = static_cast<int>(i);
  return ordered;
}

/// Gives the front end's steps to the op that they led to: the next one that is not within a step, as a cast is.
void find_ops(std::vector<TraceStep>& steps) {
  int next = -1;
  for (auto s = steps.rbegin(); s != steps.rend(); ++s) {
    if (s->step.op >= 0 && s->step.parent < 0 && s->step.depth == 0) next = s->step.op;
    if (s->step.op < 0) s->step.op = next;
  }
}

/// Takes from each step the time of those within it, and lays the steps end to end.
void place_in_time(std::vector<TraceStep>& steps, const RecorderCost& cost) {
  const auto whole = [&](std::size_t i) { return std::max(0.0, steps[i].ns.value_or(0)); };
  std::vector<double> own(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    own[i] += whole(i);
    if (const int parent = steps[i].step.parent; parent >= 0) own[static_cast<std::size_t>(parent)] -= whole(i);
  }
  double at = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    TraceStep& s = steps[i];
    if (s.ns) s.ns = std::max(0.0, own[i]);
    s.below_resolution = s.ns && *s.ns < cost.resolution_ns;
    s.start_ns = at;
    at += s.ns.value_or(0);
  }
}

/// What is left of the total, unless the steps' own noise is as large.
void set_interpreter(TraceRecord& t, const Timing& timing) {
  if (!t.total_ns) return;
  double rest = *t.total_ns;
  for (const TraceStep& s : t.steps) {
    if (!s.ns) return;
    rest -= *s.ns;
  }
  if (rest > timing.spread_ns) t.interpreter_ns = rest;
}

/// One name for each participant; ops that disagree share a general one.
std::vector<std::string> join_participants(const TraceRecord& t) {
  static const char* const general[who_count] = {"User",        "front end", "_C_engine", "operation",
                                                 "SchemaGuard", "Backend",   "Kernel",    "Autograd"};
  std::vector<std::string> joined(general, general + who_count);
  for (std::size_t who = 0; who < joined.size(); ++who) {
    std::string name;
    bool agree = true;
    for (const RecordedOp& op : t.ops) {
      if (who >= op.participants.size() || op.participants[who].empty()) continue;
      if (!name.empty() && name != op.participants[who]) agree = false;
      name = op.participants[who];
    }
    if (agree && !name.empty()) joined[who] = name;
  }
  return joined;
}

bool is_kernel(const TraceStep& s) { return s.step.to == Who::kernel; }
const RecordedOp* op_of(const TraceRecord& t, const TraceStep& s) {
  const auto i = static_cast<std::size_t>(s.step.op);
  return i < t.ops.size() ? &t.ops[i] : nullptr;
}

std::string bytes_text(double bytes) {
  static const char* const units[] = {" B", " kB", " MB", " GB", " TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return (unit == 0 ? std::to_string(std::lround(bytes)) : format::significant(bytes)) + units[unit];
}

/// The copies that a step made on the way, in words.
void describe_copies(Step& step) {
  if (step.copies == 0) return;
  step.facts.emplace_back(
      "copies", std::to_string(step.copies) + ", " + bytes_text(static_cast<double>(step.copied_bytes)) + " written");
}

/// Words for what the kernel's own code counted. A share of the ceiling needs bytes that were counted.
void describe_kernel(TraceRecord& t, TraceStep& s, bool measure) {
  if (!s.step.source_op.empty()) s.source = op_source(find_op(s.step.source_op));
  if (s.step.operations && s.ns && *s.ns >= shortest_rated_ns) {
    s.step.facts.emplace_back("arithmetic", format::significant(*s.step.operations / *s.ns) + " GFLOP/s");
  }
  if (!s.step.bytes_moved) return;
  const std::int64_t bytes = *s.step.bytes_moved;
  const auto moved = static_cast<double>(bytes);
  std::string counted = bytes_text(moved);
  if (s.step.bytes_least) counted += " of " + bytes_text(static_cast<double>(*s.step.bytes_least)) + " least possible";
  s.step.facts.emplace_back("bytes moved", counted);
  // A device's kernel takes its time there.
  const std::optional<double> ns = s.step.launches.empty() ? s.ns : s.device_ns;
  if (!ns) return;
  if (*ns < shortest_rated_ns || bytes < smallest_rated_bytes) {
    s.step.facts.emplace_back("limited by", "latency: too few bytes for bandwidth to matter");
    return;
  }
  s.gb_per_s = moved / *ns;
  if (!s.step.launches.empty()) return;  // whose ceiling nobody has measured
  const RecordedOp* op = op_of(t, s);
  if (!measure || op == nullptr || op->threads < 1) return;
  const explain::Ceiling& c = explain::cache_ceiling(static_cast<std::size_t>(bytes), op->threads);
  const double share = s.gb_per_s / c.gb_per_s;
  s.step.facts.emplace_back("bandwidth", format::significant(s.gb_per_s) + " of " + format::significant(c.gb_per_s) +
                                             " GB/s (" + std::to_string(std::lround(share * 100)) + " %)");
  s.step.facts.emplace_back("ceiling", c.name);
  const std::string level = c.name.substr(0, c.name.find(','));
  s.step.facts.emplace_back("limited by", share >= near_the_ceiling ? level
                                          : share >= far_from_it    ? "partly " + level
                                                                    : "arithmetic or the start of threads, not memory");
  s.ceiling = {c.name, c.gb_per_s};
}

/// Waits for what a step asked of a device, and says how it was asked and how long it took there.
void describe_launches(TraceStep& s) {
  if (s.step.launches.empty()) return;
  double sum = 0;
  bool all = true;
  std::string how;
  for (Launch& l : s.step.launches) {
    l.ns = l.time();
    l.time = nullptr;
    all = all && l.ns;
    sum += l.ns.value_or(0);
    how += (how.empty() ? "" : "; ") + l.name + ": " + std::to_string(l.items) + " items" +
           (l.group > 0 ? " in groups of " + std::to_string(l.group) : "") +
           (l.ns ? ", " + format::duration(*l.ns) : "");
  }
  s.step.facts.emplace_back("launches", how);
  if (!all) return;
  s.device_ns = sum;
  s.step.facts.emplace_back("on the device", format::duration(sum));
  s.step.why += "; on the device it took " + format::duration(sum);
}

std::string names_of(const std::vector<RecordedOp>& ops) {
  std::string names;
  int shown = 0;
  for (const RecordedOp& op : ops) {
    if (op.parent >= 0) continue;
    if (++shown > 4) return names + ", ...";
    names += (names.empty() ? "" : ", ") + op.name;
  }
  return names.empty() ? "nothing" : names;
}

}  // namespace

TraceRecord assemble(Recorder recorder, const Timing& timing, const ExplainOptions& options, bool measure) {
  TraceRecord t;
  t.ops = std::move(recorder.ops);
  t.expression = options.expression.empty() ? names_of(t.ops) : options.expression;
  t.where = options.where;
  t.plans = std::move(recorder.plans);
  t.steps = ordered_steps(std::move(recorder.steps), timing);
  find_ops(t.steps);
  t.participants = join_participants(t);
  t.total_ns = timing.total_ns;
  t.recorder = timing.cost;
  t.recorder.events = static_cast<int>(t.steps.size());
  t.recorder.subtracted_ns = t.recorder.events * t.recorder.ns_per_event;
  t.pool_hits = timing.pool_hits;
  t.pool_misses = timing.pool_misses;
  place_in_time(t.steps, t.recorder);
  set_interpreter(t, timing);
  t.cpu = explain::cpu_name();
  t.threads = num_threads();
  auto* hottest = const_cast<TraceStep*>(hottest_kernel(t));
  for (TraceStep& s : t.steps) {
    describe_copies(s.step);
    describe_launches(s);
    if (is_kernel(s)) describe_kernel(t, s, measure);
  }
  if (hottest != nullptr) t.ceiling = hottest->ceiling;
  if (hottest != nullptr && measure) hottest->assembly = disassemble(hottest->step.kernel);
  const RecordedOp* op = hottest != nullptr ? op_of(t, *hottest) : nullptr;
  t.isa = op != nullptr && !op->isa.empty() ? op->isa : cpu::instruction_set().name;
  if (op != nullptr && op->threads > 0) t.threads = op->threads;
  return t;
}

const TraceStep* hottest_kernel(const TraceRecord& t) {
  const TraceStep* hottest = nullptr;
  for (const TraceStep& s : t.steps) {
    if (is_kernel(s) && (hottest == nullptr || s.ns.value_or(0) > hottest->ns.value_or(0))) hottest = &s;
  }
  return hottest;
}

std::optional<double> around_kernels(const TraceRecord& t) {
  double kernels = 0, rest = 0;
  for (const TraceStep& s : t.steps) {
    if (!s.ns) return {};
    (is_kernel(s) ? kernels : rest) += *s.ns;
  }
  if (!t.total_ns) return rest;
  if (*t.total_ns < kernels) return {};
  return *t.total_ns - kernels;
}

std::string time_text(const TraceRecord& t, const TraceStep& s) {
  if (s.below_resolution) return "< " + format::duration(std::ceil(t.recorder.resolution_ns));
  return s.ns ? format::duration(*s.ns) : "";
}

std::string plan_text(const PlanGraph& p) {
  std::int64_t ops = 0;
  for (const PlanKernel& k : p.kernels) ops += k.nodes;
  const auto count = [](std::int64_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  std::string text = count(ops, "op") + " in " + count(static_cast<std::int64_t>(p.kernels.size()), "kernel") + "; " +
                     bytes_text(static_cast<double>(p.bytes_moved())) + " read and written, " +
                     bytes_text(static_cast<double>(p.bytes_least)) + " least possible; " +
                     bytes_text(static_cast<double>(p.temporary_bytes)) + " between kernels";
  if (p.ready_seconds) text += "; made ready in " + format::duration(*p.ready_seconds * 1e9);
  if (p.calls > 0) text += ", call " + std::to_string(p.calls);
  return text;
}

std::string_view phase_name(Phase phase) {
  static constexpr std::string_view names[] = {"Python", "Validate", "Compute", "Record", "Return"};
  return names[static_cast<std::size_t>(phase)];
}

std::string bandwidth_text(const TraceRecord& t) {
  const TraceStep* s = hottest_kernel(t);
  if (s == nullptr || s->gb_per_s <= 0) return "";
  if (t.ceiling.gb_per_s <= 0) return format::significant(s->gb_per_s) + " GB/s";
  return format::significant(s->gb_per_s) + " of " + format::significant(t.ceiling.gb_per_s) + " GB/s (" +
         std::to_string(std::lround(s->gb_per_s / t.ceiling.gb_per_s * 100)) + " %, " +
         t.ceiling.name.substr(0, t.ceiling.name.find(',')) + ")";
}

}  // namespace hyalite
