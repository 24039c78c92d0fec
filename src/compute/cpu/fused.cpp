/// From a program to calls of kernels: registers get places in memory, dtypes meet by casts.
#include "compute/cpu/fused.h"

#include <algorithm>
#include <cstring>

#include "compute/cpu/code.h"
#include "compute/cpu/describe.h"
#include "compute/cpu/generated.h"
#include "compute/cpu/loops.h"
#include "compute/cpu/operands.h"

namespace hyalite::cpu {
namespace {

using lazy::Memory;
using lazy::Program;

constexpr std::size_t first_cache = 24 << 10;  // of a first-level data cache, for the blocks between steps
constexpr std::size_t least_block = 128, largest_block = 1024;

static_assert(lazy::most_operands_of_group <= max_operands);

class Kernels final : public FlatKernel {
 public:
  Kernels(const Program& p, Generator* generator) : code_(p) { build(p, generator); }

  void run(std::span<const Memory> in, std::span<const Memory> out, Recorder* rec) const override {
    Span span(rec, Phase::compute, Who::backend, Who::kernel, StepKind::request);
    const void* from[max_operands];
    void* to[max_operands];
    const auto address = [&](const Memory& m, std::size_t i) { return m.storage->address() + m.shift + offset_[i]; };
    for (std::size_t i = 0; i < in.size(); ++i) from[i] = address(in[i], i);
    for (std::size_t k = 0; k < out.size(); ++k) to[k] = address(out[k], in.size() + k);
    const auto* self = reinterpret_cast<const double*>(this);
    LoopReport report;
    if (flat_ && bytes_ <= small_bytes) {
      if (numel_ != 0) blocks(from, to, static_cast<std::size_t>(numel_), self, false);
      report = {one_call, 1, false, false, 1, bytes_};
    } else {
      std::array<LoopOperand, max_operands> operands;
      std::copy(operands_.begin(), operands_.end(), operands.begin());
      for (std::size_t i = 0; i < in.size(); ++i)
        operands[i].data = const_cast<std::byte*>(static_cast<const std::byte*>(from[i]));
      for (std::size_t k = 0; k < out.size(); ++k) operands[in.size() + k].data = static_cast<std::byte*>(to[k]);
      const std::span<const LoopOperand> all(operands.data(), in.size() + out.size());
      if (!run_over(shape_, all.first(in.size()), all.last(out.size()), rec != nullptr ? &report : nullptr))
        throw Interrupted("interrupted; the unfinished result is dropped");
    }
    if (span.over()) describe_fused(*rec, code_.ops, code_.generated, report);
  }

  bool run_over(Dims shape, std::span<const LoopOperand> in, std::span<const LoopOperand> out,
                LoopReport* report) const override {
    return cpu::run({.kernel = blocks,
                     .attr = reinterpret_cast<const double*>(this),
                     .shape = shape,
                     .in = in,
                     .out = out,
                     .heavy = code_.heavy,
                     .interruptible = interruptible_},
                    report);
  }
  const Code& code() const override { return code_; }

 private:
  // ---- running ----

  /// An ElementwiseFn whose attributes are the object itself.
  static void blocks(const void* const* in, void* const* out, std::size_t n, const double* self, bool stream) {
    reinterpret_cast<const Kernels*>(self)->run_blocks(in, out, n, stream);
  }

  void run_blocks(const void* const* in, void* const* out, std::size_t n, bool stream) const {
    std::byte* const memory = blocks_ != 0 ? scratch(blocks_ * block_bytes_) : nullptr;
    const void* from[max_operands];
    void* to[max_operands];
    const std::size_t step = at_once_ ? n : block_;
    for (std::size_t at = 0; at < n; at += step) {
      const std::size_t count = std::min(step, n - at);
      const auto address = [&](int r) -> std::byte* {
        if (r < 0) return nullptr;
        const Place p = code_.place[static_cast<std::size_t>(r)];
        const auto k = static_cast<std::size_t>(p.index);
        switch (p.kind) {
          case Place::input:
            return const_cast<std::byte*>(static_cast<const std::byte*>(in[k])) +
                   at * code_.size[static_cast<std::size_t>(r)];
          case Place::output:
            return static_cast<std::byte*>(out[k]) + at * code_.size[static_cast<std::size_t>(r)];
          case Place::number:
            return numbers_.at(p.index);
          default:
            return memory + k * block_bytes_;
        }
      };
      for (const Instruction& i : list_) {
        for (std::size_t k = 0; k < i.in.size(); ++k) from[k] = address(i.in[k]);
        for (std::size_t k = 0; k < i.out.size(); ++k) to[k] = address(i.out[k]);
        i(from, to, count, stream);
      }
    }
  }

  // ---- building ----

