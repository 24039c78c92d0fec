/// Passes that reduce: each stage walks the elements once more, computing from the operands what it reduces; the last
/// one also stores. What there is once for a place stays in variables.
#include <algorithm>

#include "compute/opencl/group.h"
#include "compute/opencl/layout.h"
#include "compute/opencl/primitives.h"
#include "compute/opencl/reductions.h"

namespace hyalite::opencl {
namespace {

using lazy::Memory;
using lazy::Pass;
using lazy::Program;

constexpr Language C = Language::opencl;

/// A reduction of a stage.
struct Reduction {
  FoldText text;
  std::string state, value, type;  // variables, and the latter's type
  std::string end;                 // the declaration of what the state gives
  Expr from;
  int stage;
};

class Rows final : public GeneratedGroup {
 public:
  Rows(ClDevice& device, const Program& p)
      : GeneratedGroup(device, p), pass_(p.pass), layout_(p.pass.shape, full_operands(p)) {
    std::vector<std::int64_t> numbers = layout_.numbers();
    load(p, numbers);
    for (const Program::Step& s : p.steps) step(p, s);
    finish(p, numbers);
    spread_ = spread_over(device, pass_.kept(), pass_.reduced(), pass_.kind != Pass::columns);
    if (stages_ > 1) spread_.parts = 1;
    const bool parts = spread_.parts > 1;
    whole_ = &compile(parts ? parts_body() : body(), parts ? "hyalite_parts" : "hyalite_rows");
    if (parts) joined_ = &compile(join_body(), "hyalite_join");
    numbers_ = sent(device, numbers);
  }

 private:
  // ---- what is computed when ----

  static std::vector<const TensorImpl*> full_operands(const Program& p) {
    std::vector<const TensorImpl*> all;
    for (std::size_t i = 0; i < p.in.size(); ++i) {
      if (!p.kept[i]) all.push_back(p.in[i].get());
    }
    for (std::size_t j = 0; j < p.out.size(); ++j) {
      if (!p.kept[static_cast<std::size_t>(p.stored[j])]) all.push_back(p.out[j].get());
    }
    return all;
  }

  void load(const Program& p, std::vector<std::int64_t>& numbers) {
    stage_of_.resize(static_cast<std::size_t>(p.registers));
    for (std::size_t i = 0; i < p.in.size(); ++i) {
      const int r = static_cast<int>(i);
      const TensorImpl& t = *p.in[i];
      const std::string name = "x" + std::to_string(i);
      if (!p.kept[i]) {
        expressions_.load({name, t.dtype(), false, false, r, layout_.place(operands_++)});
        continue;
      }
      const std::string offset = "m[" + std::to_string(numbers.size()) + "]";
      numbers.push_back(t.offset());
      expressions_.load({name, t.dtype(), false, false, r, t.numel() == 1 ? offset : "o + " + offset});
      keep(r, 0);
    }
    for (const Operand& o : p.numbers) expressions_.number(o);
  }

  /// A value of a place in a variable, known before the stage.
  void keep(int r, int stage) {
    const std::string name = "k" + std::to_string(variables_++);
    const Expr value = expressions_.keep(r, name);
    assign(stage, {"const " + value_type(value.dtype()) + " " + name, value});
  }
  void assign(int stage, Assignment a) {
    if (before_.size() <= static_cast<std::size_t>(stage)) before_.resize(static_cast<std::size_t>(stage) + 1);
    before_[static_cast<std::size_t>(stage)].push_back(std::move(a));
  }

  void step(const Program& p, const Program::Step& s) {
    int stage = 0;
    for (const int r : s.from) stage = r < 0 ? stage : std::max(stage, stage_of_[static_cast<std::size_t>(r)]);
    const lazy::Node& n = *s.node;
    for (std::size_t k = 0; k < n.out.size(); ++k)
      stage_of_[static_cast<std::size_t>(s.to) + k] = stage + (n.is_elementwise() ? 0 : 1);
    if (n.is_elementwise()) {
      expressions_.step(s);
      for (std::size_t k = 0; k < n.out.size(); ++k) {
        const int r = s.to + static_cast<int>(k);
        if (p.kept[static_cast<std::size_t>(r)]) keep(r, stage);
      }
      return;
    }
    const Dtype in = expressions_.dtype(s.from[0]), out = n.out[0]->dtype();
    const std::string number = std::to_string(reductions_.size());
    Reduction d;
    d.state = "a" + number;
    d.value = "v" + number;
    d.type = value_type(computed(in));
    d.text = fold_text(*fold_of(n.op->name()), in, out, device_.facts().has_float64, d.state, d.value);
    d.from = expressions_.in(s.from[0], in);
    d.stage = stage;
    // What the state gives, as a value.
    const std::string name = "k" + std::to_string(variables_++);
    const Dtype t = computed_in(out);
    d.end = "const " + value_type(t) + " " + name + " = " + (t == out ? d.text.end : loaded(out, d.text.end));
    const int at = expressions_.add({name, t, false, true, -1, "", true});
    expressions_.push(Expr::attribute(at, t), out, out);
    stages_ = std::max(stages_, stage + 1);
    reductions_.push_back(std::move(d));
  }

