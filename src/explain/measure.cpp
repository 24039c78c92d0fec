/// Runs a function with and without a recorder until the time of each of its steps is known.
#include <algorithm>
#include <cmath>

#include "explain/ceiling.h"
#include "explain/trace.h"
#include "hyalite/error.h"
#include "tensor/context.h"
#include "tensor/pool.h"

namespace hyalite {
namespace {

constexpr int fewest_rounds = 3;  // of one step a run; with less time every run times all steps

double quantile(std::vector<double> values, double share) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(static_cast<double>(values.size() - 1) * share + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

/// What a step reads when nothing happens between its begin and its end.
double empty_step_ns() {
  static const double ns = [] {
    std::vector<double> read;
    for (int i = 0; i < 1001; ++i) {
      Recorder r(Recorder::time_all);
      r.begin(Phase::compute, Who::backend, Who::backend, StepKind::self);
      r.stop();
      r.end(Event::nothing_computed);
      read.push_back(static_cast<double>(r.last().ticks));
    }
    return quantile(read, 0.5) * explain::ns_per_tick();
  }();
  return ns;
}

struct Run {
  Recorder recorder;
  double elapsed_ns;
};

Run record(const std::function<void()>& f, int timed) {
  Run run{Recorder(timed), 0};
  const ScopedSet<Recorder*> installed(context().recorder, &run.recorder);
  const std::uint64_t start = explain::ticks();
  f();
  run.elapsed_ns = static_cast<double>(explain::ticks() - start) * explain::ns_per_tick();
  return run;
}

/// By number of step; empty for those the run did not time.
std::vector<std::optional<double>> times_of(const Recorder& r) {
  std::vector<std::optional<double>> ns;
  for (const Step& s : r.steps) {
    const auto i = static_cast<std::size_t>(s.number);
    if (i >= ns.size()) ns.resize(i + 1);
    if (s.ticks >= 0) ns[i] = std::max(0.0, static_cast<double>(s.ticks) * explain::ns_per_tick() - empty_step_ns());
  }
  return ns;
}

bool same(const Step& a, const Step& b) {
  return a.phase == b.phase && a.from == b.from && a.to == b.to && a.kind == b.kind && a.depth == b.depth &&
         a.source_op == b.source_op;
}

/// Whether the steps up to `number` are the same; what lies within the one timed step was not recorded.
bool same_until(const Recorder& a, const Recorder& b, int number) {
  const auto numbered = [&](const Recorder& r) {
    std::vector<const Step*> found(static_cast<std::size_t>(number) + 1);
    for (const Step& s : r.steps) {
      if (s.number <= number) found[static_cast<std::size_t>(s.number)] = &s;
    }
    return found;
  };
  const std::vector<const Step*> left = numbered(a), right = numbered(b);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == nullptr || right[i] == nullptr || !same(*left[i], *right[i])) return false;
  }
  return true;
}

/// Thrown and caught here, where a run took other steps than the first.
struct OtherSteps {};

/// Times of the whole without a recorder. Short ones are taken as the mean of many in a row, since a reading of the
/// clock is as long as they are.
void sample_totals(const std::function<void()>& f, int runs, double once_ns, std::vector<double>& totals) {
  constexpr double span_ns = 5000;
  const int in_a_row = static_cast<int>(std::clamp(span_ns / once_ns, 1.0, 64.0));
  const ScopedSet<Recorder*> off(context().recorder, nullptr);
  for (int i = 0; i < runs; ++i) {
    const std::uint64_t start = explain::ticks();
    for (int k = 0; k < in_a_row; ++k) f();
    const double elapsed = static_cast<double>(explain::ticks() - start) * explain::ns_per_tick();
    totals.push_back(std::max(0.0, elapsed - empty_step_ns()) / in_a_row);
  }
}

/// How often to run: which plan the time allows.
struct Plan {
  bool one_step_a_run;
  int rounds, totals_a_round;
};

Plan plan_for(double once_ns, std::size_t steps, const ExplainOptions& o) {
  const double budget_ns = o.seconds * 1e9;
  const double single = budget_ns / (once_ns * static_cast<double>(steps + 1));
  const bool one_step_a_run = single >= std::min(fewest_rounds, o.rounds);
  const double rounds = one_step_a_run ? single : budget_ns / (2 * once_ns);
  const double totals = budget_ns / (5 * o.rounds * once_ns);
  return {one_step_a_run, static_cast<int>(std::clamp<double>(rounds, 1, o.rounds)),
          static_cast<int>(std::clamp<double>(totals, 1, 8))};
}

/// The distance between the quartiles: by how much a median may be off.
double spread(const std::vector<double>& values) { return quantile(values, 0.75) - quantile(values, 0.25); }

/// Fills `timing` with medians of several timings of each step and of the whole, taken in turns.
void repeat(const std::function<void()>& f, const Run& decided, const ExplainOptions& o, Timing& timing) {
  const int count = static_cast<int>(timing.ns.size());
  const double once_ns = std::max(1.0, decided.elapsed_ns);
  const Plan plan = plan_for(once_ns, timing.ns.size(), o);
  std::vector<std::vector<double>> read(timing.ns.size());
  std::vector<double> totals;
  const auto keep = [&](const Run& run, int until) {
    if (!same_until(decided.recorder, run.recorder, until)) throw OtherSteps();
    const std::vector<std::optional<double>> ns = times_of(run.recorder);
    for (std::size_t i = 0; i < ns.size() && i < read.size(); ++i) {
      if (ns[i]) read[i].push_back(*ns[i]);
    }
  };
  for (int round = 0; round < plan.rounds; ++round) {
    sample_totals(f, plan.totals_a_round, once_ns, totals);
    timing.total_ns = quantile(totals, 0.5);
    if (plan.one_step_a_run) {
      for (int i = 0; i < count; ++i) keep(record(f, i), i);
    } else if (count > 0) {
      keep(record(f, Recorder::time_all), count - 1);
    }
  }
  timing.spread_ns = spread(totals);
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (read[i].empty()) continue;
    timing.ns[i] = quantile(read[i], 0.5);
    timing.spread_ns = std::hypot(timing.spread_ns, spread(read[i]));
  }
  timing.cost.runs = plan.rounds;
  if (!plan.one_step_a_run) timing.cost.note = "each run timed every step: runs are too long to time one step in each";
}

