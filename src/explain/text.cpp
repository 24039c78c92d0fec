/// A trace for the terminal: a heading, then one row a step.
#include <algorithm>
#include <cmath>

#include "explain/format.h"
#include "explain/trace.h"

namespace hyalite {
namespace {

constexpr int phase_width = 10, widest_route = 30, widest_label = 36, least_reason = 24;
constexpr std::string_view gap = "  ";

std::string padded(std::string text, int width) {
  text.append(static_cast<std::size_t>(std::max(0, width - format::columns(text))), ' ');
  return text;
}

/// Takes a word's first `width` columns off it.
std::string take_columns(std::string_view& word, int width) {
  std::size_t end = 0;
  for (int n = 0; end < word.size(); ++end) {
    if ((static_cast<unsigned char>(word[end]) & 0xC0) != 0x80 && n++ == width) break;
  }
  const std::string taken(word.substr(0, end));
  word.remove_prefix(end);
  return taken;
}

/// Lines of at most `width` columns, broken at blanks where there are any.
std::vector<std::string> wrapped(std::string_view text, int width) {
  std::vector<std::string> lines{""};
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \n\t\r"), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!lines.back().empty() && format::columns(lines.back()) + 1 + format::columns(word) > width)
      lines.emplace_back();
    while (format::columns(word) > width) {
      lines.back() += take_columns(word, width);
      lines.emplace_back();
    }
    lines.back() += (lines.back().empty() ? "" : " ") + std::string(word);
  }
  return lines;
}

/// As the step's own op names it.
const std::string& participant(const TraceRecord& t, const Step& s, Who who) {
  const auto i = static_cast<std::size_t>(who), op = static_cast<std::size_t>(s.op);
  if (op < t.ops.size() && i < t.ops[op].participants.size()) return t.ops[op].participants[i];
  return t.participants[i];
}

std::string route(const TraceRecord& t, const Step& s) {
  const std::string &from = participant(t, s, s.from), &to = participant(t, s, s.to);
  return std::string(static_cast<std::size_t>(2 * s.depth), ' ') + from + (s.from == s.to ? "" : " -> " + to);
}

class Writer {
 public:
  Writer(const TraceRecord& t, int width, bool colour) : t_(t), width_(std::max(width, 40)), colour_(colour) {}

  std::string write() {
    heading();
    set_columns();
    for (const TraceStep& s : t_.steps) {
      op_heading(s);
      plan_heading(s);
      step(s);
    }
    footer();
    return std::move(out_);
  }

 private:
  std::string styled(const char* code, const std::string& text) const {
    return colour_ && !text.empty() ? "\x1b[" + std::string(code) + "m" + text + "\x1b[0m" : text;
  }
  std::string phase_styled(Phase p) const {
    static const char* const codes[] = {"34", "33", "32", "35", "36"};
    return styled(codes[static_cast<std::size_t>(p)], padded(std::string(phase_name(p)), phase_width));
  }

  /// As wide as what stands in them, unless that leaves too little for the reasons or is more than there is.
  void set_columns() {
    const int most_route = std::min(widest_route, (width_ - phase_width) / 3);
    for (const TraceStep& s : t_.steps) {
      route_ = std::max(route_, std::min(most_route, format::columns(route(t_, s.step))));
      label_ = std::max(label_, std::min(widest_label, format::columns(s.step.label)));
      time_ = std::max(time_, format::columns(time_text(t_, s)));
    }
    label_ = std::clamp(width_ - phase_width - route_ - time_ - 2 * static_cast<int>(gap.size()), 4, label_);
    reason_at_ = phase_width + route_ + label_ + time_ + 3 * static_cast<int>(gap.size());
  }

  void line(std::string text) {
    text.erase(text.find_last_not_of(' ') + 1);
    out_ += text + "\n";
  }

  void heading() {
    std::vector<std::string> parts{t_.expression};
    const auto add = [&](std::string part) {
      if (!part.empty()) parts.push_back(std::move(part));
    };
    add(t_.where);
    add(t_.total_ns ? format::duration(*t_.total_ns) : in_steps());
    add(bandwidth_text(t_));
    const auto around = around_kernels(t_);
    add(around && hottest_ != nullptr ? format::duration(*around) + around_what() : "");
    const std::string blanks(6, ' ');
    std::string plain;
    for (const std::string& part : parts) {
      const bool first = plain.empty();
      if (!first && format::columns(plain) + 6 + format::columns(part) > width_) {
        out_ += "\n";
        plain = blanks.substr(4);
        out_ += plain;
      } else if (!first) {
        plain += blanks;
        out_ += blanks;
      }
      plain += part;
      out_ += styled(first ? "1" : "0", format::printable(part));
    }
    out_ += "\n";
  }

  const char* around_what() const {
    const auto kernels =
        std::count_if(t_.steps.begin(), t_.steps.end(), [](const TraceStep& s) { return s.step.to == Who::kernel; });
    return kernels > 1 ? " around the kernels" : " around the kernel";
  }

