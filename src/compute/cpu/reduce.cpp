/// The reduction driver: reads the layout, picks the loop that suits it, divides the work among threads and rounds
/// once.
#include "compute/cpu/reduce.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "compute/cpu/reduce_choice.h"
#include "compute/cpu/reduce_walk.h"
#include "compute/cpu/threads.h"

namespace hyalite {
namespace {

using std::int64_t;
using std::uint64_t;
using namespace reduce_walk;

constexpr int64_t B = reduce_block;
constexpr int64_t group_elements = 64 * B;     // least work of a chunk for a thread
constexpr int64_t panel_bytes = 256 * 1024;    // accumulators of a panel: a quarter of a level-2 cache
constexpr int64_t tile_elements = 128 * 1024;  // a gathered tile
constexpr int64_t largest_gather = 1024 * B;   // a transposed piece of a sequence
constexpr int64_t narrow = 64;                 // fewer outputs than this go to the dense loop
constexpr int64_t short_sequence = 16;         // sequences up to this put outputs in the lanes
constexpr int64_t search_block = 64;           // rows searched for argmax in a panel

int64_t blocks_of(int64_t n) { return (n + B - 1) / B; }

// ---- what to run ----------------------------------------------------------------------------------------------------

/// Everything the loops need: the kernel, what precedes and follows it, and the collapsed layout.
struct Plan : ReduceChoice {
  const char* in;
  char* out;
  std::vector<Dim> kept, reduced;  // collapsed; the last varies fastest
  int64_t n = 1, m = 1;            // elements of a sequence, outputs
  int64_t block = B;               // elements of a block; argmax may take fewer
};

/// Where the order is free the reduced axes are walked as they lie in memory.
void sort_by_memory(Plan& p) {
  for (Dim& d : p.reduced) {
    if (d.stride < 0) {
      p.in += d.stride * (d.size - 1);
      d.stride = -d.stride;
    }
  }
  if (is_idempotent(p.op)) std::erase_if(p.reduced, [](const Dim& d) { return d.stride == 0; });
  std::stable_sort(p.reduced.begin(), p.reduced.end(), [](const Dim& a, const Dim& b) { return a.stride > b.stride; });
  p.n = 1;
  for (const Dim& d : p.reduced) p.n *= d.size;
}

/// Whether one of the reduced, or of the kept, axes has size 0.
bool has_empty_axis(const ReduceArgs& a, bool reduced) {
  for (int i = 0; i < a.ndim; ++i) {
    if (a.shape[i] == 0 && ((a.axes_mask >> i & 1) != 0) == reduced) return true;
  }
  return false;
}

void begin_plan(Plan& p, const ReduceArgs& a) {
  p.in = static_cast<const char*>(a.in);
  p.out = static_cast<char*>(a.out);
  begin_choice(p, a.op, a.dtype, a.result);
}

Plan make_plan(const ReduceArgs& a, const ReduceKernels& k) {
  const bool nothing_reduced = has_empty_axis(a, true);
  Plan p{};
  begin_plan(p, a);
  for (int i = 0; i < a.ndim; ++i) {
    const bool reduced = (a.axes_mask >> i & 1) != 0;
    (reduced ? p.reduced : p.kept).push_back({a.shape[i], a.strides[i]});
    // Beside a size of 0 the others may be too large to multiply; the kept ones have none here.
    if (!reduced || !nothing_reduced) (reduced ? p.n : p.m) *= a.shape[i];
  }
  if (nothing_reduced) p.n = 0;
  // Sums of complex numbers are sums of their components: one more kept axis. `any` sees a number as two elements.
  const bool by_component = is_complex(a.dtype) && (a.op == ReduceOp::sum || a.op == ReduceOp::mean);
  const bool two_words = a.dtype == Dtype::complex128 && a.op == ReduceOp::any;
  if (by_component || two_words) {
    p.element /= 2;
    (by_component ? p.kept : p.reduced).push_back({2, p.element});
    (by_component ? p.m : p.n) *= 2;
    if (by_component) p.out_size /= 2;
  }
  int64_t out_stride = 1;
  for (auto d = p.kept.rbegin(); d != p.kept.rend(); ++d) {
    d->out = out_stride;
    out_stride *= d->size;
  }
  choose_kernel(p, a.dtype, a.result, k);
  const bool integer_fold = (a.op == ReduceOp::sum || a.op == ReduceOp::prod) && kind(a.dtype) <= Kind::integer;
  if (p.n > 0 && p.m > 0) {
    if (is_idempotent(a.op) || integer_fold) sort_by_memory(p);
    collapse(p.kept);
    collapse(p.reduced);
  }
  return p;
}

// ---- scratch --------------------------------------------------------------------------------------------------------

/// The left-balanced tree over the values of successive blocks, `width` outputs side by side; for argmax the best so
/// far.
class Tree {
 public:
  void start(const Plan& p, int64_t width) {
    plan_ = &p;
    width_ = width;
    slot_ = (width + reduce_padding) * p.kernel->acc_size;
    top_ = count_ = 0;
    memory_.get(slot_ * 48);  // levels of the tree: more than any address space needs
    if (p.arg) best_.resize(static_cast<std::size_t>(width));
  }
  char* next() { return memory_.get(0) + top_ * slot_; }
  /// Takes what was written to `next()` as the value of the next block; `index` holds its block numbers for argmax.
  void commit(const int64_t* index) {
    const ReduceKernel& k = *plan_->kernel;
    if (plan_->arg) {
      if (count_++ == 0) {
        std::copy(index, index + width_, best_.begin());
        top_ = 1;
      } else {
        k.select(memory_.get(0), best_.data(), next(), index, width_);
      }
      return;
    }
    ++top_;
    for (int64_t c = ++count_; c % 2 == 0; c /= 2) pop();
  }
  void commit(int64_t block) {
    if (plan_->arg) index_.assign(static_cast<std::size_t>(width_), block);
    commit(index_.data());
  }
  /// The joined values; nothing may be committed afterwards.
  char* value() {
    while (!plan_->arg && top_ > 1) pop();
    return memory_.get(0);
  }
  const int64_t* best_block() const { return best_.data(); }

