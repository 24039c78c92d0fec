/// The recorder, the timing of steps, and every writer, on hand-made steps.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>

#include "explain/disassemble.h"
#include "explain/format.h"
#include "explain/trace.h"
#include "hyalite/error.h"
#include "hyalite/explain.h"
#include "tensor/context.h"

namespace hyalite {
namespace {

constexpr const char* nasty = "</script><!-- \"quoted\" & 'apostrophe' \\ \x01 µ \xFF";

/// What the phases emit for `a + b`.
void record_add(Recorder& r, const std::string& why = "both operands are hyalite tensors; the op registry is skipped") {
  r.begin(Phase::python, Who::user, Who::slot, StepKind::request);
  r.end("c = a + b", {{"slot", "nb_add"}}, why);
  r.begin_op("add");
  r.begin(Phase::validate, Who::op, Who::guard, StepKind::guard);
  r.end("dtype, device, shape", {{"device", "cpu = cpu"}}, "accepted");
  r.begin(Phase::compute, Who::backend, Who::kernel, StepKind::request);
  r.end("add_float32, 2 threads", {{"threads", "2"}, {"copies", "0"}}, "avx512 is the widest instruction set");
  r.last().bytes_moved = r.last().bytes_least = 192'000'000;
  r.last().source_op = "add";
  RecordedOp& op = r.current_op();
  op.result_dtype = "float32";
  op.result_device = "cpu";
  op.result_shape = {4096, 4096};
  op.grad_fn = "AddBackward";
  op.isa = "avx512";
  op.threads = 2;
  op.participants = {"User",        "__add__",     "_C_engine.add", "AddBackward",
                     "SchemaGuard", "Backend cpu", "Kernel avx512", "Autograd"};
  r.end_op();
  r.begin(Phase::result, Who::binding, Who::user, StepKind::result);
  r.end("wrap: Tensor");
}

Timing timing_of(std::vector<std::optional<double>> ns, std::optional<double> total) {
  Timing t;
  t.ns = std::move(ns);
  t.total_ns = total;
  t.cost.ns_per_event = 20;
  t.cost.resolution_ns = 9.2;
  t.cost.runs = 25;
  return t;
}

TraceRecord add_trace(const std::string& why = "both operands are hyalite tensors; the op registry is skipped") {
  Recorder r;
  record_add(r, why);
  ExplainOptions options;
  options.expression = "c = a + b";
  options.where = "digits.py:41";
  TraceRecord t = assemble(std::move(r), timing_of({18, 4, 4'000'000, 27}, 4'000'780), options, false);
  t.cpu = "a processor";
  return t;
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++n;
  return n;
}

TEST(Recorder, TimesOnlyTheStepAskedFor) {
  for (int timed = 0; timed < 4; ++timed) {
    Recorder r(timed);
    record_add(r);
    ASSERT_EQ(r.steps.size(), 4u);
    for (const Step& s : r.steps) EXPECT_EQ(s.ticks >= 0, s.number == timed);
  }
  Recorder none, all(Recorder::time_all);
  record_add(none);
  record_add(all);
  for (int i = 0; i < 4; ++i) {
    EXPECT_LT(none.steps[static_cast<std::size_t>(i)].ticks, 0);
    EXPECT_GE(all.steps[static_cast<std::size_t>(i)].ticks, 0);
  }
}

TEST(Recorder, StopsTheClockBeforeTextsAreMade) {
  Recorder r(Recorder::time_all);
  r.begin(Phase::compute, Who::backend, Who::kernel, StepKind::request);
  r.stop();
  const auto stopped = [&] { return r.last().ticks; };
  Recorder later(Recorder::time_all);
  for (int i = 0; i < 1000; ++i) record_add(later);
  r.end("kernel");
  later.begin(Phase::compute, Who::backend, Who::kernel, StepKind::request);
  record_add(later);
  later.end("kernel");
  EXPECT_LT(stopped(), later.last().ticks);
}

TEST(Recorder, KnowsWhichOpAStepBelongsTo) {
  Recorder r;
  record_add(r);
  record_add(r);
  const TraceRecord t = assemble(std::move(r), {}, {}, false);
  ASSERT_EQ(t.steps.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(t.steps[i].step.op, i < 4 ? 0 : 1) << i;
  EXPECT_EQ(t.ops[1].parent, -1);
}

TEST(Recorder, GivesAPromotingCallToTheOpItWasMadeFor) {
  Recorder r;
  r.begin(Phase::python, Who::user, Who::slot, StepKind::request);
  r.end("__add__");
  r.begin(Phase::python, Who::slot, Who::slot, StepKind::self);
  const auto guarded = [&](const char* op) {
    r.begin_op(op);
    r.begin(Phase::validate, Who::op, Who::guard, StepKind::guard);
    r.end("dtype");
    r.end_op();
  };
  guarded("astype");
  r.end("maybe_promote");
  guarded("add");
  record_add(r);
  std::vector<int> ops;
  for (const TraceStep& s : assemble(std::move(r), {}, {}, false).steps) ops.push_back(s.step.op);
  EXPECT_EQ(ops, (std::vector<int>{1, 1, 0, 1, 2, 2, 2, 2}));
}

TEST(Recorder, NestsOpsAndSteps) {
  Recorder r;
  r.begin_op("softmax");
  r.begin(Phase::compute, Who::op, Who::backend, StepKind::request);
  record_add(r);
  r.end("compose");
  r.end_op();
  const TraceRecord t = assemble(std::move(r), timing_of({1000, 18, 4, 900, 27}, 1100), {}, false);
  ASSERT_EQ(t.steps.size(), 5u);
  EXPECT_EQ(t.steps[0].step.label, "compose");
  EXPECT_EQ(t.steps[1].step.parent, 0);
  EXPECT_EQ(t.steps[2].step.depth, 1);
  EXPECT_EQ(t.ops[1].parent, 0);
  EXPECT_DOUBLE_EQ(*t.steps[0].ns, 1000 - 18 - 4 - 900 - 27);
}

TEST(Recorder, EndsStepsThatAnExceptionLeftOpen) {
  Recorder r;
  r.begin_op("add");
  r.begin(Phase::validate, Who::op, Who::guard, StepKind::guard);
  r.end_op();
  record_add(r);
  ASSERT_EQ(r.steps.size(), 5u);
  EXPECT_EQ(r.steps[0].label, "raised");
  for (const Step& s : r.steps) EXPECT_EQ(s.parent, -1);
}

TEST(Recorder, SeesEffectsThatOutliveARun) {
  Recorder r;
  record_add(r);
  EXPECT_FALSE(r.has_effects);
  r.begin(Phase::validate, Who::op, Who::guard, StepKind::guard);
  r.end(Event::checked, {{Fact::in_place, true}});
  EXPECT_TRUE(r.has_effects);
}

TEST(Format, WritesDurations) {
  EXPECT_EQ(format::duration(18.4), "18 ns");
  EXPECT_EQ(format::duration(999.4), "999 ns");
  EXPECT_EQ(format::duration(999.6), "1.00 µs");
  EXPECT_EQ(format::duration(10'960), "11.0 µs");
  EXPECT_EQ(format::duration(2'930'000), "2.93 ms");
  EXPECT_EQ(format::duration(1.5e9), "1.50 s");
}

TEST(Format, EscapesJsonAndXml) {
  EXPECT_EQ(format::json("a\"b\\c\n\x01µ"), "\"a\\\"b\\\\c\\n\\u0001µ\"");
  EXPECT_EQ(format::json("\xFF\xC0\xAF\xED\xA0\x80x"), "\"\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDx\"");
  EXPECT_EQ(format::json("\xF0\x9F\x94\xA5\xF0\x9F"), "\"\U0001F525\uFFFD\uFFFD\"");
  EXPECT_EQ(format::json(0.04), "0");
  EXPECT_EQ(format::json(1.25e7), "12500000");
  EXPECT_EQ(format::json(std::nan("")), "null");
  EXPECT_EQ(format::xml("<a b=\"c\">&'\x02"), "&lt;a b=&quot;c&quot;&gt;&amp;&#39;\uFFFD");
}

TEST(Trace, CallsTheRestInterpreterUnlessItIsNoise) {
  const auto rest = [](double total, double spread) {
    Recorder r;
    record_add(r);
    Timing timing = timing_of({100, 100, 100, 100}, total);
    timing.spread_ns = spread;
    return assemble(std::move(r), timing, {}, false).interpreter_ns;
  };
  EXPECT_EQ(rest(450, 20), 50);
  EXPECT_EQ(rest(450, 60), std::nullopt);
  EXPECT_EQ(rest(390, 0), std::nullopt);
}

TEST(Writers, LayTextOutInColumns) {
  EXPECT_EQ(
      to_text(add_trace(), 108),
      "c = a + b      digits.py:41      4.00 ms      48.0 GB/s      780 ns around the kernel\n"
      "Python    User -> __add__               c = a + b                 18 ns  both operands are hyalite tensors;\n"
      "                                                                         the op registry is skipped\n"
      "Validate  AddBackward -> SchemaGuard    dtype, device, shape    < 10 ns  accepted\n"
      "Compute   Backend cpu -> Kernel avx512  add_float32, 2 threads  4.00 ms  avx512 is the widest instruction\n"
      "                                                                         set\n"
      "Return    _C_engine.add -> User         wrap: Tensor              27 ns\n"
      "Recorder: 4 events of 20 ns, 80 ns subtracted; medians of 25 runs a step; 731 ns in the interpreter; called\n"
      "once.\n");
}

TEST(Writers, KeepTextWithinItsWidth) {
  for (const int width : {40, 60, 80, 100, 200}) {
    const std::string text =
        to_text(add_trace("a reason of some length, with averyveryveryveryveryverylongword in it"), width);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(format::columns(line), width) << line;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
    }
  }
}

TEST(Writers, ColourOnlyOnRequest) {
  EXPECT_EQ(to_text(add_trace(), 100).find('\x1b'), std::string::npos);
  const std::string coloured = to_text(add_trace(), 100, true);
  EXPECT_NE(coloured.find("\x1b["), std::string::npos);
  EXPECT_EQ(std::regex_replace(coloured, std::regex("\x1b\\[[0-9;]*m"), ""), to_text(add_trace(), 100));
}

TEST(Writers, JsonHoldsTheRecord) {
  const std::string json = to_json(add_trace());
  EXPECT_NE(json.find("\"schema\": \"hyalite-trace/1\""), std::string::npos);
  EXPECT_NE(json.find("\"total_ns\": 4000780"), std::string::npos);
  EXPECT_NE(json.find("\"shape\": [4096, 4096]"), std::string::npos);
  EXPECT_NE(json.find("\"below_resolution\": true"), std::string::npos);
  EXPECT_NE(json.find("\"gb_per_s\": 48,"), std::string::npos);
  EXPECT_NE(json.find("\"threads\": 2, \"copies\": 0"), std::string::npos) << "whole numbers stay numbers";
  EXPECT_NE(json.find("\"file\": \"src/ops/arithmetic.h\""), std::string::npos);
  EXPECT_NE(json.find("return x + y"), std::string::npos);
  // Autograd takes no part, so that places are counted without it.
  EXPECT_NE(json.find("\"participants\": [\"User\", \"__add__\", \"_C_engine.add\", \"AddBackward\", \"SchemaGuard\", "
                      "\"Backend cpu\", \"Kernel avx512\"]"),
            std::string::npos);
}

TEST(Writers, UntimedStepsHaveNoTime) {
  Recorder r;
  record_add(r);
  const TraceRecord t = assemble(std::move(r), {}, {}, false);
  EXPECT_EQ(t.expression, "add");
  EXPECT_EQ(count(to_json(t), "\"ns\": null"), 4);
  EXPECT_EQ(to_json(t).find("start_ns"), std::string::npos);
  EXPECT_EQ(to_text(t, 120).find(" ns "), to_text(t, 120).find(" ns ", to_text(t, 120).find("Recorder")));
}

TEST(Writers, PageHoldsTheRecordAndNothingEscapesFromIt) {
  const std::string plain = to_html(add_trace()), page = to_html(add_trace(nasty));
  EXPECT_EQ(page.find("__TRACE__"), std::string::npos);
  EXPECT_EQ(count(page, "</script>"), count(plain, "</script>"));
  EXPECT_EQ(count(page, "<!--"), count(plain, "<!--"));
  EXPECT_NE(page.find("\\u003c/script>"), std::string::npos);
}

/// Whether every element is closed in order, and no character is left unescaped.
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  const std::regex tag(R"re(<(/?)([A-Za-z]+)((?: [A-Za-z0-9:_-]+="[^"<]*")*)(/?)>)re");
  std::size_t at = 0;
  for (auto i = std::sregex_iterator(xml.begin(), xml.end(), tag); i != std::sregex_iterator(); ++i) {
    const auto& m = *i;
    const std::string between = xml.substr(at, static_cast<std::size_t>(m.position()) - at);
    if (between.find('<') != between.npos) return false;
    at = static_cast<std::size_t>(m.position() + m.length());
    if (m[1].length() > 0) {
      if (open.empty() || open.back() != m[2]) return false;
      open.pop_back();
    } else if (m[4].length() == 0) {
      open.push_back(m[2]);
    }
  }
  return open.empty() && xml.substr(at).find('<') == std::string::npos;
}

TEST(Writers, SvgIsWellFormed) {
  EXPECT_TRUE(well_formed(to_svg(add_trace())));
  const std::string svg = to_svg(add_trace(nasty));
  EXPECT_TRUE(well_formed(svg));
  EXPECT_EQ(svg.find('\x01'), std::string::npos) << "XML has no control characters";
  EXPECT_EQ(count(svg, "class=\"band"), 4);
}

TEST(Writers, MermaidHasOneLineAStep) {
  const std::string text = to_mermaid(add_trace());
  EXPECT_EQ(text.substr(0, 16), "sequenceDiagram\n");
  EXPECT_NE(text.find("  participant p1 as __add__\n"), std::string::npos);
  EXPECT_NE(text.find("  p0->>p1: c = a + b (18 ns)\n"), std::string::npos);
  EXPECT_NE(text.find("  p2-->>p0: wrap: Tensor (27 ns)\n"), std::string::npos);
  EXPECT_NE(text.find("  p3->>p4: dtype, device, shape (#lt; 10 ns)\n"), std::string::npos);
  TraceRecord t = add_trace();
  t.steps[0].step.label = "a; b # c\nd <e>";
  EXPECT_NE(to_mermaid(t).find("p0->>p1: a#59; b #35; c d #lt;e#gt; (18 ns)\n"), std::string::npos);
}

TEST(Writers, ChromeHasOneSliceAStep) {
  const std::string json = to_chrome(add_trace(nasty));
  EXPECT_EQ(count(json, "\"ph\": \"X\""), 4);
  EXPECT_EQ(count(json, "\"thread_name\""), 8);
  EXPECT_NE(json.find("\"ts\": 0.018000, \"dur\": 0.004000"), std::string::npos) << json;
}

TEST(Explain, RunsAgainAndLeavesNoRecorderBehind) {
  int calls = 0;
  const auto f = [&] {
    ++calls;
    if (context().recorder != nullptr) record_add(*context().recorder);
  };
  ExplainOptions options;
  options.rounds = 5;
  options.repeat = true;
  const Trace t = explain(f, options);
  EXPECT_EQ(context().recorder, nullptr);
  EXPECT_GE(calls, 2 + 5 * 4);
  EXPECT_EQ(t.record().recorder.calls, calls);
  EXPECT_NE(t.text(400).find("; called " + std::to_string(calls) + " times"), std::string::npos);
  EXPECT_NE(t.json().find("\"calls\": " + std::to_string(calls)), std::string::npos);
  EXPECT_EQ(t.record().recorder.runs, 5);
  EXPECT_EQ(t.record().steps.size(), 4u);
  for (const TraceStep& s : t.record().steps) EXPECT_TRUE(s.ns.has_value());
  EXPECT_TRUE(t.record().total_ns.has_value());
}

ExplainOptions repeated() {
  ExplainOptions options;
  options.repeat = true;
  return options;
}

TEST(Explain, CallsOnceUnlessToldThatItMayRepeatAndNothingRemains) {
  int calls = 0;
  ExplainOptions options;
  options.why_once = "it prints";
  EXPECT_NE(explain([&] { ++calls; }, options).text(400).find("called once: it prints."), std::string::npos);
  EXPECT_EQ(calls, 1);
  const auto remains = [&] {
    ++calls;
    context().recorder->has_effects = true;
  };
  const Trace t = explain(remains, repeated());
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(t.record().total_ns.has_value());
}

TEST(Explain, PassesExceptionsThrough) {
  EXPECT_THROW(explain([] { throw ShapeMismatch("no"); }), ShapeMismatch);
  EXPECT_EQ(context().recorder, nullptr);
  ExplainOptions none;
  none.rounds = 0;
  EXPECT_THROW(explain([] {}, none), ValueError);
}

TEST(Explain, KeepsTheFirstRunWhereALaterOneRaises) {
  int calls = 0;
  const Trace t = explain(
      [&] {
        record_add(*context().recorder);
        if (++calls == 2) throw AutogradError("backward() a second time");
      },
      repeated());
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(t.record().steps.size(), 4u);
  EXPECT_NE(t.text(400).find("backward() a second time"), std::string::npos);
  EXPECT_EQ(context().recorder, nullptr);
}

TEST(Explain, SaysSoWhereRunsTakeDifferentSteps) {
  int calls = 0;
  const Trace t = explain(
      [&] {
        ++calls;
        if (context().recorder == nullptr) return;
        record_add(*context().recorder);
        if (calls > 2 && calls % 2 == 0) record_add(*context().recorder);
        if (calls > 2) context().recorder->steps[0].kind = StepKind::lazy;
      },
      repeated());
  EXPECT_NE(t.record().recorder.note.find("different steps"), std::string::npos);
  EXPECT_EQ(t.record().steps.size(), 4u);
}

TEST(Explain, RecordsAScope) {
  ExplainScope scope;
  record_add(*context().recorder);
  {
    ExplainScope inner;
    EXPECT_THROW(scope.end(), ValueError);
    record_add(*context().recorder);
    EXPECT_EQ(inner.end().record().steps.size(), 4u);
    EXPECT_THROW(inner.end(), ValueError);
  }
  const Trace t = scope.end();
  EXPECT_EQ(context().recorder, nullptr);
  EXPECT_EQ(t.record().steps.size(), 4u);
  EXPECT_TRUE(t.record().steps[0].ns.has_value());
}

TEST(Explain, SavesByEnding) {
  const Trace t(std::make_shared<const TraceRecord>(add_trace()));
  const std::string path = testing::TempDir() + "hyalite_trace.trace.json";
  t.save(path);
  std::ifstream file(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), t.as("trace.json"));
  std::remove(path.c_str());
  EXPECT_THROW(t.save("trace.pdf"), ValueError);
  EXPECT_THROW(t.save("/no/such/folder/trace.svg"), ValueError);
}

[[gnu::noinline]] int collatz_steps(unsigned n) {
  int steps = 0;
  for (; n != 1; ++steps) n = n % 2 == 0 ? n / 2 : 3 * n + 1;
  return steps;
}

TEST(Disassemble, GivesAWholeFunctionWhereObjdumpIs) {
  const bool installed = std::system("command -v objdump > /dev/null") == 0;
  const std::string text = disassemble(reinterpret_cast<const void*>(&collatz_steps));
  EXPECT_EQ(!text.empty(), installed);
  EXPECT_EQ(text.find("ret") != text.npos, installed) << text;
  EXPECT_EQ(disassemble(nullptr), "");
  EXPECT_EQ(disassemble("no function"), "");
}

TEST(Source, GivesTheStructOfEveryOp) {
  for (const OpInfo& op : op_table()) {
    const SourceText s = op_source(op);
    EXPECT_TRUE(s.text.starts_with("///")) << op.name() << "\n" << s.text;
    EXPECT_TRUE(s.text.ends_with("};\n")) << op.name();
    EXPECT_NE(s.text.find(".name = \"" + std::string(op.name()) + "\""), std::string::npos) << op.name();
    EXPECT_GT(s.formula_line, s.line);
    EXPECT_FALSE(op_doc(op).empty()) << op.name();
  }
  EXPECT_EQ(op_doc(find_op("add")), "x1 + x2. Integers wrap; booleans join by or.");
}

}  // namespace
}  // namespace hyalite