  void finish(const Program& p, std::vector<std::int64_t>& numbers) {
    for (std::size_t j = 0; j < p.out.size(); ++j) {
      const Dtype t = p.out[j]->dtype();
      const int k = static_cast<int>(j), r = p.stored[j];
      const std::string name = "out" + std::to_string(j);
      const Expr value = expressions_.stored(r, t);
      if (p.kept[static_cast<std::size_t>(r)]) {
        const std::string place = "o + m[" + std::to_string(numbers.size()) + "]";
        numbers.push_back(p.out[j]->offset());
        expressions_.add({name, t, true, false, k, place});
        kept_stores_.push_back({name + "[" + place + "]", value});
      } else {
        const std::string place = layout_.place(operands_++);
        expressions_.add({name, t, true, false, k, place});
        stores_.push_back({name + "[" + place + "]", value});
        stages_ = std::max(stages_, stage_of_[static_cast<std::size_t>(r)] + 1);
      }
    }
    before_.resize(std::max(before_.size(), static_cast<std::size_t>(stages_) + 1));
  }

  // ---- text ----

  std::string lines(std::span<const Assignment> all, std::string_view indent) {
    return assignment_lines(C, expressions_.arguments(), all, indent, temporaries_);
  }
  /// What is known of a place before the stage; one may read the others.
  std::string variables(int stage) {
    std::string s;
    for (const Assignment& a : before_[static_cast<std::size_t>(stage)]) s += lines(std::span(&a, 1), "    ");
    return s;
  }

  std::string head(const std::string& name, const std::string& more) {
    return "__kernel void " + name + "(long count, long n" + more + parameters(C, expressions_.arguments()) +
           ", __constant const long* m) {\n";
  }
  /// A loop over the places, or their parts, with memory for the states of a group.
  std::string begin(const std::string& of = "o", const std::string& count = "count") const {
    std::string s;
    std::vector<std::string> types;
    for (const Reduction& d : reductions_) {
      if (std::ranges::find(types, d.text.state) != types.end()) continue;
      types.push_back(d.text.state);
      s += "  __local " + d.text.state + " all_" + d.text.state + "[" + std::to_string(group_size) + "];\n";
    }
    return begin_lines(spread_.groups, s, of, count);
  }

  std::vector<const Reduction*> of_stage(int stage) const {
    std::vector<const Reduction*> all;
    for (const Reduction& d : reductions_) {
      if (d.stage == stage) all.push_back(&d);
    }
    return all;
  }

  std::string states(int stage) const {
    std::string s;
    for (const Reduction* d : of_stage(stage))
      s += "    " + d->text.state + " " + d->state + " = " + d->text.begin + ";\n";
    return s;
  }

  /// The elements of a place, or of a part of it, into states; what is stored goes into memory.
  std::string walk(int stage) {
    const bool columns = pass_.kind == Pass::columns;
    std::string s = "    for (" + part_loop(spread_) + ") {\n";
    s += std::string("      const long i = ") + (columns ? "j * count + o" : "o * n + j") + ";\n";
    s += layout_.coordinates(pass_.outer(), pass_.inner(), columns ? "j" : "o", columns ? "o" : "j");
    std::vector<Assignment> all;
    for (const Reduction* d : of_stage(stage)) all.push_back({"const " + d->type + " " + d->value, d->from});
    if (stage + 1 == stages_) all.insert(all.end(), stores_.begin(), stores_.end());
    s += lines(all, "      ");
    for (const Reduction* d : of_stage(stage)) s += "      " + d->text.join + "\n";
    return s + "    }\n";
  }

