/// Outputs and kernels of the CPU in the words of the trace.
#include "compute/cpu/describe.h"

#include "compute/cpu/kernels.h"
#include "compute/cpu/operands.h"

namespace hyalite::cpu {

void describe_output(Recorder& rec, const TensorImpl& out, bool in_place) {
  rec.stop();
  const Storage& s = *out.storage();
  const std::string bytes = std::to_string(out.nbytes()) + " bytes";
  if (in_place) {
    rec.end("output in place", {{"pool", "not asked"}, {"bytes", bytes}}, "the op writes its left side");
    return;
  }
  rec.end("output from the pool: " + bytes,
          {{"pool", std::string(s.hit() ? "hit" : "miss") + (s.huge() ? ", huge-page arena" : "")}, {"bytes", bytes}},
          s.hit() ? "a block of that size was free" : "no block of that size was free: fresh memory");
}

namespace {

/// What any way of computing it must read and write, each byte once: empty where operands overlap.
std::optional<std::int64_t> least_bytes(const Call& c, const Outputs& o) {
  std::int64_t sum = 0;
  for (const TensorImpl* t : o.all()) sum += t->nbytes();
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    const TensorImpl* t = c.in[i].tensor;
    if (t == nullptr || t->numel() == 0) continue;
    bool again = false;
    for (std::size_t k = 0; k < i; ++k) {
      if (c.in[k].tensor == nullptr || !share_memory(*t, *c.in[k].tensor)) continue;
      if (!same_place(*t, *c.in[k].tensor)) return {};
      again = true;
    }
    std::int64_t elements = again ? 0 : 1;
    for (int d = 0; d < t->ndim(); ++d) {
      if (t->strides()[d] != 0 || t->shape()[d] == 0) elements *= t->shape()[d];
    }
    sum += elements * static_cast<std::int64_t>(itemsize(t->dtype()));
  }
  return sum;
}

std::string threads_text(int n) { return ", " + std::to_string(n) + (n == 1 ? " thread" : " threads"); }

}  // namespace

void describe_kernel(Recorder& rec, const Validated& v, const LoopReport& r, const Outputs& o) {
  rec.stop();
  const Call& c = v.call();
  const std::string isa = instruction_set().name;
  Facts facts{{"kernel", std::string(c.op.name()) + "<" + std::string(name(computed(v.dtype()))) + "> " + isa}};
  if (r.shape != nullptr) facts.emplace_back("loop", r.shape);
  if (r.blocks) facts.emplace_back("operands", *r.blocks ? "in blocks of 1024 elements in L1" : "read where they lie");
  if (r.streaming) {
    facts.emplace_back("stores", *r.streaming ? "streaming: the output passes 3/4 of the last-level cache" : "cached");
  }
  if (r.threads) facts.emplace_back("threads", std::to_string(*r.threads));
  if (r.rows) facts.emplace_back("rows", std::to_string(*r.rows));
  rec.end(std::string(c.op.name()) + "_" + std::string(name(v.dtype())) + (r.threads ? threads_text(*r.threads) : ""),
          std::move(facts),
          isa + " is the widest instruction set that this processor, this build and HYALITE_ISA allow");
  Step& step = rec.last();
  if (r.bytes) {
    step.bytes_moved = *r.bytes + 2 * step.copied_bytes;  // a copy reads what it writes
    step.bytes_least = least_bytes(c, o);
  }
  step.source_op = std::string(c.op.name());
  rec.current_op().isa = isa;
  rec.current_op().threads = r.threads.value_or(0);
}

void describe_product(Recorder& rec, const Validated& v, const GemmReport& r) {
  rec.stop();
  Facts facts{{"kernel", r.routine.empty() ? "none" : r.routine}};
  if (!r.library.empty()) facts.emplace_back("library", r.library);
  if (r.threads > 0) facts.emplace_back("threads", std::to_string(r.threads));
  rec.end(std::string(v.call().op.name()) + "_" + std::string(name(v.dtype())) +
              (r.threads > 0 ? threads_text(r.threads) : ""),
          std::move(facts),
          r.routine.empty()   ? "an axis is empty: nothing is multiplied"
          : r.library.empty() ? "integers wrap, which no BLAS does"
                              : "the library picks its own kernel");
  Step& step = rec.last();
  if (!r.routine.empty()) step.operations = r.operations;
  step.source_op = std::string(v.call().op.name());
  rec.current_op().library = r.library.substr(0, r.library.find(' '));
  rec.current_op().threads = r.threads;
}

}  // namespace hyalite::cpu
