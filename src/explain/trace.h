/// A finished trace: what the recorder saw, with times; and the writers that turn it into text and pictures.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "explain/recorder.h"
#include "explain/source.h"
#include "hyalite/trace.h"

namespace hyalite {

/// Best bandwidth of the memory that a kernel's data fits in; 0 where none was measured.
struct TraceCeiling {
  std::string name;
  double gb_per_s = 0;
};

/// A step with its own time: what lies within it is not counted.
struct TraceStep {
  Step step;  ///< `number`, `parent` and `op` are places in the trace's lists
  std::optional<double> ns;
  bool below_resolution = false;  ///< shorter than the clock can tell; `ns` is then only an estimate
  double start_ns = 0;            ///< in a run without gaps between steps
  double gb_per_s = 0;            ///< 0 where no bytes were counted, or too few, or no time
  TraceCeiling ceiling;           ///< of this step's bytes and threads
  SourceText source;
  std::string assembly;
  std::optional<double> device_ns;  ///< that its launches took by the device's clock
};

/// What recording itself took, and how the times were found.
struct RecorderCost {
  int events = 0;
  double ns_per_event = 0;  ///< that a timed step reads when nothing happens in it
  double subtracted_ns = 0;
  double resolution_ns = 0;  ///< of the clock
  int runs = 1;              ///< of which a step's time is the median
  int calls = 1;             ///< of the explained function, all in all
  std::string note;          ///< anything unusual about the times
};

struct TraceRecord {
  std::string expression, where;
  std::vector<std::string> participants;  ///< by Who
  std::vector<TraceStep> steps;           ///< as they began
  std::vector<RecordedOp> ops;
  std::vector<PlanGraph> plans;  ///< that ran
  std::optional<double> total_ns;
  std::optional<double> interpreter_ns;  ///< of the total, what no step took; none where that is less than the noise
  std::string cpu, isa;
  int threads = 1;
  TraceCeiling ceiling;  ///< of the longest kernel
  RecorderCost recorder;
  std::int64_t pool_hits = 0, pool_misses = 0;
  std::string graph;  ///< JSON of what backward() would walk; empty for none
};

/// What the timing runs found; by number of step.
struct Timing {
  std::vector<std::optional<double>> ns;  ///< from begin to end
  std::optional<double> total_ns;
  double spread_ns = 0;  ///< by how much `total_ns` and the steps' sum may be off
  RecorderCost cost;
  std::int64_t pool_hits = 0, pool_misses = 0;
};

/// Joins a run's record with its times. `measure`: compare bandwidths with ceilings measured on this machine.
TraceRecord assemble(Recorder recorder, const Timing& timing, const ExplainOptions& options, bool measure = true);

/// The times of a run recorded with `time_all`.
Timing single_run_timing(const Recorder& recorder);

/// One run for the decisions, then timing runs where they are allowed; see hyalite/explain.h.
TraceRecord trace_calls(const std::function<void()>& f, const ExplainOptions& options);

/// The step that took longest among the kernels; null without one.
const TraceStep* hottest_kernel(const TraceRecord& t);
/// The total without the kernels, or where none was taken the sum of the other steps; none where a time is missing.
std::optional<double> around_kernels(const TraceRecord& t);
/// What a plan is, in a line: its ops, kernels and bytes.
std::string plan_text(const PlanGraph& p);
/// "18 ns", "< 10 ns", or nothing.
std::string time_text(const TraceRecord& t, const TraceStep& s);
std::string_view phase_name(Phase phase);
/// "2.93 of 48.6 GB/s (6 %, DRAM)"; empty where nothing was measured.
std::string bandwidth_text(const TraceRecord& t);

// The writers.
std::string to_text(const TraceRecord& t, int width, bool colour = false);
std::string to_json(const TraceRecord& t);
std::string to_html(const TraceRecord& t);     ///< one file, without requests
std::string to_svg(const TraceRecord& t);      ///< the sequence diagram
std::string to_mermaid(const TraceRecord& t);  ///< the sequence diagram
std::string to_chrome(const TraceRecord& t);   ///< for chrome://tracing and Perfetto
/// By the names in `Trace::as`. Throws ValueError.
std::string write_trace(const TraceRecord& t, std::string_view format);

}  // namespace hyalite
