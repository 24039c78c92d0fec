/// The sequence diagram as a picture of its own.
#include <algorithm>
#include <cstdio>

#include "explain/format.h"
#include "explain/trace.h"

namespace hyalite {
namespace {

constexpr int left = 96, column = 140, row = 40, top = 92, right = 96;
constexpr double letter = 6.7;  // width of a character of the labels' font, in units of the picture

constexpr const char* style = R"(<style>
svg{background:#fbfaf7;--fg:#1d2230;--dim:#6d7385;--line:#d9d7cf;--halo:#fbfaf7}
.p0{--c:#3b6fd4}.p1{--c:#b7791f}.p2{--c:#0f8a6d}.p3{--c:#8b4bc4}.p4{--c:#59657d}
@media (prefers-color-scheme:dark){
svg{background:#12151d;--fg:#e7e9ef;--dim:#949bb0;--line:#2b3040;--halo:#12151d}
.p0{--c:#7aa5ff}.p1{--c:#e0aa4f}.p2{--c:#44c9a5}.p3{--c:#bf8cf0}.p4{--c:#9aa6bf}
}
text{fill:var(--fg);font:11px ui-monospace,Menlo,Consolas,monospace}
.who{font-weight:600;text-anchor:middle}
.title{font-size:17px;font-weight:600}
.time,.where{fill:var(--dim)}
.time{text-anchor:end}
.label{paint-order:stroke;stroke:var(--halo);stroke-width:4px;stroke-linejoin:round}
.band{fill:var(--c);fill-opacity:.07}
.phase{fill:var(--c);font-weight:600}
.arrow{stroke:var(--c);fill:none;stroke-width:1.6}
.head{fill:var(--c)}
.life{stroke:var(--line)}
</style>
)";

template <class... A>
std::string print(const char* pattern, A... arguments) {
  char text[512];
  std::snprintf(text, sizeof text, pattern, arguments...);
  return text;
}

std::string element(const std::string& opening, const std::string& text) {
  return "<text " + opening + ">" + format::xml(text) + "</text>\n";
}

class Writer {
 public:
  explicit Writer(const TraceRecord& t) : t_(t) {
    bool used[who_count] = {};
    for (const TraceStep& s : t.steps) used[static_cast<int>(s.step.from)] = used[static_cast<int>(s.step.to)] = true;
    for (int i = 0; i < who_count; ++i) {
      if (used[i]) x_[i] = left + column / 2 + column * columns_++;
    }
    width_ = left + column * std::max(columns_, 4) + right;
    height_ = top + row * static_cast<int>(t.steps.size()) + 24;
  }

  std::string write() {
    out_ = print(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n",
        width_, height_, width_, height_);
    out_ += "<title>" + format::xml(t_.expression) + "</title>\n" + style;
    out_ += element("class=\"title\" x=\"16\" y=\"28\"", t_.expression);
    std::string below = t_.where;
    for (const std::string& part : {t_.total_ns ? format::duration(*t_.total_ns) : "", bandwidth_text(t_)}) {
      below += (below.empty() || part.empty() ? "" : " · ") + part;
    }
    out_ += element("class=\"where\" x=\"16\" y=\"46\"", below);
    bands();
    for (int i = 0; i < who_count; ++i) {
      if (x_[i] == 0) continue;
      out_ += print("<line class=\"life\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", x_[i], x_[i], top - 6,
                    height_ - 14);
      out_ += element(print("class=\"who\" x=\"%d\" y=\"%d\"", x_[i], top - 14),
                      t_.participants[static_cast<std::size_t>(i)]);
    }
    for (std::size_t i = 0; i < t_.steps.size(); ++i) step(t_.steps[i], top + row * static_cast<int>(i));
    return out_ + "</svg>\n";
  }

 private:
  void bands() {
    for (std::size_t i = 0; i < t_.steps.size();) {
      std::size_t end = i;
      const Phase phase = t_.steps[i].step.phase;
      while (end < t_.steps.size() && t_.steps[end].step.phase == phase) ++end;
      const int y = top + row * static_cast<int>(i), p = static_cast<int>(phase);
      out_ += print("<rect class=\"band p%d\" x=\"0\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", p, y, width_,
                    row * static_cast<int>(end - i));
      out_ += element(print("class=\"phase p%d\" x=\"12\" y=\"%d\"", p, y + 24), std::string(phase_name(phase)));
      i = end;
    }
  }

  void step(const TraceStep& s, int y0) {
    const int a = x_[static_cast<int>(s.step.from)], b = x_[static_cast<int>(s.step.to)], y = y0 + 28;
    const char* dash = s.step.kind == StepKind::result ? " stroke-dasharray=\"5 4\""
                       : s.step.kind == StepKind::lazy ? " stroke-dasharray=\"2 3\""
                                                       : "";
    out_ += print("<g class=\"p%d\"><title>", static_cast<int>(s.step.phase)) + format::xml(details(s)) + "</title>\n";
    const int towards = b < a ? 1 : -1;  // from the tip of the arrow back along it
    if (a == b) {
      out_ += print("<path class=\"arrow\"%s d=\"M%d %d h22 v10 h-16\"/>\n", dash, a, y - 8);
      out_ += print("<path class=\"head\" d=\"M%d %d l8 -4 v8z\"/>\n", a, y + 2);
    } else {
      out_ += print("<path class=\"arrow\"%s d=\"M%d %d H%d\"/>\n", dash, a, y, b + 6 * towards);
      out_ += print("<path class=\"head\" d=\"M%d %d l%d -4 v8z\"/>\n", b, y, 8 * towards);
    }
    if (s.step.kind == StepKind::guard) out_ += print("<circle class=\"head\" cx=\"%d\" cy=\"%d\" r=\"4\"/>\n", b, y);
    const double half = format::columns(s.step.label) * letter / 2;
    const double middle = std::clamp(a == b ? a + 30 + half : (a + b) / 2.0, left + half,
                                     std::max(left + half, width_ - right + 20 - half));
    out_ += element(print("class=\"label\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\"", middle, a == b ? y + 1 : y - 7),
                    s.step.label);
    out_ += element(print("class=\"time\" x=\"%d\" y=\"%d\"", width_ - 12, y + 4), time_text(t_, s)) + "</g>\n";
  }

  static std::string details(const TraceStep& s) {
    std::string text = s.step.why;
    for (const auto& [name, value] : s.step.facts) text += (text.empty() ? "" : "; ") + name + ": " + value;
    return text;
  }

  const TraceRecord& t_;
  int x_[who_count] = {};
  int columns_ = 0, width_ = 0, height_ = 0;
  std::string out_;
};

}  // namespace

std::string to_svg(const TraceRecord& t) { return Writer(t).write(); }

}  // namespace hyalite