struct Observed {
  Run run;
  Timing timing;  ///< of this one run
};

/// One run with everything timed, and what it asked of the pool.
Observed observe(const std::function<void()>& f) {
  const pool::Stats before = pool::stats();
  Observed o{record(f, Recorder::time_all), {}};
  const pool::Stats after = pool::stats();
  o.timing.pool_hits = after.hits - before.hits;
  o.timing.pool_misses = after.misses - before.misses;
  o.timing.ns = times_of(o.run.recorder);
  o.timing.cost.ns_per_event = empty_step_ns();
  o.timing.cost.resolution_ns = explain::clock_resolution_ns();
  return o;
}

TraceRecord once(Observed o, const ExplainOptions& options, std::string note) {
  o.timing.total_ns = std::nullopt;  // the recorder worked between the steps
  o.timing.cost.note = std::move(note);
  return assemble(std::move(o.run.recorder), o.timing, options);
}

TraceRecord repeated(const std::function<void()>& f, const ExplainOptions& options) {
  Observed first = observe(f);
  if (first.run.recorder.has_effects) {
    return once(std::move(first), options, "it writes in place or accumulates gradients");
  }
  try {
    Observed warm = observe(f);  // the first may have filled caches and the pool: decisions and times are of later runs
    if (warm.run.recorder.has_effects) {
      return once(std::move(first), options, "only the second run wrote in place; these are the first's times");
    }
    Timing timing = warm.timing;
    try {
      repeat(f, warm.run, options, timing);
    } catch (const OtherSteps&) {
      timing.cost.note = "times of one run: the runs took different steps";
    }
    return assemble(std::move(warm.run.recorder), timing, options);
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    std::string what = error.what();  // a Python exception's last line names it, those before are its traceback
    what.erase(what.find_last_not_of('\n') + 1);
    what.erase(0, what.rfind('\n') + 1);
    return once(std::move(first), options, "times of the first run, since a later one raised " + what);
  }
}

}  // namespace

Timing single_run_timing(const Recorder& recorder) {
  Timing timing;
  timing.ns = times_of(recorder);
  timing.cost.ns_per_event = empty_step_ns();
  timing.cost.resolution_ns = explain::clock_resolution_ns();
  timing.cost.note = "times of the one run that was recorded";
  return timing;
}

TraceRecord trace_calls(const std::function<void()>& f, const ExplainOptions& options) {
  if (options.rounds < 1) {
    throw ValueError("explain(): " + std::to_string(options.rounds) + " runs; write a number from 1",
                     {{"rounds", std::int64_t{options.rounds}}});
  }
  empty_step_ns();  // measured, like the clock, before the first run
  int calls = 0;
  const std::function<void()> counted = [&] {
    ++calls;
    f();
  };
  TraceRecord record = options.repeat ? repeated(counted, options) : once(observe(counted), options, options.why_once);
  record.recorder.calls = calls;
  return record;
}

}  // namespace hyalite