  /// From the states of the items to one, in item 0.
  std::string merged(const Reduction& d) const {
    if (!spread_.groups) return "";
    return "    barrier(CLK_LOCAL_MEM_FENCE);\n" + merge_lines(d.text, d.state, "all_" + d.text.state);
  }
  /// And from that to values that every item has.
  std::string values(int stage) const {
    std::string s;
    for (const Reduction* d : of_stage(stage)) {
      s += merged(*d);
      if (spread_.groups)
        s += "    barrier(CLK_LOCAL_MEM_FENCE);\n    " + d->state + " = all_" + d->text.state + "[0];\n";
      s += "    " + d->end + ";\n";
    }
    return s;
  }
  std::string kept_stores() {
    if (kept_stores_.empty()) return "";
    if (!spread_.groups) return lines(kept_stores_, "    ");
    return "    if (me == 0) {\n" + lines(kept_stores_, "      ") + "    }\n";
  }

  std::string body() {
    std::string s = head("hyalite_rows", "") + begin();
    for (int stage = 0; stage < stages_; ++stage) s += variables(stage) + states(stage) + walk(stage) + values(stage);
    return s + variables(stages_) + kept_stores() + end_lines(spread_.groups);
  }

  /// Of the only stage, a part of a place.
  std::string parts_body() {
    std::string s = head("hyalite_parts", part_parameters) + part_states() + begin("w", "count * parts");
    s += part_lines(spread_.groups) + variables(0) + states(0) + walk(0);
    for (const Reduction& d : reductions_) s += merged(d);
    for (const Reduction& d : reductions_) {
      s += first_item(spread_.groups) + "part_" + d.state + "[w] = " + d.state + ";\n";
    }
    return s + end_lines(spread_.groups);
  }

  /// From the states of the parts to values.
  std::string join_body() {
    std::string s = head("hyalite_join", part_parameters) + part_states() + begin() + variables(0) + states(0);
    s += "    for (" + join_loop(spread_.groups) + ") {\n";
    for (const Reduction& d : reductions_) {
      s += "      { const " + d.text.state + " b = part_" + d.state + "[" + join_place(spread_.groups) + "]; " +
           d.text.merge + " }\n";
    }
    return s + "    }\n" + values(0) + variables(1) + kept_stores() + end_lines(spread_.groups);
  }
  /// The states of the parts lie in one piece of memory: a kernel takes few arguments.
  static constexpr const char* part_parameters = ", long parts, __global uchar* memory";
  std::string part_states() const {
    std::string s;
    for (std::size_t k = 0; k < reductions_.size(); ++k) {
      const std::string type = "__global " + reductions_[k].text.state + "*";
      s += "  " + type + " part_" + reductions_[k].state + " = (" + type + ")(memory + " +
           std::to_string(k * largest_state) + " * count * parts);\n";
    }
    return s;
  }

  // ---- running ----

  void launch(std::span<const Memory> in, std::span<const Memory> out) const override {
    const std::int64_t kept = pass_.kept();
    std::vector<KernelArgument> all{scalar(kept), scalar(pass_.reduced())};
    Ref<Storage> states;
    if (spread_.parts > 1) {
      const std::size_t bytes = static_cast<std::size_t>(kept * spread_.parts) * largest_state;
      states = device_.memory(reductions_.size() * bytes);
      all.push_back(scalar(spread_.parts));
      all.emplace_back(ClDevice::buffer(*states));
    }
    append(all, in, out);
    all.emplace_back(ClDevice::buffer(*numbers_));
    device_.launch(*whole_, all, static_cast<std::size_t>(spread_.items(kept * spread_.parts)), group_size);
    if (joined_ != nullptr) device_.launch(*joined_, all, static_cast<std::size_t>(spread_.items(kept)), group_size);
  }

  Pass pass_;
  Layout layout_;
  Spread spread_;
  int operands_ = 0, variables_ = 0, temporaries_ = 0, stages_ = 1;
  std::vector<int> stage_of_;                    // by register: that which can read it
  std::vector<std::vector<Assignment>> before_;  // by stage, and after the last
  std::vector<Reduction> reductions_;
  std::vector<Assignment> stores_, kept_stores_;
  const Kernel *whole_ = nullptr, *joined_ = nullptr;
  Ref<Storage> numbers_;
};

}  // namespace

std::unique_ptr<lazy::FusedKernel> fuse_rows(ClDevice& device, const Program& p) {
  return std::make_unique<Rows>(device, p);
}

}  // namespace hyalite::opencl
