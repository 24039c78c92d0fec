/// The public C++ functions: explaining a call, recording a scope, saving a trace.
#include <fstream>

#include "explain/trace.h"
#include "hyalite/error.h"
#include "hyalite/explain.h"
#include "tensor/context.h"

namespace hyalite {
namespace {

/// By ending of a file's name; "trace.json" before "json".
constexpr struct {
  std::string_view format;
  std::string (*write)(const TraceRecord&);
} writers[] = {
    {"html", to_html}, {"svg", to_svg},     {"trace.json", to_chrome},
    {"json", to_json}, {"mmd", to_mermaid}, {"txt", [](const TraceRecord& t) { return to_text(t, 120); }},
};

std::string known_formats() {
  std::string known;
  for (const auto& w : writers) known += (known.empty() ? "" : ", ") + std::string(w.format);
  return known;
}

}  // namespace

std::string write_trace(const TraceRecord& t, std::string_view format) {
  for (const auto& w : writers) {
    if (w.format == format) return w.write(t);
  }
  throw ValueError("Trace: no format " + std::string(format) + "; known are " + known_formats(),
                   {{"format", std::string(format)}});
}

std::string Trace::text(int width, bool colour) const { return to_text(*record_, width, colour); }
std::string Trace::json() const { return to_json(*record_); }
std::string Trace::as(const std::string& format) const { return write_trace(*record_, format); }

void Trace::save(const std::string& path) const {
  for (const auto& w : writers) {
    if (!path.ends_with("." + std::string(w.format))) continue;
    std::ofstream file(path, std::ios::binary);
    file << w.write(*record_) << std::flush;
    if (!file) throw ValueError("Trace.save(): cannot write " + path, {{"path", path}});
    return;
  }
  throw ValueError("Trace.save(): the ending of " + path + " names no format; known are " + known_formats(),
                   {{"path", path}});
}

Trace explain(const std::function<void()>& f, const ExplainOptions& options) {
  return Trace(std::make_shared<const TraceRecord>(trace_calls(f, options)));
}

struct ExplainScope::State {
  Recorder recorder{Recorder::time_all};
  Recorder* before = nullptr;
  ExplainOptions options;
};

ExplainScope::ExplainScope(ExplainOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->before = std::exchange(context().recorder, &state_->recorder);
}

ExplainScope::~ExplainScope() {
  if (!state_) return;
  if (context().recorder == &state_->recorder) {
    context().recorder = state_->before;
  } else {
    (void)state_.release();  // another thread or a later scope may still point to it
  }
}

Trace ExplainScope::end() {
  if (!state_) throw ValueError("explain(): this recording has ended already");
  if (context().recorder != &state_->recorder) {
    throw ValueError("explain(): recordings end on the thread where they began, the last begun first");
  }
  const std::unique_ptr<State> state = std::move(state_);
  context().recorder = state->before;
  const Timing timing = single_run_timing(state->recorder);
  return Trace(std::make_shared<const TraceRecord>(assemble(std::move(state->recorder), timing, state->options)));
}

}  // namespace hyalite
