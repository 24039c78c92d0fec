/// Trace events for chrome://tracing and Perfetto: a track a participant, a slice a step.
#include "explain/format.h"
#include "explain/trace.h"

namespace hyalite {
namespace {

using format::JsonObject;

std::string named(const char* what, int track, const std::string& name) {
  return JsonObject()
      .text("name", what)
      .text("ph", "M")
      .number("pid", 1)
      .number("tid", track)
      .raw("args", JsonObject().text("name", name).str())
      .str();
}

/// The format counts in microseconds; three decimals keep the nanoseconds.
std::string microseconds(double ns) { return std::to_string(ns / 1000); }

std::string slice(const TraceRecord& t, const TraceStep& s, double start, double length) {
  JsonObject args;
  for (const auto& [key, value] : s.step.facts) args.text(key, value);
  args.text("why", s.step.why).text("time", time_text(t, s));
  return JsonObject()
      .text("name", s.step.label)
      .text("cat", phase_name(s.step.phase))
      .text("ph", "X")
      .number("pid", 1)
      .number("tid", static_cast<int>(s.step.to) + 1)
      .raw("ts", microseconds(start))
      .raw("dur", microseconds(length))
      .raw("args", args.str())
      .str();
}

}  // namespace

std::string to_chrome(const TraceRecord& t) {
  std::string events = named("process_name", 0, t.expression);
  for (std::size_t i = 0; i < t.participants.size(); ++i) {
    events += ",\n" + named("thread_name", static_cast<int>(i) + 1, t.participants[i]);
  }
  double untimed = 0;  // a step without a time takes a nanosecond, so that it can be seen
  for (const TraceStep& s : t.steps) {
    events += ",\n" + slice(t, s, s.start_ns + untimed, s.ns.value_or(1));
    if (!s.ns) ++untimed;
  }
  return "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n" + events + "\n]}\n";
}

}  // namespace hyalite
