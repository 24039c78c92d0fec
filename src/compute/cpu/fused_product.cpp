/// A tile of a product, then all that is computed of it while it is in the cache, then the next tile.
#include "compute/cpu/fused_product.h"

#include <algorithm>
#include <optional>

#include "compute/blocking.h"
#include "compute/cpu/describe.h"
#include "compute/cpu/fused.h"
#include "compute/cpu/gemm.h"
#include "compute/cpu/operands.h"
#include "compute/cpu/reduce_walk.h"
#include "compute/cpu/threads.h"

namespace hyalite::cpu {
namespace {

using lazy::Memory;
using lazy::Program;

constexpr std::int64_t parallel_bytes = 512 << 10;  // as the loops of elementwise ops

class Products final : public lazy::FusedKernel {
 public:
  Products(const Program& p, Generator* generator) : shape_(p.pass.shape), interruptible_(p.interruptible) {
    build(p, generator);
  }

  void run(std::span<const Memory> in, std::span<const Memory> out, Recorder* rec) const override {
    Span span(rec, Phase::compute, Who::backend, Who::kernel, StepKind::request);
    std::vector<Product> products;
    products.reserve(factors_.size());
    bool parallel = bytes_ > parallel_bytes;
    for (const Factor& f : factors_) {
      const auto operand = [&](int i) {
        return lazy::tensor_over(*forms_[static_cast<std::size_t>(i)], in[static_cast<std::size_t>(i)]);
      };
      products.emplace_back(*operand(f.a), *operand(f.b), shape_);
      parallel |= products.back().is_large();
    }
    const std::int64_t tiles = products[0].tiles();
    const auto some = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) run_tile(products, i, in, out);
    };
    bool finished = true;
    {
      std::optional<Blocking> released;
      if (parallel) released.emplace();
      if (tiles == 1) {
        finished = run_tile(products, 0, in, out);
      } else if (!parallel) {
        some(0, tiles);
      } else if (interruptible_) {
        finished = parallel_for_interruptible(tiles, some);
      } else {
        parallel_for(tiles, some);
      }
    }
    if (!finished) throw Interrupted("interrupted; the unfinished result is dropped");
    if (!span.over()) return;
    GemmReport report;
    for (const Product& p : products) p.describe(report, parallel ? num_threads() : 1);
    LoopReport loop;
    loop.shape = "a tile of the product after the other";
    loop.threads = report.threads;
    describe_fused(*rec, ops_, elements_->code().generated, loop, &report);
  }

 private:
  /// A product: which inputs it multiplies, and where its tiles lie when the other steps read them.
  struct Factor {
    int a, b;
    int output = -1;  ///< in the memory of this one; -1: in memory of a thread
    Dtype dtype;
    ByteStrides strides;
  };
  /// An operand of the elementwise steps.
  struct Operand {
    int index;  ///< of an input or an output
    Dtype dtype;
    std::int64_t offset = 0;
    ByteStrides strides;
  };

  std::int64_t rows() const { return shape_[shape_.size() - 2]; }
  std::int64_t cols() const { return shape_[shape_.size() - 1]; }

  /// Of a tile's first element, in bytes.
  std::int64_t offset(const ByteStrides& strides, const Product::Tile& t) const {
    const int n = shape_.size();
    const auto at = [&](int d) { return strides[static_cast<std::size_t>(d)]; };
    std::int64_t offset = t.row * at(n - 2) + t.col * at(n - 1), batch = t.batch;
    for (int d = n - 3; d >= 0; --d) {
      offset += batch % shape_[d] * at(d);
      batch /= shape_[d];
    }
    return offset;
  }

  /// False when it was interrupted, which can be where it is all there is.
  bool run_tile(const std::vector<Product>& products, std::int64_t i, std::span<const Memory> in,
                std::span<const Memory> out) const {
    const Product::Tile t = products[0].tile(i);
    const int n = shape_.size();
    std::array<LoopOperand, max_operands> operands;
    std::array<std::array<std::int64_t, 2>, max_operands> steps;
    std::size_t count = 0;
    const auto add = [&](std::byte* data, Dtype dtype, std::int64_t row, std::int64_t col) {
      steps[count] = {row, col};
      operands[count] = {data, steps[count].data(), dtype, dtype};
      ++count;
    };
    const auto add_operand = [&](const Operand& o, const Memory& m) {
      add(m.storage->address() + m.shift + o.offset + offset(o.strides, t), o.dtype,
          o.strides[static_cast<std::size_t>(n - 2)], o.strides[static_cast<std::size_t>(n - 1)]);
    };
    for (const Operand& o : in_) add_operand(o, in[static_cast<std::size_t>(o.index)]);
    thread_local reduce_walk::Buffer scratch;
    std::byte* free = reinterpret_cast<std::byte*>(scratch.get(t.rows * t.cols * scratch_bytes_));
    for (std::size_t k = 0; k < factors_.size(); ++k) {
      const Factor& f = factors_[k];
      const auto size = static_cast<std::int64_t>(itemsize(f.dtype));
      std::byte* to = free;
      std::int64_t stride = t.cols;
      if (f.output >= 0) {
        const Memory& m = out[static_cast<std::size_t>(f.output)];
        to = m.storage->address() + m.shift + offsets_[static_cast<std::size_t>(f.output)] + offset(f.strides, t);
        stride = cols();
      } else {
        free += t.rows * t.cols * size;
      }
      if (products[k].tiles() == 1) {
        if (!products[k].compute_all(to, interruptible_)) return false;  // sums in parts are shared out
      } else {
        products[k].compute(t, to, stride);
      }
      add(to, f.dtype, stride * size, size);
    }
    const std::size_t inputs = count;
    for (const Operand& o : out_) add_operand(o, out[static_cast<std::size_t>(o.index)]);
    const DimList shape{t.rows, t.cols};
    const std::span<const LoopOperand> all(operands.data(), count);
    return elements_->run_over(shape, all.first(inputs), all.subspan(inputs), nullptr);
  }

