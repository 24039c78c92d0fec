/// What the CPU has counted, as facts for the recorder.
#include "compute/cpu/describe.h"

#include "compute/cpu/kernels.h"
#include "compute/cpu/operands.h"
#include "compute/lazy/kernel.h"

namespace hyalite::cpu {

void describe_output(Span& span, const TensorImpl& out, bool in_place) {
  const Storage& s = *out.storage();
  span.end(Event::output_made, {{Fact::bytes, out.nbytes()},
                                {Fact::in_place, in_place},
                                {Fact::pool_hit, s.hit()},
                                {Fact::huge_pages, s.huge()}});
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
    if (!again) sum += lazy::bytes_in_memory(*t);
  }
  return sum;
}

}  // namespace

namespace {

void say_loop(Sayings& said, const LoopReport& r) {
  if (r.shape != nullptr) said.emplace_back(Fact::loop, r.shape);
  if (r.blocks) said.emplace_back(Fact::blocks, *r.blocks);
  if (r.streaming) said.emplace_back(Fact::streaming, *r.streaming);
  if (r.threads) said.emplace_back(Fact::threads, *r.threads);
  if (r.rows) said.emplace_back(Fact::rows, *r.rows);
}

}  // namespace

void describe_fused(Recorder& rec, const std::string& ops, int generated, const LoopReport& r,
                    const GemmReport* product) {
  const std::string isa = instruction_set().name;
  Sayings said{{Fact::op, ops}, {Fact::isa, isa}, {Fact::generated, std::int64_t{generated}}};
  if (product != nullptr) {
    said.emplace_back(Fact::routine, product->routine);
    said.emplace_back(Fact::library, product->library);
    said.emplace_back(Fact::tiles, product->tiles);
  }
  say_loop(said, r);
  rec.end(Event::fused_ran, said);
  if (product != nullptr) rec.last().operations = product->operations;
  rec.last().bytes_moved = r.bytes;
  rec.current_op().isa = isa;
  rec.current_op().threads = r.threads.value_or(0);
}

void describe_kernel(Recorder& rec, const Validated& v, const LoopReport& r, const Outputs& o) {
  const Call& c = v.call();
  const std::string isa = instruction_set().name;
  Sayings said{
      {Fact::op, c.op.name()}, {Fact::dtype, v.dtype()}, {Fact::computed, computed(v.dtype())}, {Fact::isa, isa}};
  say_loop(said, r);
  rec.end(Event::kernel_ran, said);
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
  rec.end(Event::library_ran, {{Fact::op, v.call().op.name()},
                               {Fact::dtype, v.dtype()},
                               {Fact::routine, r.routine},
                               {Fact::library, r.library},
                               {Fact::tiles, r.tiles},
                               {Fact::threads, r.threads}});
  Step& step = rec.last();
  if (!r.routine.empty()) step.operations = r.operations;
  step.source_op = std::string(v.call().op.name());
  rec.current_op().library = r.library.substr(0, r.library.find(' '));
  rec.current_op().threads = r.threads;
}

}  // namespace hyalite::cpu
