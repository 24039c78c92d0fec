/// The record as JSON, in the form "hyalite-trace/1".
#include <algorithm>
#include <set>

#include "explain/format.h"
#include "explain/trace.h"

namespace hyalite {
namespace {

using format::JsonObject;

const char* kind_name(StepKind kind) {
  static const char* const names[] = {"request", "self", "guard", "return", "lazy"};
  return names[static_cast<std::size_t>(kind)];
}

/// A whole number as a number, everything else as text.
std::string fact(const std::string& value) {
  const std::string_view digits = std::string_view(value).substr(value.starts_with('-') ? 1 : 0);
  const bool whole = !digits.empty() && digits.size() <= 15 && (digits[0] != '0' || digits.size() == 1) &&
                     std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  return whole && value != "-0" ? value : format::json(value);
}

std::string facts_json(const Facts& facts) {
  JsonObject object;
  std::set<std::string> seen;
  for (const auto& [name, value] : facts) {
    if (seen.insert(name).second) object.raw(name, fact(value));
  }
  return object.str();
}

std::string tensor_json(const RecordedOp& op, bool with_grad_fn) {
  JsonObject object;
  object.raw("shape", format::json_list(op.result_shape, [](std::int64_t d) { return std::to_string(d); }));
  object.text("dtype", op.result_dtype).text("device", op.result_device);
  if (with_grad_fn && !op.grad_fn.empty()) object.text("grad_fn", op.grad_fn);
  return object.str();
}

std::string source_json(const SourceText& s) {
  return JsonObject()
      .text("file", s.file)
      .number("line", s.formula_line)
      .number("first_line", s.line)
      .text("language", "cpp")
      .text("text", s.text)
      .str();
}

class Writer {
 public:
  explicit Writer(const TraceRecord& t) : t_(t) {
    for (const TraceStep& s : t.steps) used_[static_cast<int>(s.step.from)] = used_[static_cast<int>(s.step.to)] = true;
  }

  std::string write() const {
    std::string out = "{\n";
    const auto add = [&](std::string_view key, const std::string& value) {
      out += (out.size() > 2 ? ",\n  " : "  ") + format::json(key) + ": " + value;
    };
    add("schema", format::json("hyalite-trace/1"));
    add("expression", format::json(t_.expression));
    if (!t_.where.empty()) add("where", format::json(t_.where));
    if (const RecordedOp* last = last_outer()) add("result", tensor_json(*last, true));
    add("machine", machine());
    add("recorder", recorder());
    if (t_.total_ns) add("total_ns", format::json(*t_.total_ns));
    if (const auto around = around_kernels(t_)) add("around_ns", format::json(*around));
    if (t_.interpreter_ns) add("interpreter_ns", format::json(*t_.interpreter_ns));
    add("participants", participants());
    if (t_.pool_hits + t_.pool_misses > 0) {
      add("memory", JsonObject()
                        .number("pool_hits", static_cast<double>(t_.pool_hits))
                        .number("pool_misses", static_cast<double>(t_.pool_misses))
                        .str());
    }
    if (!t_.graph.empty()) add("graph", t_.graph);
    add("ops", lines(format::json_list(
                   t_.ops, [&](const RecordedOp& op) { return this->op(op); }, ",\n    ")));
    add("steps", lines(format::json_list(
                     t_.steps, [&](const TraceStep& s) { return step(s); }, ",\n    ")));
    return out + "\n}\n";
  }

 private:
  static std::string lines(const std::string& list) {
    return list.size() <= 2 ? list : "[\n    " + list.substr(1, list.size() - 2) + "\n  ]";
  }

  const RecordedOp* last_outer() const {
    const auto found = std::find_if(t_.ops.rbegin(), t_.ops.rend(),
                                    [](const RecordedOp& op) { return op.parent < 0 && !op.result_dtype.empty(); });
    return found == t_.ops.rend() ? nullptr : &*found;
  }

  static std::string ceiling(const TraceCeiling& c) {
    return JsonObject().text("name", c.name).number("gb_per_s", c.gb_per_s).str();
  }

