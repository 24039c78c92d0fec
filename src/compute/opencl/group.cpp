/// Steps become one expression for each output; sizes, strides, numbers and attributes are arguments.
#include "compute/opencl/group.h"

#include "compute/opencl/kernels.h"
#include "compute/opencl/layout.h"

namespace hyalite::opencl {

using lazy::Memory;
using lazy::Program;

GeneratedGroup::GeneratedGroup(ClDevice& device, const Program& p) : device_(device) {
  for (const TensorRef& t : p.in) check_dtype(device, t->dtype(), p.steps.front().node->name());
  for (const Program::Step& s : p.steps) {
    for (const TensorRef& t : s.node->out) check_dtype(device, t->dtype(), s.node->name());
    ops_ += (ops_.empty() ? "" : ", ") + s.node->name();
  }
}

const Kernel& GeneratedGroup::compile(const std::string& body, const std::string& name) {
  const std::string text = complete_source(Language::opencl, body);
  const ClDevice::Counts before = device_.counts();
  const Kernel& k = device_.kernel(text, name);
  const std::string came = device_.came_since(before);
  if (came_.empty()) came_ = came;
  told_.source += (told_.source.empty() ? "" : "\n") + text;
  told_.seconds += k.seconds();
  told_.functions += 1;
  told_.from_disk += k.from_disk() ? 1 : 0;
  return k;
}

void GeneratedGroup::append(std::vector<KernelArgument>& all, std::span<const Memory> in,
                            std::span<const Memory> out) const {
  for (const Argument& a : expressions_.arguments()) {
    if (a.is_local) continue;
    const auto at = static_cast<std::size_t>(a.leaf);
    if (a.is_attribute) {
      all.push_back(expressions_.scalars()[at]);
    } else {
      all.emplace_back(ClDevice::buffer(*(a.is_output ? out : in)[at].storage));
    }
  }
}

void GeneratedGroup::run(std::span<const Memory> in, std::span<const Memory> out, Recorder* rec) const {
  Span span(rec, Phase::compute, Who::backend, Who::kernel, StepKind::request);
  launch(in, out);
  const bool again = ran_.exchange(true, std::memory_order_relaxed);
  if (span.over()) {
    rec->end(Event::queued, {{Fact::op, ops_}, {Fact::kernel, again ? std::string("kept with its plan") : came_}});
  }
}

namespace {

std::vector<const TensorImpl*> operands(const Program& p) {
  std::vector<const TensorImpl*> all;
  for (const TensorRef& t : p.in) all.push_back(t.get());
  for (const TensorRef& t : p.out) all.push_back(t.get());
  return all;
}

/// An item an element.
class Elements final : public GeneratedGroup {
 public:
  Elements(ClDevice& device, const Program& p) : GeneratedGroup(device, p) {
    const Layout layout(p.pass.shape, operands(p));
    const int inputs = static_cast<int>(p.in.size());
    for (int i = 0; i < inputs; ++i) {
      const Dtype t = p.in[static_cast<std::size_t>(i)]->dtype();
      expressions_.load({"x" + std::to_string(i), t, false, false, i, layout.place(i)});
    }
    for (const Operand& o : p.numbers) expressions_.number(o);
    for (const Program::Step& s : p.steps) expressions_.step(s);
    std::vector<Assignment> stores;
    for (std::size_t j = 0; j < p.out.size(); ++j) {
      const Dtype t = p.out[j]->dtype();
      const int k = static_cast<int>(j);
      const std::string name = "out" + std::to_string(j), place = layout.place(inputs + k);
      expressions_.add({name, t, true, false, k, place});
      stores.push_back({name + "[" + place + "]", expressions_.stored(p.stored[j], t)});
    }
    const std::vector<Argument>& arguments = expressions_.arguments();
    int temporaries = 0;
    kernel_ = &compile("__kernel void hyalite_group(long n" + parameters(Language::opencl, arguments) +
                           ", __constant const long* m) {\n"
                           "  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {\n" +
                           layout.coordinates() +
                           assignment_lines(Language::opencl, arguments, stores, "    ", temporaries) + "  }\n}\n",
                       "hyalite_group");
    count_ = layout.count();
    numbers_ = sent(device, layout.numbers());
  }

 private:
  void launch(std::span<const Memory> in, std::span<const Memory> out) const override {
    std::vector<KernelArgument> all{scalar(count_)};
    append(all, in, out);
    all.emplace_back(ClDevice::buffer(*numbers_));
    device_.launch(*kernel_, all, static_cast<std::size_t>(count_), group_size);
  }

  const Kernel* kernel_ = nullptr;
  std::int64_t count_ = 0;
  Ref<Storage> numbers_;
};

}  // namespace

std::unique_ptr<lazy::FusedKernel> fuse(ClDevice& device, const Program& p) {
  if (p.pass.kind != lazy::Pass::flat) return fuse_rows(device, p);
  return std::make_unique<Elements>(device, p);
}

}  // namespace hyalite::opencl