  void build(const Program& p, Generator* generator) {
    shape_ = Shape64(p.pass.shape.begin(), p.pass.shape.end());
    numel_ = checked_numel(p.pass.shape, 1);
    interruptible_ = p.interruptible;
    for (const Program::Step& s : p.steps) code_.add(s, list_);
    outputs(p);
    if (generator != nullptr) generator->merge(list_, code_, [&](int r, int i) { return last_read(list_, r) > i; });
    blocks_in_use();
    numbers_.lay(p, block_);
    lay_operands(p);
  }

  /// Lets instructions write outputs where they are; what cannot be is moved there at the end.
  void outputs(const Program& p) {
    const auto replaced = [&](int input) { return std::ranges::find(p.replaces, input) != p.replaces.end(); };
    std::vector<Instruction> loads, moves;
    for (std::size_t k = 0; k < p.out.size(); ++k) {
      int r = code_.alias[static_cast<std::size_t>(p.stored[k])];
      const int writer = written_by(list_, r), over = p.replaces[k];
      Place& place = code_.place[static_cast<std::size_t>(r)];
      const bool read_later = over >= 0 && last_read(list_, over) > writer;
      if (writer >= 0 && place.kind == Place::nowhere && !read_later) {
        place = {Place::output, static_cast<int>(k)};
        continue;
      }
      const Dtype dtype = code_.dtype[static_cast<std::size_t>(r)];
      if (place.kind == Place::input && replaced(r) && r != over) {
        // Another output overwrites it.
        const int kept = code_.add_register(dtype);
        loads.push_back({Instruction::move, nullptr, {}, dtype, dtype, {r}, {kept}});
        r = kept;
      }
      const int to = code_.add_register(dtype, {Place::output, static_cast<int>(k)});
      moves.push_back({Instruction::move, nullptr, {}, dtype, dtype, {r}, {to}});
    }
    list_.insert(list_.begin(), loads.begin(), loads.end());
    std::ranges::move(moves, std::back_inserter(list_));
    for (Instruction& i : list_) {
      i.streams = std::ranges::all_of(i.out, [&](int r) {
        return code_.place[static_cast<std::size_t>(r)].kind == Place::output && last_read(list_, r) < 0;
      });
    }
  }

  /// Blocks for what is neither read from nor written to memory, each as long as it is needed.
  void blocks_in_use() {
    blocks_ =
        static_cast<std::size_t>(give_blocks(list_, code_, [&](int r, int i) { return last_read(list_, r) > i; }));
    std::size_t widest = 1;
    for (std::size_t r = 0; r < code_.place.size(); ++r) {
      if (code_.place[r].kind == Place::block) widest = std::max(widest, code_.size[r]);
    }
    const std::size_t live = std::max<std::size_t>(blocks_, 1) * widest;
    block_ = std::clamp(first_cache / live / 64 * 64, least_block, largest_block);
    block_bytes_ = block_ * widest;
    at_once_ = list_.size() == 1 && list_[0].kind == Instruction::generated;
  }

  void lay_operands(const Program& p) {
    const std::size_t n = p.in.size() + p.out.size();
    strides_.resize(n);
    operands_.resize(n);
    const TensorImpl* first = p.out.empty() ? nullptr : p.out[0].get();
    flat_ = true;
    for (std::size_t i = 0; i < n; ++i) {
      const TensorImpl& t = i < p.in.size() ? *p.in[i] : *p.out[i - p.in.size()];
      byte_strides(t, p.pass.shape, strides_[i]);
      operands_[i] = {nullptr, strides_[i].data(), t.dtype(), t.dtype()};
      offset_.push_back(t.offset() * static_cast<std::int64_t>(itemsize(t.dtype())));
      flat_ = flat_ && same_dims(t.shape(), first->shape()) && same_dims(t.strides(), first->strides());
      bytes_ += t.nbytes();
    }
    // Of one dense layout: as many elements as from the first to the last.
    std::int64_t reach = 1;
    for (int i = 0; flat_ && first != nullptr && i < first->ndim(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      flat_ = first->strides()[at] >= 0 && first->numel() != 0;
      reach += (first->shape()[at] - 1) * first->strides()[at];
    }
    flat_ = flat_ && first != nullptr && reach == first->numel();
  }

  Code code_;
  std::vector<Instruction> list_;
  Shape64 shape_;
  std::int64_t numel_ = 0, bytes_ = 0;
  bool interruptible_ = true, flat_ = false;
  bool at_once_ = false;  // one kernel does it all: no blocks
  std::size_t block_ = largest_block, blocks_ = 0, block_bytes_ = 0;
  Numbers numbers_;
  std::vector<ByteStrides> strides_;
  std::vector<LoopOperand> operands_;
  std::vector<std::int64_t> offset_;
};

}  // namespace

std::unique_ptr<FlatKernel> fuse_flat(const Program& program, Generator* generator) {
  return std::make_unique<Kernels>(program, generator);
}

}  // namespace hyalite::cpu