  std::string machine() const {
    JsonObject object;
    object.text("cpu", t_.cpu).text("isa", t_.isa).number("threads", t_.threads);
    if (t_.ceiling.gb_per_s > 0) object.raw("ceiling", ceiling(t_.ceiling));
    return object.str();
  }

  std::string recorder() const {
    const RecorderCost& c = t_.recorder;
    JsonObject object;
    object.number("events", c.events).number("ns_per_event", c.ns_per_event).number("subtracted_ns", c.subtracted_ns);
    object.number("resolution_ns", c.resolution_ns).number("runs", c.runs).number("calls", c.calls);
    if (!c.note.empty()) object.text("note", c.note);
    return object.str();
  }

  /// Only those that take part; `place` counts among them.
  std::string participants() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < t_.participants.size(); ++i) {
      if (used_[i]) names.push_back(t_.participants[i]);
    }
    return format::json_list(names, [](const std::string& n) { return format::json(n); });
  }
  int place(Who who) const { return static_cast<int>(std::count(used_, used_ + static_cast<int>(who), true)); }

  std::string op(const RecordedOp& op) const {
    JsonObject object;
    object.text("name", op.name);
    if (!op.where.empty()) object.text("where", op.where);
    if (!op.result_dtype.empty()) object.raw("result", tensor_json(op, false));
    if (op.parent >= 0) object.number("parent", op.parent);
    if (const auto total = op_totals_[static_cast<std::size_t>(&op - t_.ops.data())]) object.number("total_ns", *total);
    return object.str();
  }

  /// By op, of its steps and of the ops within it; none where a step was not timed.
  static std::vector<std::optional<double>> op_totals(const TraceRecord& t) {
    std::vector<std::optional<double>> totals(t.ops.size(), 0.0);
    const auto add = [&](int op, std::optional<double> ns) {
      if (op < 0) return;
      std::optional<double>& total = totals[static_cast<std::size_t>(op)];
      total = total && ns ? std::optional(*total + *ns) : std::nullopt;
    };
    for (const TraceStep& s : t.steps) add(s.step.op, s.ns);
    // An op comes before those within it.
    for (std::size_t i = t.ops.size(); i-- > 0;) add(t.ops[i].parent, totals[i]);
    return totals;
  }

  std::string step(const TraceStep& s) const {
    JsonObject object;
    object.text("phase", phase_name(s.step.phase)).number("from", place(s.step.from)).number("to", place(s.step.to));
    object.text("kind", kind_name(s.step.kind)).text("label", s.step.label);
    object.raw("ns", s.ns ? format::json(*s.ns) : "null");
    if (s.below_resolution) object.raw("below_resolution", "true");
    if (s.ns) object.number("start_ns", s.start_ns);
    if (s.step.op >= 0) object.number("op", s.step.op);
    if (s.step.depth > 0) object.number("depth", s.step.depth);
    const auto counted = [&](const char* key, const auto& value) {
      if (value) object.number(key, static_cast<double>(*value));
    };
    counted("bytes_moved", s.step.bytes_moved);
    counted("bytes_least", s.step.bytes_least);
    counted("operations", s.step.operations);
    if (s.step.copies > 0) object.number("copies", s.step.copies);
    if (s.step.copies > 0) object.number("copied_bytes", static_cast<double>(s.step.copied_bytes));
    if (s.gb_per_s > 0) object.number("gb_per_s", s.gb_per_s);
    if (s.ceiling.gb_per_s > 0) object.raw("ceiling", ceiling(s.ceiling));
    object.raw("facts", facts_json(s.step.facts)).text("why", s.step.why);
    if (!s.source.text.empty()) object.raw("source", source_json(s.source));
    if (!s.assembly.empty()) object.text("assembly", s.assembly);
    return object.str();
  }

  const TraceRecord& t_;
  std::vector<std::optional<double>> op_totals_ = op_totals(t_);
  bool used_[who_count] = {};
};

}  // namespace

std::string to_json(const TraceRecord& t) { return Writer(t).write(); }

}  // namespace hyalite
