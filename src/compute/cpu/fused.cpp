/// From a program to calls of kernels: registers get places in memory, dtypes meet by casts.
#include "compute/cpu/fused.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "compute/cpu/describe.h"
#include "compute/cpu/elementwise.h"
#include "compute/cpu/loops.h"
#include "compute/cpu/operands.h"

namespace hyalite::cpu {
namespace {

using lazy::Memory;
using lazy::NodeKind;
using lazy::Program;

constexpr std::size_t first_cache = 24 << 10;  // of a first-level data cache, for the blocks between steps
constexpr std::size_t least_block = 128, largest_block = 1024;

static_assert(lazy::most_operands_of_group <= max_operands);

/// Where the elements of a register are while a block is computed.
struct Place {
  enum Kind : std::uint8_t { nowhere, input, number, block, output } kind = nowhere;
  int index = 0;
};

/// One call for each block.
struct Instruction {
  enum Kind : std::uint8_t { kernel, cast, move } kind = kernel;
  ElementwiseFn run = nullptr;
  std::array<double, 4> attr{};
  Dtype from = Dtype::float32, to = Dtype::float32;  // of a cast or a move
  std::vector<int> in, out;                          // registers; -1: not read
  bool streams = false;                              // all it writes are outputs that nobody reads again
};

/// A thread's blocks.
std::byte* scratch(std::size_t bytes) {
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<std::byte, Free> memory;
  thread_local std::size_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
    if (!memory) throw OutOfMemory("a fused kernel needs " + std::to_string(bytes) + " bytes for its blocks");
    size = bytes;
  }
  return memory.get();
}

class Kernels final : public lazy::FusedKernel {
 public:
  explicit Kernels(const Program& p) { build(p); }

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
      const bool finished = cpu::run({.kernel = blocks,
                                      .attr = self,
                                      .shape = shape_,
                                      .in = {operands.data(), in.size()},
                                      .out = {operands.data() + in.size(), out.size()},
                                      .heavy = heavy_,
                                      .interruptible = interruptible_},
                                     rec != nullptr ? &report : nullptr);
      if (!finished) throw Interrupted("interrupted; the unfinished result is dropped");
    }
    if (span.over()) describe_fused(*rec, ops_, report);
  }

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
    for (std::size_t at = 0; at < n; at += block_) {
      const std::size_t count = std::min(block_, n - at);
      const auto address = [&](int r) -> std::byte* {
        if (r < 0) return nullptr;
        const Place p = place_[static_cast<std::size_t>(r)];
        const auto k = static_cast<std::size_t>(p.index);
        switch (p.kind) {
          case Place::input:
            return const_cast<std::byte*>(static_cast<const std::byte*>(in[k])) +
                   at * size_[static_cast<std::size_t>(r)];
          case Place::output:
            return static_cast<std::byte*>(out[k]) + at * size_[static_cast<std::size_t>(r)];
          case Place::number:
            return const_cast<std::byte*>(numbers_.get() + k * number_bytes_);
          default:
            return memory + k * block_bytes_;
        }
      };
      for (const Instruction& i : code_) {
        for (std::size_t k = 0; k < i.in.size(); ++k) from[k] = address(i.in[k]);
        for (std::size_t k = 0; k < i.out.size(); ++k) to[k] = address(i.out[k]);
        switch (i.kind) {
          case Instruction::kernel:
            i.run(from, to, count, i.attr.data(), stream && i.streams);
            break;
          case Instruction::cast:
            hyalite::cast(kernels().cast, i.from, from[0], i.to, to[0], count);
            break;
          case Instruction::move:
            if (to[0] != from[0]) std::memcpy(to[0], from[0], count * itemsize(i.from));
            break;
        }
      }
    }
  }

  // ---- building ----

  void build(const Program& p) {
    shape_ = Shape64(p.shape.begin(), p.shape.end());
    numel_ = checked_numel(p.shape, 1);
    interruptible_ = p.interruptible;
    registers(p);
    for (const Program::Step& s : p.steps) {
      ops_ += (ops_.empty() ? "" : ", ") + s.node->name();
      add(s);
    }
    outputs(p);
    blocks_in_use();
    lay_numbers(p);
    lay_operands(p);
  }

  int new_register(Dtype dtype, Place place = {}) {
    dtype_.push_back(dtype);
    size_.push_back(itemsize(dtype));
    place_.push_back(place);
    alias_.push_back(static_cast<int>(dtype_.size()) - 1);
    return static_cast<int>(dtype_.size()) - 1;
  }

  void registers(const Program& p) {
    int k = 0;
    for (const TensorRef& t : p.in) new_register(t->dtype(), {Place::input, k++});
    k = 0;
    for (const Operand& o : p.numbers) new_register(o.dtype, {Place::number, k++});
    for (const Program::Step& s : p.steps) {
      for (const TensorRef& t : s.node->out) new_register(t->dtype());
    }
  }

  /// The register with the elements in another dtype.
  int converted(int r, Dtype to) {
    const Dtype from = dtype_[static_cast<std::size_t>(r)];
    if (from == to) return r;
    const auto [at, fresh] = converted_.try_emplace({r, to}, 0);
    if (fresh) {
      at->second = new_register(to);
      code_.push_back({Instruction::cast, nullptr, {}, from, to, {r}, {at->second}});
    }
    return at->second;
  }

  void add(const Program::Step& s) {
    const lazy::Node& n = *s.node;
    std::vector<int> from = s.from;
    for (int& r : from) r = r < 0 ? r : alias_[static_cast<std::size_t>(r)];
    if (n.kind == NodeKind::copy || n.kind == NodeKind::fill || n.converts) {
      alias_[static_cast<std::size_t>(s.to)] = converted(from[0], n.out[0]->dtype());
      return;
    }
    heavy_ |= n.kind == NodeKind::gradient || n.op->schema.ulp > 0;
    Instruction i;
    Dtype makes;
    if (n.kind == NodeKind::gradient) {
      const Kernel k =
          gradient_kernel(*n.op, n.operand, n.computed, n.attrs.get(), n.from_nothings, n.numbers_and_nothings);
      i.run = k.run;
      i.attr = k.attr;
      for (int& r : from) {
        if (r >= 0) r = converted(r, computed(dtype_[static_cast<std::size_t>(r)]));
      }
      makes = computed(n.computed);
    } else {
      std::array<Dtype, max_arity> dtypes{};
      for (std::size_t k = 0; k < from.size(); ++k) dtypes[k] = dtype_[static_cast<std::size_t>(from[k])];
      const Kernel k =
          forward_kernel(*n.op, {dtypes.data(), from.size()}, n.computed, n.mixed, n.real_operand, n.attrs.get());
      i.run = k.run;
      i.attr = k.attr;
      for (std::size_t j = 0; j < from.size(); ++j) from[j] = converted(from[j], k.in[j]);
      makes = computed(n.computed);
    }
    i.in = std::move(from);
    std::vector<std::pair<int, int>> narrowed;
    for (std::size_t k = 0; k < n.out.size(); ++k) {
      const int r = s.to + static_cast<int>(k);
      const Dtype wanted = n.out[k]->dtype();
      const Dtype made = n.kind == NodeKind::gradient ? makes : n.op->schema.result_dtype(makes, static_cast<int>(k));
      if (made == wanted) {
        i.out.push_back(r);
      } else {
        i.out.push_back(new_register(made));
        narrowed.emplace_back(i.out.back(), r);
      }
    }
    code_.push_back(std::move(i));
    for (const auto& [wide, narrow] : narrowed) {
      code_.push_back({Instruction::cast,
                       nullptr,
                       {},
                       dtype_[static_cast<std::size_t>(wide)],
                       dtype_[static_cast<std::size_t>(narrow)],
                       {wide},
                       {narrow}});
    }
  }

  /// The last instruction that reads the register, -1 where there is none.
  int last_read(int r) const {
    for (int i = static_cast<int>(code_.size()) - 1; i >= 0; --i) {
      if (std::ranges::find(code_[static_cast<std::size_t>(i)].in, r) != code_[static_cast<std::size_t>(i)].in.end())
        return i;
    }
    return -1;
  }
  int written_by(int r) const {
    for (std::size_t i = 0; i < code_.size(); ++i) {
      if (std::ranges::find(code_[i].out, r) != code_[i].out.end()) return static_cast<int>(i);
    }
    return -1;
  }

  /// Lets instructions write outputs where they are; what cannot be is moved there at the end.
  void outputs(const Program& p) {
    const auto replaced = [&](int input) { return std::ranges::find(p.replaces, input) != p.replaces.end(); };
    std::vector<Instruction> loads, moves;
    for (std::size_t k = 0; k < p.out.size(); ++k) {
      int r = alias_[static_cast<std::size_t>(p.stored[k])];
      const int writer = written_by(r), over = p.replaces[k];
      Place& place = place_[static_cast<std::size_t>(r)];
      const bool read_later = over >= 0 && last_read(over) > writer;
      if (writer >= 0 && place.kind == Place::nowhere && !read_later) {
        place = {Place::output, static_cast<int>(k)};
        continue;
      }
      const Dtype dtype = dtype_[static_cast<std::size_t>(r)];
      if (place.kind == Place::input && replaced(r) && r != over) {
        // Another output overwrites it.
        const int kept = new_register(dtype);
        loads.push_back({Instruction::move, nullptr, {}, dtype, dtype, {r}, {kept}});
        r = kept;
      }
      const int to = new_register(dtype, {Place::output, static_cast<int>(k)});
      moves.push_back({Instruction::move, nullptr, {}, dtype, dtype, {r}, {to}});
    }
    code_.insert(code_.begin(), loads.begin(), loads.end());
    std::ranges::move(moves, std::back_inserter(code_));
    for (Instruction& i : code_) {
      i.streams = std::ranges::all_of(
          i.out, [&](int r) { return place_[static_cast<std::size_t>(r)].kind == Place::output && last_read(r) < 0; });
    }
  }

  /// Blocks for what is neither read from nor written to memory, each as long as it is needed.
  void blocks_in_use() {
    std::vector<int> free;
    std::size_t widest = 1;
    for (int i = 0; i < static_cast<int>(code_.size()); ++i) {
      for (const int r : code_[static_cast<std::size_t>(i)].out) {
        Place& place = place_[static_cast<std::size_t>(r)];
        if (place.kind != Place::nowhere) continue;
        if (free.empty()) free.push_back(static_cast<int>(blocks_++));
        place = {Place::block, free.back()};
        free.pop_back();
        widest = std::max(widest, size_[static_cast<std::size_t>(r)]);
      }
      // After the results have theirs: an instruction does not write what it reads.
      std::vector<int> ended = code_[static_cast<std::size_t>(i)].in;
      ended.insert(ended.end(), code_[static_cast<std::size_t>(i)].out.begin(),
                   code_[static_cast<std::size_t>(i)].out.end());
      std::ranges::sort(ended);
      ended.erase(std::ranges::unique(ended).begin(), ended.end());
      for (const int r : ended) {
        if (r < 0 || place_[static_cast<std::size_t>(r)].kind != Place::block || last_read(r) > i) continue;
        free.push_back(place_[static_cast<std::size_t>(r)].index);
      }
    }
    const std::size_t live = std::max<std::size_t>(blocks_, 1) * widest;
    block_ = std::clamp(first_cache / live / 64 * 64, least_block, largest_block);
    block_bytes_ = block_ * widest;
  }

  void lay_numbers(const Program& p) {
    if (p.numbers.empty()) return;
    number_bytes_ = block_ * 16;
    numbers_.reset(static_cast<std::byte*>(std::aligned_alloc(64, number_bytes_ * p.numbers.size())));
    if (!numbers_) throw OutOfMemory("no memory for the numbers of a fused kernel");
    for (std::size_t k = 0; k < p.numbers.size(); ++k) {
      const std::size_t size = itemsize(p.numbers[k].dtype);
      std::byte* const to = numbers_.get() + k * number_bytes_;
      std::memcpy(to, p.numbers[k].bytes.data(), size);
      repeat(to, size, block_ * size);
    }
  }

  void lay_operands(const Program& p) {
    const std::size_t n = p.in.size() + p.out.size();
    strides_.resize(n);
    operands_.resize(n);
    const TensorImpl* first = p.out.empty() ? nullptr : p.out[0].get();
    flat_ = true;
    for (std::size_t i = 0; i < n; ++i) {
      const TensorImpl& t = i < p.in.size() ? *p.in[i] : *p.out[i - p.in.size()];
      byte_strides(t, p.shape, strides_[i]);
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

  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::string ops_;
  Shape64 shape_;
  std::int64_t numel_ = 0, bytes_ = 0;
  bool heavy_ = false, interruptible_ = true, flat_ = false;
  std::vector<Dtype> dtype_;
  std::vector<std::size_t> size_;
  std::vector<Place> place_;
  std::vector<int> alias_;  // the register that has the same elements
  std::map<std::pair<int, Dtype>, int> converted_;
  std::vector<Instruction> code_;
  std::size_t block_ = largest_block, blocks_ = 0, block_bytes_ = 0;
  std::unique_ptr<std::byte, Free> numbers_;
  std::size_t number_bytes_ = 0;
  std::vector<ByteStrides> strides_;
  std::vector<LoopOperand> operands_;
  std::vector<std::int64_t> offset_;
};

}  // namespace

std::unique_ptr<lazy::FusedKernel> fuse(const lazy::Program& program) { return std::make_unique<Kernels>(program); }

}  // namespace hyalite::cpu