 private:
  void pop() {
    --top_;
    plan_->kernel->join(memory_.get(0) + (top_ - 1) * slot_, memory_.get(0) + top_ * slot_, width_);
  }
  const Plan* plan_ = nullptr;
  Buffer memory_;
  std::vector<int64_t> best_, index_;
  int64_t width_ = 0, slot_ = 0, count_ = 0;
  int64_t top_ = 0;
};

struct Workspace {
  Buffer gathered, converted, scratch, values;
  std::vector<int64_t> offsets = std::vector<int64_t>(B), columns = std::vector<int64_t>(B);
  Tree tree;
};

const char* converted(const Plan& p, Workspace& w, const char* raw, int64_t count) {
  if (!p.convert) return raw;
  char* buffer = w.converted.get(count * p.kernel->in_size);
  p.convert(raw, count, buffer);
  return buffer;
}

// ---- sequences: one output at a time --------------------------------------------------------------------------------

/// Copies elements [first, first + count) of one sequence side by side. Where an outer axis has the smaller step, whole
/// rows of it are copied together, so that each cache line is read once.
void gather_sequence(const Plan& p, const char* base, int64_t first, int64_t count, char* out) {
  const int size = p.element, near = nearest(p.reduced);
  if (near < 0) {
    std::memcpy(out, base, static_cast<std::size_t>(size));
    return;
  }
  const Dim last = p.reduced.back(), outer = p.reduced[static_cast<std::size_t>(near)];
  const int64_t row = product(p.reduced, static_cast<std::size_t>(near) + 1);
  while (count > 0) {
    const int64_t position = first % row, rows = std::min(outer.size - first / row % outer.size, count / row);
    int64_t done;
    if (row > 1 && position == 0 && rows > 1) {
      const char* from = base + offset_of(p.reduced, first);
      const std::vector<Dim> inner(p.reduced.begin() + near + 1, p.reduced.end());
      for (int64_t j = 0; j < row; j += last.size) {
        transpose(size, from + offset_of(inner, j), outer.stride, rows, last.stride, last.size, out + j * size,
                  row * size);
      }
      done = rows * row;
    } else {
      const int64_t limit = row > 1 ? row - position : count;
      done = std::min({last.size - first % last.size, count, limit});
      copy_elements(size, base + offset_of(p.reduced, first), last.stride, done, out, size);
    }
    first += done;
    count -= done;
    out += done * size;
  }
}

/// True when a sequence lies in memory as one run that the kernel reads in place.
bool in_place(const Plan& p) {
  return !p.convert && (p.reduced.empty() || (p.reduced.size() == 1 && p.reduced[0].stride == p.element));
}
bool is_constant(const Plan& p) { return p.reduced.size() == 1 && p.reduced[0].stride == 0; }

/// The values of the blocks of [first, first + count), a whole number of blocks except at the end of the sequence.
void sequence_blocks(const Plan& p, Workspace& w, const char* base, int64_t first, int64_t count, char* values) {
  const ReduceKernel& k = *p.kernel;
  const char* data;
  int64_t step = B * k.in_size;
  if (in_place(p)) {
    data = base + first * p.element;
  } else {
    const int64_t distinct = is_constant(p) ? std::min(count, B) : count;
    char* raw = w.gathered.get(distinct * p.element);
    gather_sequence(p, base, first, distinct, raw);
    data = converted(p, w, raw, distinct);
    if (is_constant(p)) step = 0;
  }
  const int64_t whole = count / B, rest = count % B;
  if (whole > 0) k.contiguous(data, step, B, whole, values, p.bits);
  if (rest > 0) k.contiguous(data + whole * step, 0, rest, 1, values + whole * k.acc_size, p.bits);
}

/// Reduces [first, first + count) of one sequence into `w.tree`, started with width 1.
void sequence_part(const Plan& p, Workspace& w, const char* base, int64_t first, int64_t count, int64_t at_once) {
  const ReduceKernel& k = *p.kernel;
  for (int64_t done = 0; done < count; done += at_once) {
    const int64_t now = std::min(at_once, count - done), blocks = blocks_of(now);
    char* values = w.values.get((blocks + reduce_padding) * k.acc_size);
    sequence_blocks(p, w, base, first + done, now, values);
    if (p.arg) {
      for (int64_t b = 0; b < blocks; ++b) {
        std::memcpy(w.tree.next(), values + b * k.acc_size, static_cast<std::size_t>(k.acc_size));
        w.tree.commit((first + done) / B + b);
      }
    } else {
      k.tree(values, blocks);
      std::memcpy(w.tree.next(), values, static_cast<std::size_t>(k.acc_size));
      w.tree.commit(int64_t{0});
    }
  }
}

// ---- results --------------------------------------------------------------------------------------------------------

/// The index in its sequence of the best element, given its block.
int64_t locate_in_block(const Plan& p, Workspace& w, const char* base, int64_t block, const char* value) {
  const int64_t first = block * p.block, count = std::min(p.block, p.n - first);
  const char* data = base + first * p.element;
  if (!in_place(p)) {
    char* raw = w.gathered.get(count * p.element);
    gather_sequence(p, base, first, count, raw);
    data = raw;
  }
  const int64_t found = p.kernel->locate(data, count, value, p.bits);
  assert(found >= 0);
  return first + found;
}

/// Writes `width` outputs, `out_stride` elements apart; the sequences start `in_stride` bytes apart from `base`
/// (argmax).
void finish(const Plan& p, Workspace& w, const char* values, const int64_t* blocks, int64_t width, const char* base,
            int64_t in_stride, char* out, int64_t out_stride) {
  if (!p.arg) {
    p.finish(values, width, p.op == ReduceOp::mean ? static_cast<double>(p.n) : 1.0, p.bits, out,
             out_stride * p.out_size);
    return;
  }
  for (int64_t i = 0; i < width; ++i) {
    const int64_t index = locate_in_block(p, w, base + i * in_stride, blocks[i], values + i * p.kernel->acc_size);
    std::memcpy(out + i * out_stride * p.out_size, &index, sizeof index);
  }
}

/// Values of parts of sequences, computed by several threads, and how they join: part `s` of tile `t` is `width`
/// values.
struct Parts {
  Parts(const Plan& p, int64_t tiles, int64_t parts, int64_t width)
      : slot((width + reduce_padding) * p.kernel->acc_size), width(width), parts(parts) {
    values.get(tiles * parts * slot);
    if (p.arg) blocks.resize(static_cast<std::size_t>(tiles * parts * width));
  }
  void put(const Plan& p, int64_t tile, int64_t part, Tree& tree) {
    const int64_t i = tile * parts + part;
    std::memcpy(values.get(0) + i * slot, tree.value(), static_cast<std::size_t>(width * p.kernel->acc_size));
    if (p.arg) std::copy(tree.best_block(), tree.best_block() + width, blocks.begin() + i * width);
  }
  /// Joins the parts of one tile in `tree`.
  void join(const Plan& p, int64_t tile, Tree& tree) {
    tree.start(p, width);
    for (int64_t i = tile * parts; i < (tile + 1) * parts; ++i) {
      std::memcpy(tree.next(), values.get(0) + i * slot, static_cast<std::size_t>(width * p.kernel->acc_size));
      tree.commit(p.arg ? blocks.data() + i * width : nullptr);
    }
  }
  Buffer values;
  std::vector<int64_t> blocks;
  int64_t slot, width, parts;
};

template <class F>
bool run_chunks(int64_t chunks, F&& fn) {
  return parallel_for_interruptible(chunks, [&](int64_t begin, int64_t end) {
    Workspace w;
    for (int64_t i = begin; i < end; ++i) fn(w, i);
  });
}

// ---- strategies -----------------------------------------------------------------------------------------------------

/// Long sequences: each is divided into aligned groups of blocks.
bool run_long_sequences(const Plan& p, int64_t group) {
  const int64_t parts = (p.n + group - 1) / group;
  Parts results(p, p.m, parts, 1);
  const bool completed = run_chunks(p.m * parts, [&](Workspace& w, int64_t i) {
    const int64_t output = i / parts, part = i % parts, first = part * group;
    w.tree.start(p, 1);
    sequence_part(p, w, p.in + offset_of(p.kept, output), first, std::min(group, p.n - first), group);
    results.put(p, output, part, w.tree);
  });
  if (!completed) return false;
  Workspace w;
  for (int64_t o = 0; o < p.m; ++o) {
    results.join(p, o, w.tree);
    finish(p, w, w.tree.value(), w.tree.best_block(), 1, p.in + offset_of(p.kept, o), 0, p.out + o * p.out_size, 1);
  }
  return true;
}

/// Outputs [first, first + count) whose sequences are a block at most and lie in place: several at once.
void short_runs(const Plan& p, Workspace& w, int64_t first, int64_t count) {
  const ReduceKernel& k = *p.kernel;
  const Dim last = p.kept.empty() ? Dim{1, 0, 1} : p.kept.back();
  const std::vector<int64_t> zeros(static_cast<std::size_t>(p.arg ? count : 0));
  for (int64_t done = 0; done < count;) {
    const int64_t o = first + done, run = std::min(count - done, last.size - o % last.size);
    const char* base = p.in + offset_of(p.kept, o);
    char* values = w.values.get((run + reduce_padding) * k.acc_size);
    k.contiguous(base, last.stride, p.n, run, values, p.bits);
    finish(p, w, values, zeros.data(), run, base, last.stride, p.out + o * p.out_size, 1);
    done += run;
  }
}

/// Many sequences, each the work of one thread.
bool run_many_sequences(const Plan& p, int64_t group) {
  const int64_t together = std::max<int64_t>(1, group_elements / p.n);
  return run_chunks((p.m + together - 1) / together, [&](Workspace& w, int64_t i) {
    const int64_t first = i * together, count = std::min(together, p.m - first);
    if (in_place(p) && p.n <= B) return short_runs(p, w, first, count);
    for (int64_t o = first; o < first + count; ++o) {
      const char* base = p.in + offset_of(p.kept, o);
      w.tree.start(p, 1);
      sequence_part(p, w, base, 0, p.n, group);
      finish(p, w, w.tree.value(), w.tree.best_block(), 1, base, 0, p.out + o * p.out_size, 1);
    }
  });
}

bool run_sequences(const Plan& p) {
  const int near = nearest(p.reduced);
  const int64_t row = near < 0 ? 1 : product(p.reduced, static_cast<std::size_t>(near) + 1);
  int64_t group = group_elements;
  if (row > 1 && !in_place(p)) {  // 64 rows: four adjoining cache lines at a time
    while (group < 64 * row && group < largest_gather) group *= 2;
  }
  return p.n > group ? run_long_sequences(p, group) : run_many_sequences(p, group);
}

void dense_block(const Plan& p, Workspace& w, const char* data, int64_t rows, int64_t width, char* values) {
  const ReduceKernel& k = *p.kernel;
  char* scratch = w.scratch.get((width * k.dense_lanes + reduce_padding) * k.acc_size);
  k.dense(data, rows, width, scratch, values, p.bits);
}

/// One block for `width` outputs side by side: rows at `w.offsets`, outputs `stride` bytes apart.
void panel_block(const Plan& p, Workspace& w, const char* base, int64_t rows, int64_t width, int64_t stride,
                 char* values) {
  const ReduceKernel& k = *p.kernel;
  const int64_t* offsets = w.offsets.data();
  const char* data = base;
  if (p.convert || stride != p.element || width < narrow) {
    char* raw = w.gathered.get(rows * width * p.element);
    for (int64_t j = 0; j < rows; ++j) {
      copy_elements(p.element, base + offsets[j], stride, width, raw + j * width * p.element, p.element);
    }
    data = converted(p, w, raw, rows * width);
    if (width < narrow) return dense_block(p, w, data, rows, width, values);
    for (int64_t j = 0; j < rows; ++j) w.columns[static_cast<std::size_t>(j)] = j * width * k.in_size;
    offsets = w.columns.data();
  }
  char* scratch = w.scratch.get((width + reduce_padding) * k.panel_lanes * k.acc_size);
  k.panel(data, offsets, rows, width, scratch, values, p.bits);
}

/// The widest panel: its accumulators fit a level-2 cache, and what has to be gathered fits too.
int64_t panel_width(const Plan& p, int64_t stride) {
  const ReduceKernel& k = *p.kernel;
  int64_t width = panel_bytes / (k.panel_lanes * k.acc_size);
  if (p.convert || stride != p.element) width = std::min(width, std::max(narrow, tile_elements / std::min(p.n, B)));
  return std::min<int64_t>(width, 16 * 1024);
}

/// Lanes hold different outputs, along the kept axis `axis`; a panel is some of them, all rows of one block.
bool run_panels(Plan p, int axis) {
  const Dim c = p.kept[static_cast<std::size_t>(axis)];
  const int64_t width = std::min(c.size, panel_width(p, c.stride)), across = (c.size + width - 1) / width;
  if (p.arg && width >= narrow) p.block = search_block;
  const int64_t tiles = p.m / c.size * across, blocks = (p.n + p.block - 1) / p.block;
  int64_t group = 1;
  while (group < blocks && group * p.block * width < group_elements) group *= 2;
  const int64_t parts = (blocks + group - 1) / group;
  const int64_t together = std::max<int64_t>(1, group_elements / (std::min(p.n, group * B) * width));
  Parts results(p, parts > 1 ? tiles : 0, parts, width);
  struct Tile {
    const char* in;
    char* out;
    int64_t width;
  };
  const auto tile_at = [&](int64_t t) {
    const int64_t other = t / across, first = t % across * width;
    return Tile{p.in + offset_of(p.kept, other, axis) + first * c.stride,
                p.out + (offset_of(p.kept, other, axis, &Dim::out) + first * c.out) * p.out_size,
                std::min(width, c.size - first)};
  };
  const bool rows_adjoin = !p.convert && width < narrow && c.stride == p.element && p.reduced.size() == 1 &&
                           p.reduced[0].stride == width * p.element && across == 1;
  const auto unit = [&](Workspace& w, int64_t i) {
    const int64_t part = i % parts;
    const Tile tile = tile_at(i / parts);
    w.tree.start(p, parts > 1 ? width : tile.width);
    for (int64_t b = part * group; b < std::min(blocks, (part + 1) * group); ++b) {
      const int64_t rows = std::min(p.block, p.n - b * p.block);
      if (rows_adjoin) {
        dense_block(p, w, tile.in + b * p.block * p.reduced[0].stride, rows, width, w.tree.next());
      } else {
        list_offsets(p.reduced, 0, b * p.block, rows, w.offsets.data());
        panel_block(p, w, tile.in, rows, tile.width, c.stride, w.tree.next());
      }
      w.tree.commit(b);
    }
    if (parts > 1) return results.put(p, i / parts, part, w.tree);
    finish(p, w, w.tree.value(), w.tree.best_block(), tile.width, tile.in, c.stride, tile.out, c.out);
  };
  const int64_t units = tiles * parts;
  const bool completed = run_chunks((units + together - 1) / together, [&](Workspace& w, int64_t i) {
    for (int64_t u = i * together; u < std::min(units, (i + 1) * together); ++u) unit(w, u);
  });
  if (!completed || parts == 1) return completed;
  return run_chunks(tiles, [&](Workspace& w, int64_t t) {
    const Tile tile = tile_at(t);
    results.join(p, t, w.tree);
    finish(p, w, w.tree.value(), w.tree.best_block(), tile.width, tile.in, c.stride, tile.out, c.out);
  });
}

/// Lanes hold different blocks of one sequence, along the reduced axis `axis`: the sequence of a column-major matrix,
/// say. The axes inside `axis` hold whole blocks.
bool run_block_panels(const Plan& p, int axis) {
  const ReduceKernel& k = *p.kernel;
  const Dim c = p.reduced[static_cast<std::size_t>(axis)];
  const int64_t inner_blocks = product(p.reduced, static_cast<std::size_t>(axis) + 1) / B;
  const int64_t width = std::min(c.size, panel_width(p, c.stride)), across = (c.size + width - 1) / width;
  const int64_t blocks = p.n / B, outer = blocks / (c.size * inner_blocks);
  Buffer memory;
  char* values = memory.get((blocks + reduce_padding) * k.acc_size);
  Workspace last;
  for (int64_t o = 0; o < p.m; ++o) {
    const char* base = p.in + offset_of(p.kept, o);
    const bool completed = run_chunks(outer * inner_blocks * across, [&](Workspace& w, int64_t i) {
      const int64_t first = i % across * width, t = i / across % inner_blocks, out = i / across / inner_blocks;
      const int64_t now = std::min(width, c.size - first), row = out * c.size + first;
      list_offsets(p.reduced, static_cast<std::size_t>(axis) + 1, t * B, B, w.offsets.data());
      char* panel = w.values.get((now + reduce_padding) * k.acc_size);
      panel_block(p, w, base + offset_of(p.reduced, row * inner_blocks * B), B, now, c.stride, panel);
      copy_elements(k.acc_size, panel, k.acc_size, now, values + (row * inner_blocks + t) * k.acc_size,
                    inner_blocks * k.acc_size);
    });
    if (!completed) return false;
    int64_t block = 0;
    if (p.arg) {
      for (int64_t b = 1; b < blocks; ++b) k.select(values, &block, values + b * k.acc_size, &b, 1);
    } else {
      k.tree(values, blocks);
    }
    finish(p, last, values, &block, 1, base, 0, p.out + o * p.out_size, 1);
  }
  return true;
}

bool run_plan(const Plan& p) {
  const int column = nearest(p.kept), row = nearest(p.reduced);
  const bool brief = p.n <= short_sequence && p.m > p.n;
  if (column >= 0 && row >= 0) {
    const int64_t across = std::abs(p.kept[static_cast<std::size_t>(column)].stride);
    if (brief || (across != 0 && across < std::abs(p.reduced[static_cast<std::size_t>(row)].stride))) {
      return run_panels(p, column);
    }
  }
  if (row >= 0 && row + 1 < static_cast<int>(p.reduced.size())) {
    const Dim c = p.reduced[static_cast<std::size_t>(row)];
    const bool whole = product(p.reduced, static_cast<std::size_t>(row) + 1) % B == 0;
    if (whole && c.stride == p.element && c.size >= narrow && !p.convert) return run_block_panels(p, row);
  }
  return run_sequences(p);
}

constexpr int64_t few = 16;  // outputs

/// Row-major operands of which a block at most goes to each of a few outputs, over their last axes or over the first:
/// one call of the kernel and nothing from the allocator. False for anything else.
bool reduce_few(const ReduceArgs& a, const ReduceKernels& kernels) {
  int64_t inner = 1, outer = 1, step = static_cast<int64_t>(itemsize(a.dtype));
  int i = a.ndim;
  const bool last = a.ndim == 0 || (a.axes_mask >> (a.ndim - 1) & 1) != 0;
  const auto reduced = [&](int axis) { return (a.axes_mask >> axis & 1) != 0; };
  const auto take = [&](int64_t& product) {
    --i;
    if (a.shape[i] != 1 && a.strides[i] != step) return false;
    product *= a.shape[i];
    step *= a.shape[i];
    return product <= B && product > 0;
  };
  while (i > 0 && reduced(i - 1) == last) {
    if (!take(inner)) return false;
  }
  while (i > 0 && reduced(i - 1) != last) {
    if (!take(outer)) return false;
  }
  const int64_t n = last ? inner : outer, m = last ? outer : inner;
  if (i > 0 || m > few || (is_complex(a.dtype) && a.op != ReduceOp::prod)) return false;
  Plan p{};
  begin_plan(p, a);
  p.n = n;
  p.m = m;
  choose_kernel(p, a.dtype, a.result, kernels);
  const ReduceKernel& k = *p.kernel;
  alignas(64) char values[(few + reduce_padding) * 16], wide[4096];
  if (!last && p.arg) return false;
  const char* in = p.in;
  int64_t element = p.element;
  if (p.convert) {
    element = k.in_size;
    if (n * m * element > static_cast<int64_t>(sizeof wide)) return false;
    p.convert(in, n * m, wide);
    in = wide;
  }
  if (last) {
    k.contiguous(in, n * element, n, m, values, p.bits);
  } else {
    alignas(64) char scratch[(few + 1) * reduce_padding * 16];
    k.dense(in, n, m, scratch, values, p.bits);
  }
  if (!p.arg) {
    p.finish(values, m, p.op == ReduceOp::mean ? static_cast<double>(n) : 1.0, p.bits, p.out, p.out_size);
    return true;
  }
  for (int64_t o = 0; o < m; ++o) {
    const int64_t at = k.locate(in + o * n * element, n, values + o * k.acc_size, p.bits);
    std::memcpy(p.out + o * p.out_size, &at, sizeof at);
  }
  return true;
}

void fill_empty(const ReduceArgs& a, int64_t outputs) {
  char* out = static_cast<char*>(a.out);
  for (int64_t i = 0; i < outputs; ++i) empty_value(a.op, a.result, out + i * static_cast<int64_t>(itemsize(a.result)));
}

}  // namespace

bool reduce_supports(ReduceOp op, Dtype t, Dtype result) noexcept {
  if (itemsize(t) == 1 && is_floating(t)) return false;
  if (itemsize(result) == 1 && is_floating(result)) return false;
  const bool integer = kind(t) <= Kind::integer;
  switch (op) {
    case ReduceOp::any:
    case ReduceOp::all:
      return result == Dtype::boolean;
    case ReduceOp::argmax:
    case ReduceOp::argmin:
      return !is_complex(t) && result == Dtype::int64;
    case ReduceOp::max:
    case ReduceOp::min:
      return !is_complex(t) && result == t;
    default:
      break;
  }
  if (integer) return op == ReduceOp::mean ? is_floating(result) : kind(result) == Kind::integer;
  return result == t || (kind(result) == kind(t) && itemsize(result) > itemsize(t));
}

bool reduce(const ReduceArgs& args, const ReduceKernels& kernels) {
  if (reduce_few(args, kernels) || has_empty_axis(args, false)) return true;
  const Plan p = make_plan(args, kernels);
  if (p.n > 0) return run_plan(p);
  assert(!is_extreme(args.op));  // the guard refuses it
  int64_t outputs = 1;
  for (int i = 0; i < args.ndim; ++i) outputs *= (args.axes_mask >> i & 1) != 0 ? 1 : args.shape[i];
  fill_empty(args, outputs);
  return true;
}

}  // namespace hyalite