  // ---- building ----

  /// The steps that are no products, as a program of their own that reads the products' results.
  void build(const Program& p, Generator* generator) {
    Program e;
    e.pass.shape = p.pass.shape;
    e.interruptible = p.interruptible;
    std::vector<int> to(static_cast<std::size_t>(p.registers), -1);
    const auto renamed = [&](int r) { return r < 0 ? r : to[static_cast<std::size_t>(r)]; };
    const auto add_input = [&](const TensorRef& form, int r) {
      to[static_cast<std::size_t>(r)] = static_cast<int>(e.in.size());
      e.in.push_back(form);
      e.whole.push_back(false);
    };
    for (std::size_t i = 0; i < p.in.size(); ++i) {
      forms_.push_back(p.in[i]);
      bytes_ += lazy::bytes_in_memory(*p.in[i]);
      if (p.whole[i]) continue;
      add_input(p.in[i], static_cast<int>(i));
      in_.push_back(operand(*p.in[i], static_cast<int>(i)));
    }
    std::vector<int> results;  // of the products: registers
    for (const Program::Step& s : p.steps) {
      if (s.node->is_elementwise()) continue;
      Factor f{.a = s.from[0], .b = s.from[1], .dtype = s.node->out[0]->dtype(), .strides = {}};
      byte_strides(*s.node->out[0], p.pass.shape, f.strides);
      factors_.push_back(f);
      results.push_back(s.to);
      add_input(s.node->out[0], s.to);
    }
    e.numbers = p.numbers;
    e.registers = static_cast<int>(e.in.size() + e.numbers.size());
    for (std::size_t k = 0; k < p.numbers.size(); ++k) to[static_cast<std::size_t>(p.number(k))] = e.number(k);
    for (const Program::Step& s : p.steps) {
      ops_ += (ops_.empty() ? "" : ", ") + s.node->name();
      if (!s.node->is_elementwise()) continue;
      Program::Step step{s.node, {}, e.registers};
      for (const int r : s.from) step.from.push_back(renamed(r));
      for (std::size_t k = 0; k < s.node->out.size(); ++k) to[static_cast<std::size_t>(s.to) + k] = e.registers++;
      e.steps.push_back(std::move(step));
    }
    e.kept.resize(static_cast<std::size_t>(e.registers));
    for (std::size_t k = 0; k < p.out.size(); ++k) {
      const int output = static_cast<int>(k);
      offsets_.push_back(p.out[k]->offset() * static_cast<std::int64_t>(itemsize(p.out[k]->dtype())));
      bytes_ += p.out[k]->nbytes();
      const auto product = std::ranges::find(results, p.stored[k]);
      if (product != results.end()) {
        factors_[static_cast<std::size_t>(product - results.begin())].output = output;
        continue;
      }
      e.out.push_back(p.out[k]);
      e.stored.push_back(renamed(p.stored[k]));
      e.replaces.push_back(p.replaces[k] < 0 ? -1 : renamed(p.replaces[k]));
      out_.push_back(operand(*p.out[k], output));
    }
    place_results(e, results, to);
    for (const Factor& f : factors_) scratch_bytes_ += f.output < 0 ? static_cast<std::int64_t>(itemsize(f.dtype)) : 0;
    elements_ = fuse_flat(e, generator);
  }

  /// A product that nobody else needs is computed where one of the results will stand, if it fits there.
  void place_results(Program& e, const std::vector<int>& results, const std::vector<int>& to) {
    for (std::size_t f = 0; f < factors_.size(); ++f) {
      const int input = to[static_cast<std::size_t>(results[f])];
      for (std::size_t k = 0; k < e.out.size() && factors_[f].output < 0; ++k) {
        const bool fits = e.replaces[k] < 0 && e.out[k]->dtype() == factors_[f].dtype && e.out[k]->contiguous();
        if (!fits) continue;
        e.replaces[k] = input;
        factors_[f].output = out_[k].index;
      }
    }
  }

  Operand operand(const TensorImpl& form, int index) const {
    Operand o{.index = index, .dtype = form.dtype(), .strides = {}};
    o.offset = form.offset() * static_cast<std::int64_t>(itemsize(form.dtype()));
    byte_strides(form, shape_, o.strides);
    return o;
  }

  DimList shape_;
  bool interruptible_;
  std::string ops_;
  std::vector<TensorRef> forms_;  // of all inputs
  std::vector<Factor> factors_;
  std::vector<Operand> in_, out_;               // of the elementwise steps; between them stand the products
  std::vector<std::int64_t> offsets_;           // of all outputs, in bytes
  std::int64_t bytes_ = 0, scratch_bytes_ = 0;  // scratch: for each element of a tile
  std::unique_ptr<FlatKernel> elements_;
};

}  // namespace

std::unique_ptr<lazy::FusedKernel> fuse_product(const Program& program, Generator* generator) {
  return std::make_unique<Products>(program, generator);
}

}  // namespace hyalite::cpu