  /// Where nothing but the steps was timed: their sum.
  std::string in_steps() const {
    double sum = 0;
    for (const TraceStep& s : t_.steps) {
      if (!s.ns) return "";
      sum += *s.ns;
    }
    return t_.steps.empty() ? "" : format::duration(sum) + " in the steps";
  }

  /// With several ops, each begins with a line of its own.
  void op_heading(const TraceStep& s) {
    if (t_.ops.size() < 2 || s.step.op == last_op_) return;
    const bool again = seen_.size() > static_cast<std::size_t>(s.step.op) && seen_[static_cast<std::size_t>(s.step.op)];
    last_op_ = s.step.op;
    last_phase_.reset();
    const auto index = static_cast<std::size_t>(s.step.op);
    if (index >= t_.ops.size()) return;
    seen_.resize(t_.ops.size());
    seen_[index] = true;
    const RecordedOp& op = t_.ops[index];
    std::string text = op.name;
    if (op.parent >= 0) text += ", inside " + t_.ops[static_cast<std::size_t>(op.parent)].name;
    if (again) text += ", continued";
    if (!again && !op.result_dtype.empty()) text += ": " + op.result_dtype + " " + format::shape(op.result_shape);
    line(styled("1", text));
  }

  /// A plan says what it is before its first step, and why its kernels are as many.
  void plan_heading(const TraceStep& s) {
    if (s.step.plan < 0 || s.step.plan == last_plan_) return;
    last_plan_ = s.step.plan;
    const PlanGraph& p = t_.plans[static_cast<std::size_t>(last_plan_)];
    for (const std::string& l : wrapped("Plan: " + plan_text(p), width_)) line(styled("2", format::printable(l)));
    for (std::size_t k = 1; k < p.kernels.size(); ++k) {
      const std::string why =
          "  kernel " + std::to_string(k + 1) + ", " + p.kernels[k].name + ": " + p.kernels[k].reason;
      for (const std::string& l : wrapped(why, width_)) line(styled("2", "  " + format::printable(l)));
    }
  }

  void step(const TraceStep& s) {
    const bool fits = width_ - reason_at_ >= least_reason;
    const auto routes = wrapped(route(t_, s.step).substr(static_cast<std::size_t>(2 * s.step.depth)),
                                std::max(4, route_ - 2 * s.step.depth));
    const auto labels = wrapped(s.step.label, label_);
    const auto reasons = fits ? wrapped(s.step.why, width_ - reason_at_) : std::vector<std::string>{""};
    const std::size_t rows = std::max({routes.size(), labels.size(), reasons.size()});
    const auto cell = [](const std::vector<std::string>& lines, std::size_t i) {
      return i < lines.size() ? format::printable(lines[i]) : std::string();
    };
    for (std::size_t i = 0; i < rows; ++i) {
      const bool first = i == 0, new_phase = first && last_phase_ != s.step.phase;
      const std::string time = first ? time_text(t_, s) : "";
      const std::string indent(static_cast<std::size_t>(2 * s.step.depth), ' ');
      line((new_phase ? phase_styled(s.step.phase) : std::string(phase_width, ' ')) +
           padded(indent + cell(routes, i), route_) + std::string(gap) + padded(cell(labels, i), label_) +
           std::string(gap) + std::string(static_cast<std::size_t>(time_ - format::columns(time)), ' ') +
           styled(&s == hottest_ ? "31" : "0", time) + std::string(gap) + styled("2", cell(reasons, i)));
    }
    if (!fits && !s.step.why.empty()) {
      for (const std::string& l : wrapped(s.step.why, width_ - phase_width - 2)) {
        line(std::string(phase_width + 2, ' ') + styled("2", format::printable(l)));
      }
    }
    last_phase_ = s.step.phase;
  }

  void footer() {
    const RecorderCost& c = t_.recorder;
    std::string text = "Recorder: " + std::to_string(c.events) + (c.events == 1 ? " event" : " events") + " of " +
                       format::duration(c.ns_per_event) + ", " + format::duration(c.subtracted_ns) + " subtracted";
    if (c.runs > 1) text += "; medians of " + std::to_string(c.runs) + " runs a step";
    if (t_.interpreter_ns) text += "; " + format::duration(*t_.interpreter_ns) + " in the interpreter";
    text += c.calls == 1 ? "; called once" : "; called " + std::to_string(c.calls) + " times";
    if (!c.note.empty()) text += (c.calls == 1 ? ": " : "; ") + c.note;
    for (const std::string& l : wrapped(text + ".", width_)) line(styled("2", format::printable(l)));
  }

  const TraceRecord& t_;
  const TraceStep* hottest_ = hottest_kernel(t_);
  int width_;
  bool colour_;
  int route_ = 4, label_ = 4, time_ = 4, reason_at_ = 0;
  int last_op_ = -1, last_plan_ = -1;
  std::vector<bool> seen_;
  std::optional<Phase> last_phase_;
  std::string out_;
};

}  // namespace

std::string to_text(const TraceRecord& t, int width, bool colour) { return Writer(t, width, colour).write(); }

}  // namespace hyalite
