/// Memory, conversions and launches.
#include "compute/opencl/kernels.h"

#include <algorithm>
#include <cstring>

#include "compute/opencl/group.h"
#include "hyalite/error.h"
#include "tensor/device.h"

namespace hyalite::opencl {

using lazy::NodeKind;

std::string value_type(Dtype t) { return std::string(c_value_type(Language::opencl, t)); }
std::string stored_type(Dtype t) { return std::string(c_stored_type(Language::opencl, t)); }

std::string loaded(Dtype t, const std::string& element) {
  if (t == Dtype::boolean) return "(uchar)(" + element + " != 0)";
  if (is_16_bit(t)) return "hl_decode_" + std::string(name(t)) + "(" + element + ")";
  return element;
}

void check_dtype(const ClDevice& d, Dtype t, std::string_view op) {
  const bool wide = t == Dtype::float64 || t == Dtype::complex128;
  const bool small = t == Dtype::float8_e4m3fn || t == Dtype::float8_e5m2;
  if (!small && (!wide || d.facts().has_float64)) return;
  const std::string name(hyalite::name(t)), device = to_string(Device{DeviceKind::opencl, d.index()});
  throw Unsupported(std::string(op) + "(): " + device + " (" + d.facts().name + ") has no " + name + "; " +
                        (small ? "take it on the CPU, x.to(\"cpu\")" : "write x.astype(hl.float32) first"),
                    {{"dtype", name}, {"device", device}});
}

Ref<Storage> sent(ClDevice& d, const std::vector<std::int64_t>& numbers) {
  Ref<Storage> s = d.memory(std::max<std::size_t>(1, numbers.size()) * sizeof(std::int64_t));
  d.upload(numbers.data(), *s, numbers.size() * sizeof(std::int64_t));
  return s;
}

void launch(ClDevice& d, const std::string& body, const std::string& name, const std::vector<KernelArgument>& arguments,
            std::int64_t items, std::size_t group) {
  d.launch(d.kernel(complete_source(Language::opencl, body), name), arguments, static_cast<std::size_t>(items), group);
}

Outputs outputs(ClDevice& d, const Validated& v, TensorImpl* target) {
  if (target != nullptr) return Outputs(TensorRef::share(target));
  Outputs o;
  for (int k = 0; k < v.call().op.outputs; ++k) o.add(make(d, v.out_dtype(k), v.shape(k), v.strides(k)));
  return o;
}

static bool is_dense(const TensorImpl& t) { return t.contiguous() && t.offset() == 0; }

TensorRef dense(ClDevice& d, const TensorImpl& t, Dtype dtype) {
  if (t.dtype() == dtype && is_dense(t)) return TensorRef::share(const_cast<TensorImpl*>(&t));
  TensorRef copy = make(d, dtype, t.shape(), row_major(t.shape()));
  convert(d, t, *copy);
  return copy;
}

TensorRef dense_result(ClDevice& d, const TensorImpl& out) {
  if (is_dense(out)) return TensorRef::share(const_cast<TensorImpl*>(&out));
  return make(d, out.dtype(), out.shape(), row_major(out.shape()));
}
void put(ClDevice& d, const TensorRef& made, TensorImpl& out) {
  if (made.get() != &out) convert(d, *made, out);
}

void run_node(ClDevice& d, const lazy::NodeRef& n, const std::vector<const TensorImpl*>& in, Dims shape,
              const Outputs& out) {
  lazy::Program p;
  p.pass.shape = DimList(shape);
  std::vector<lazy::Memory> inputs, results;
  lazy::Program::Step step{n, {}, 0};
  std::vector<Operand> numbers;
  std::size_t next = 0;
  for (const lazy::Input& i : n->in) {
    if (i.is_number) {
      step.from.push_back(-2 - static_cast<int>(numbers.size()));
      numbers.push_back(i.number);
      continue;
    }
    const TensorImpl* t = in[next++];
    step.from.push_back(static_cast<int>(p.in.size()));
    p.in.push_back(TensorRef::share(const_cast<TensorImpl*>(t)));
    inputs.push_back({t->storage(), 0});
  }
  p.numbers = numbers;
  for (int& r : step.from) r = r < -1 ? p.number(static_cast<std::size_t>(-2 - r)) : r;
  step.to = static_cast<int>(p.in.size() + p.numbers.size());
  for (const TensorImpl* t : out.all()) {
    p.out.push_back(TensorRef::share(const_cast<TensorImpl*>(t)));
    p.stored.push_back(step.to + static_cast<int>(n->out.size()));
    n->out.push_back(p.out.back());
    results.push_back({t->storage(), 0});
    p.replaces.push_back(-1);
  }
  p.registers = step.to + static_cast<int>(p.out.size());
  p.kept.resize(static_cast<std::size_t>(p.registers));
  p.steps.push_back(std::move(step));
  fuse(d, p)->run(inputs, results, nullptr);
}

TensorRef make(ClDevice& d, Dtype dtype, Dims shape, Dims strides) {
  const std::int64_t n = checked_numel(shape, itemsize(dtype));
  return TensorImpl::make(dtype, {}, shape, strides, d.memory(static_cast<std::size_t>(n) * itemsize(dtype)));
}

void convert(ClDevice& d, const TensorImpl& from, TensorImpl& to) {
  if (to.numel() == 0) return;
  const lazy::NodeRef n = lazy::Node::make(NodeKind::copy);
  n->in.resize(1);
  run_node(d, n, {&from}, to.shape(), Outputs(TensorRef::share(&to)));
}

void fill(ClDevice& d, TensorImpl& to, const std::byte* value) {
  if (to.numel() == 0) return;
  const lazy::NodeRef n = lazy::Node::make(NodeKind::fill);
  n->in.resize(1);
  n->in[0].is_number = true;
  n->in[0].number.dtype = to.dtype();
  std::memcpy(n->in[0].number.bytes.data(), value, itemsize(to.dtype()));
  run_node(d, n, {}, to.shape(), Outputs(TensorRef::share(&to)));
}

}  // namespace hyalite::opencl
