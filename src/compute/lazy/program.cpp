/// From the nodes of a group to a straight line of steps.
#include "compute/lazy/program.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "compute/lazy/fuse.h"

namespace hyalite::lazy {

Program make_program(const Pass& pass, const std::vector<Node*>& nodes, const Moved& moved,
                     const std::function<Value(const Value&)>& resolve,
                     const std::function<bool(const Node&, int)>& stores, std::vector<Value>& in,
                     std::vector<Value>& out) {
  Program p;
  p.pass = pass;
  const auto inside = [&](const Node* n) { return std::ranges::find(nodes, n) != nodes.end(); };
  std::vector<bool> input_kept;
  const auto input_of = [&](const Value& v, const TensorRef& form, bool kept, bool whole) {
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i] == v && input_kept[i] == kept && p.whole[i] == whole && same_form(*p.in[i], *form))
        return static_cast<int>(i);
    }
    in.push_back(v);
    p.in.push_back(form);
    p.whole.push_back(whole);
    input_kept.push_back(kept);
    return static_cast<int>(in.size()) - 1;
  };
  const auto number_of = [&](const Operand& o) {
    for (std::size_t i = 0; i < p.numbers.size(); ++i) {
      if (same_number(p.numbers[i], o)) return static_cast<int>(i);
    }
    p.numbers.push_back(o);
    return static_cast<int>(p.numbers.size()) - 1;
  };
  // A reduction reads elements and makes a value for each kept place.
  const auto makes_kept = [&](const Node& n) {
    return pass.reduces() && !pass.is_full(n.out[0]->shape()) && !moved.contains(&n);
  };
  const auto reads_kept = [&](const Node& n) { return makes_kept(n) && n.is_elementwise(); };
  const auto multiplies = [&](const Node& n) { return pass.kind == Pass::product && !n.is_elementwise(); };
  const auto form_of = [&](const Node& n, std::size_t k) {
    const auto at = moved.find(&n);
    return at != moved.end() && at->second[k] ? at->second[k] : n.in[k].use.form;
  };
  for (const Node* n : nodes) {
    for (std::size_t k = 0; k < n->in.size(); ++k) {
      const Input& i = n->in[k];
      if (i.is_number) {
        number_of(i.number);
      } else if (const Value v = resolve(i.use.from); v.node && !inside(v.node.get())) {
        input_of(v, form_of(*n, k), reads_kept(*n), multiplies(*n));
      }
    }
  }
  p.registers = static_cast<int>(p.in.size() + p.numbers.size());
  p.kept = input_kept;
  p.kept.resize(static_cast<std::size_t>(p.registers));
  std::map<std::pair<const Node*, int>, int> made;
  for (Node* n : nodes) {
    Program::Step step{NodeRef::share(n), {}, p.registers};
    for (std::size_t k = 0; k < n->in.size(); ++k) {
      const Input& i = n->in[k];
      if (i.absent()) {
        step.from.push_back(-1);
      } else if (i.is_number) {
        step.from.push_back(p.number(static_cast<std::size_t>(number_of(i.number))));
      } else {
        const Value v = resolve(i.use.from);
        step.from.push_back(inside(v.node.get()) ? made.at({v.node.get(), v.output})
                                                 : input_of(v, form_of(*n, k), reads_kept(*n), multiplies(*n)));
      }
    }
    for (std::size_t k = 0; k < n->out.size(); ++k) {
      const int output = static_cast<int>(k);
      made[{n, output}] = p.registers;
      if (stores(*n, output)) {
        p.out.push_back(n->out[k]);
        p.stored.push_back(p.registers);
        out.push_back({NodeRef::share(n), output});
      }
      p.kept.push_back(makes_kept(*n));
      ++p.registers;
    }
    p.steps.push_back(std::move(step));
  }
  p.replaces.assign(p.out.size(), -1);
  return p;
}

std::string text(const Program& p) {
  const auto name_of = [&](int r) -> std::string {
    if (r < 0) return "_";
    const int inputs = static_cast<int>(p.in.size()), numbers = static_cast<int>(p.numbers.size());
    if (r < inputs) return "x" + std::to_string(r);
    if (r >= inputs + numbers) return "t" + std::to_string(r - inputs - numbers);
    return detail::field_text(p.numbers[static_cast<std::size_t>(r - inputs)].scalar);
  };
  std::string s;
  if (p.pass.kind == Pass::product) s += "for each tile of " + to_string(p.pass.shape) + "\n";
  if (p.pass.reduces()) {
    const char* what = p.pass.kind == Pass::columns ? "columns" : "rows";
    s += std::string("for each of ") + std::to_string(p.pass.kept()) + " " + what + " of " +
         std::to_string(p.pass.reduced()) + "\n";
  }
  for (std::size_t i = 0; i < p.in.size(); ++i) {
    const TensorImpl& f = *p.in[i];
    s += "x" + std::to_string(i) + (p.whole[i] ? " = all of " : " = load ") + std::string(name(f.dtype())) +
         to_string(f.shape());
    s += f.contiguous() ? "\n" : " strides " + to_string(f.strides()) + "\n";
  }
  for (const Program::Step& step : p.steps) {
    std::string line = name_of(step.to);
    for (std::size_t k = 1; k < step.node->out.size(); ++k) line += ", " + name_of(step.to + static_cast<int>(k));
    line += " = " + step.node->name() + "(";
    for (std::size_t i = 0; i < step.from.size(); ++i) line += (i ? ", " : "") + name_of(step.from[i]);
    line += ")";
    if (step.node->op != nullptr && step.node->attrs) {
      const auto fields = step.node->op->fields();
      for (std::size_t i = 0; i < fields.size(); ++i) {
        line += (i ? ", " : "  ") + std::string(fields[i].name) + "=" + step.node->attrs->text(static_cast<int>(i));
      }
    }
    const std::string where = describe(step.node->location);
    if (!where.empty()) line += "  # " + where;
    s += line + "\n";
  }
  for (std::size_t k = 0; k < p.out.size(); ++k) {
    const TensorImpl& f = *p.out[k];
    s += "store " + name_of(p.stored[k]) + " " + std::string(name(f.dtype())) + to_string(f.shape());
    if (p.replaces[k] >= 0) s += " in the place of x" + std::to_string(p.replaces[k]);
    s += "\n";
  }
  return s;
}

}  // namespace hyalite::lazy
