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
    for (const TraceStep& s : t.steps) {
      used_[static_cast<int>(s.step.from)] = used_[static_cast<int>(s.step.to)] = true;
      for (const Launch& l : s.step.launches) {
        if (!l.text.empty() && std::ranges::find(texts_, l.text) == texts_.end()) texts_.push_back(l.text);
      }
    }
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
    if (!t_.plans.empty())
      add("plans", lines(format::json_list(
                       t_.plans, [](const PlanGraph& p) { return plan(p); }, ",\n    ")));
    if (!texts_.empty())
      add("texts", lines(format::json_list(
                       texts_, [](const std::string& t) { return format::json(t); }, ",\n    ")));
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

  static std::string plan(const PlanGraph& p) {
    const auto node = [](const PlanNode& n) {
      JsonObject object;
      object.text("name", n.name).text("makes", n.makes);
      if (!n.where.empty()) object.text("where", n.where);
      if (n.kernel >= 0) object.number("kernel", n.kernel);
      if (n.given) object.raw("given", "true");
      return object.raw("from", format::json_list(n.from, [](int i) { return std::to_string(i); })).str();
    };
    JsonObject object;
    object.text("name", p.name).text("text", plan_text(p));
    object.number("bytes_moved", static_cast<double>(p.bytes_moved()));
    object.number("bytes_least", static_cast<double>(p.bytes_least));
    object.number("temporary_bytes", static_cast<double>(p.temporary_bytes));
    if (p.ready_seconds) object.number("ready_ns", *p.ready_seconds * 1e9);
    if (p.calls > 0) object.number("calls", static_cast<double>(p.calls));
    object.raw("kernels", format::json_list(p.kernels, plan_kernel, ",\n      "));
    return object.raw("nodes", format::json_list(p.nodes, node, ",\n      ")).str();
  }

  static std::string plan_kernel(const PlanKernel& k) {
    JsonObject object;
    object.text("name", k.name).raw("fused", k.fused ? "true" : "false").text("reason", k.reason);
    object.raw("shape", format::json_list(k.shape, [](std::int64_t d) { return std::to_string(d); }));
    object.number("bytes_read", static_cast<double>(k.read)).number("bytes_written", static_cast<double>(k.written));
    if (!k.fused) return object.str();
    object.number("tier", k.tier.tier);
    if (!k.tier.why.empty()) object.text("why_tier", k.tier.why);
    object.text("source", k.source);
    if (!k.tier.source.empty()) {
      object.text("generated", k.tier.source).text("language", k.tier.language);
      object.number("functions", k.tier.functions).number("from_disk", k.tier.from_disk);
      object.number("compile_ns", k.tier.seconds * 1e9);
    }
    if (!k.assembly.empty()) object.text("assembly", k.assembly);
    return object.str();
  }

  std::string launch(const Launch& l) const {
    JsonObject object;
    object.text("name", l.name).number("items", static_cast<double>(l.items));
    if (l.group > 0) object.number("group", static_cast<double>(l.group));
    if (l.ns) object.number("device_ns", *l.ns);
    if (l.text.empty()) return object.str();  // a library's
    const auto text = std::ranges::find(texts_, l.text) - texts_.begin();
    return object.number("text", static_cast<double>(text)).str();
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
    if (s.step.plan >= 0) object.number("plan", s.step.plan).number("plan_kernel", s.step.plan_kernel);
    if (s.device_ns) object.number("device_ns", *s.device_ns);
    if (!s.step.launches.empty())
      object.raw("launches", format::json_list(s.step.launches, [&](const Launch& l) { return launch(l); }));
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
  std::vector<std::string> texts_;  // of kernels that a device was asked for
};

}  // namespace

std::string to_json(const TraceRecord& t) { return Writer(t).write(); }

}  // namespace hyalite
