/// Chooses the shape of an elementwise loop: one flat pass, or tiles whose awkward operands go through blocks in L1.
#include "compute/cpu/loops.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>

#include "compute/blocking.h"
#include "compute/cpu/cpu_info.h"
#include "compute/cpu/gather.h"
#include "compute/cpu/threads.h"
#include "tensor/pool.h"

namespace hyalite::cpu {
namespace {

constexpr std::int64_t block_elements = 1024;
constexpr std::int64_t strided_block_elements = 128;  // operands take turns often: their streams overlap
constexpr std::int64_t tile_edge = 32;                // of a tile that transposes
constexpr std::int64_t chunk_bytes = 128 << 10;       // of work handed to a thread at a time
constexpr std::int64_t largest_chunk = 4 << 20;
constexpr std::int64_t parallel_bytes = 512 << 10;  // below, threads cost more than they give

/// The loop with its dimensions sorted by the output's memory order and joined where all operands allow it.
struct Plan {
  int rank = 0;
  std::array<std::int64_t, max_rank> size;
  std::array<std::array<std::int64_t, max_operands>, max_rank> stride;  // by dimension, inputs first
  std::array<LoopOperand, max_operands> operand;
  int inputs = 0, operands = 0;
  std::int64_t numel = 1;
};

Plan make_plan(const Loop& loop) {
  Plan p;
  p.inputs = static_cast<int>(loop.in.size());
  for (const LoopOperand& o : loop.in) p.operand[p.operands++] = o;
  for (const LoopOperand& o : loop.out) p.operand[p.operands++] = o;
  std::array<int, max_rank> order;
  int n = 0;
  for (int d = 0; d < static_cast<int>(loop.shape.size()); ++d) {
    p.numel *= loop.shape[d];
    if (loop.shape[d] != 1) order[n++] = d;
  }
  const std::int64_t* key = p.operand[p.inputs].strides;
  sort_axes(order.data(), order.data() + n, [&](int a, int b) { return std::abs(key[a]) > std::abs(key[b]); });
  for (int i = 0; i < n; ++i) {
    const int d = order[i];
    std::array<std::int64_t, max_operands> s;
    for (int k = 0; k < p.operands; ++k) s[k] = p.operand[k].strides[d];
    bool join = p.rank > 0;
    for (int k = 0; join && k < p.operands; ++k) join = p.stride[p.rank - 1][k] == s[k] * loop.shape[d];
    if (join) {
      p.size[p.rank - 1] *= loop.shape[d];
      p.stride[p.rank - 1] = s;
    } else {
      p.size[p.rank] = loop.shape[d];
      p.stride[p.rank++] = s;
    }
  }
  if (p.rank == 0) {
    p.size[0] = 1;
    for (int k = 0; k < p.operands; ++k) p.stride[0][k] = static_cast<std::int64_t>(itemsize(p.operand[k].stored));
    p.rank = 1;
  }
  return p;
}

bool worth_streaming(const Plan& p) {
  std::int64_t written = 0;
  for (int k = p.inputs; k < p.operands; ++k)
    written += p.numel * static_cast<std::int64_t>(itemsize(p.operand[k].stored));
  return written > static_cast<std::int64_t>(last_level_cache_bytes() / 4 * 3);
}

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 64 == 0; }

/// Runs fn over [0, chunks): on threads when `parallel`, stopping early when allowed.
template <class F>
bool spread(std::int64_t chunks, bool parallel, bool interruptible, F&& fn) {
  if (!parallel) {
    fn(std::int64_t{0}, chunks);
    return true;
  }
  const Blocking released;
  if (interruptible) return parallel_for_interruptible(chunks, fn);
  parallel_for(chunks, fn);
  return true;
}

std::int64_t bytes_of(const Plan& p) {
  std::int64_t bytes = 0;
  for (int k = 0; k < p.operands; ++k) bytes += p.numel * static_cast<std::int64_t>(itemsize(p.operand[k].stored));
  return bytes;
}

/// How the pass reads one operand: bytes, and how far they reach in memory.
struct Reach {
  std::int64_t bytes = 0, extent = 0;
};

/// Empty where more is read than the elements (whole lines for single elements or short rows), or the same again from
/// memory, as of a long row that is repeated.
std::optional<Reach> reach_of(const Plan& p, int k) {
  constexpr std::int64_t long_row = 4096;
  const auto size = static_cast<std::int64_t>(itemsize(p.operand[k].stored));
  const auto stays = static_cast<std::int64_t>(cache_sizes().l1 / 2);  // in the first cache while others pass by
  Reach r{size, size};
  bool inside = false, again = false;  // `inside`: an axis that is not repeated lies within
  for (int d = p.rank - 1; d >= 0; --d) {
    const std::int64_t stride = p.stride[d][k];
    again |= stride == 0 && inside;
    if (stride == 0) continue;
    if (stride != r.extent && (!inside || stride < r.extent || r.bytes < long_row)) return {};
    inside = true;
    r.bytes *= p.size[d];
    r.extent += stride * (p.size[d] - 1);
  }
  if (again && r.bytes > stays) return {};
  return r;
}

/// What one pass over the plan reads and writes in memory, an operand given twice read once. Empty where an operand's
/// bytes cannot be told, or two overlap, so that what a cache spares is not known.
std::optional<std::int64_t> bytes_of_pass(const Plan& p) {
  std::array<Reach, max_operands> reach;
  std::int64_t sum = 0;
  for (int k = 0; k < p.operands; ++k) {
    const LoopOperand& o = p.operand[k];
    if (o.number || o.data == nullptr) continue;
    const std::optional<Reach> mine = reach_of(p, k);
    if (!mine) return {};
    reach[k] = *mine;
    bool read_already = false;
    for (int i = 0; i < k; ++i) {
      const LoopOperand& other = p.operand[i];
      const bool same = other.data == o.data && reach[i].bytes == mine->bytes && reach[i].extent == mine->extent;
      if (!same && o.data < other.data + reach[i].extent && other.data < o.data + mine->extent) return {};
      read_already |= same && k < p.inputs;
    }
    if (!read_already) sum += mine->bytes;
  }
  return sum;
}

/// Every operand contiguous, in the kernel's own types: one pass, cut into chunks that begin on a cache line.
bool run_flat(const Loop& loop, const Plan& p, LoopReport* report) {
  const std::int64_t bytes = bytes_of(p);
  const bool parallel = bytes * (loop.heavy ? 8 : 1) > parallel_bytes && num_threads() > 1;
  const bool stream = worth_streaming(p);
  std::int64_t per_chunk = p.numel;
  if (bytes > parallel_bytes || parallel) {
    // Long chunks keep the prefetchers on their streams; some sixteen a thread keep the threads level.
    const std::int64_t level = std::clamp<std::int64_t>(bytes / (16 * num_threads()), chunk_bytes, largest_chunk);
    const std::int64_t want = std::max<std::int64_t>(1, level / (loop.heavy ? 8 : 1) * p.numel / bytes);
    per_chunk = (want + 63) / 64 * 64;
  }
  const std::int64_t chunks = (p.numel + per_chunk - 1) / std::max<std::int64_t>(per_chunk, 1);
  if (report != nullptr) {
    bool can_stream = stream;
    for (int k = p.inputs; k < p.operands; ++k) can_stream &= aligned(p.operand[k].data);
    *report = {"contiguous",
               parallel ? static_cast<int>(std::min<std::int64_t>(num_threads(), chunks)) : 1,
               can_stream,
               false,
               1,
               bytes_of_pass(p)};
  }
  return spread(chunks, parallel, loop.interruptible, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * per_chunk, count = std::min(end * per_chunk, p.numel) - first;
    const void* in[max_operands];
    void* out[max_operands];
    bool can_stream = stream;
    for (int k = 0; k < p.operands; ++k) {
      std::byte* at = p.operand[k].data + first * static_cast<std::int64_t>(itemsize(p.operand[k].stored));
      if (k < p.inputs) {
        in[k] = at;
      } else {
        out[k - p.inputs] = at;
        can_stream &= aligned(at);
      }
    }
    loop.kernel(in, out, static_cast<std::size_t>(count), loop.attr, can_stream);
    if (can_stream) std::atomic_thread_fence(std::memory_order_seq_cst);
  });
}

/// The two innermost dimensions are cut into tiles; all others are counted through.
struct Tiling {
  std::int64_t rows = 1, cols = 1;            // of the two innermost dimensions
  std::int64_t tile_rows = 1, tile_cols = 1;  // of a tile
  std::int64_t down = 1, across = 1, outer = 1;
  std::int64_t tiles() const { return down * across * outer; }
};

/// How one operand reaches the kernel, tile after tile.
class Window {
 public:
  Window() = default;
  /// Takes what `scratch_bytes` says from `scratch`.
  Window(const LoopOperand& o, std::int64_t row_stride, std::int64_t col_stride, const Tiling& t, std::byte*& scratch)
      : o_(&o), row_(row_stride), col_(col_stride), size_(static_cast<std::int64_t>(itemsize(o.stored))) {
    const bool rows = t.tile_rows == 1 && o.data != nullptr && o.stored == o.computed;
    as_it_is_ = rows && col_stride == size_;
    if (rows && col_stride != size_ && col_stride != 0) gather_row_ = row_gather(itemsize(o.stored));
    const std::int64_t all = scratch_bytes(o, row_stride, col_stride, t);
    if (all == 0) return;
    buffer_ = scratch;
    raw_ = scratch + block_bytes(t, o.computed);
    scratch += all;
  }

  /// One block in the kernel's dtype, and one in the stored dtype where elements are both moved and converted.
  static std::int64_t scratch_bytes(const LoopOperand& o, std::int64_t row, std::int64_t col, const Tiling& t) {
    if (o.data == nullptr) return 0;
    const std::int64_t size = static_cast<std::int64_t>(itemsize(o.stored));
    const bool dense = col == size && (t.tile_rows == 1 || (t.across == 1 && row == t.cols * size));
    const bool direct = o.stored == o.computed;
    return (dense && direct ? 0 : block_bytes(t, o.computed)) + (dense || direct ? 0 : block_bytes(t, o.stored));
  }

  /// The tile's elements, contiguous and in the kernel's dtype.
  const void* read(const std::byte* at, std::int64_t rows, std::int64_t cols) {
    if (as_it_is_) return at;
    if (gather_row_ != nullptr) {
      gather_row_(buffer_, at, cols, col_);
      return buffer_;
    }
    if (o_->data == nullptr) return nullptr;
    const bool one = (row_ == 0 || rows == 1) && (col_ == 0 || cols == 1);
    if (one && at == filled_ && rows * cols <= filled_count_) return buffer_;
    filled_ = nullptr;
    const std::byte* dense = at;
    const bool direct = o_->stored == o_->computed;
    const std::int64_t n = rows * cols;
    if (!is_dense(rows, cols)) {
      std::byte* to = direct ? buffer_ : raw_;
      gather(to, at, {rows, cols, row_, col_, static_cast<std::size_t>(size_)});
      dense = to;
    }
    if (!direct) {
      cast(kernels().cast, o_->stored, dense, o_->computed, buffer_, static_cast<std::size_t>(n));
      dense = buffer_;
    }
    if (one && dense == buffer_) {
      filled_ = at;
      filled_count_ = n;
    }
    return dense;
  }
  /// Where the kernel may write the tile.
  void* target(std::byte* at, std::int64_t rows, std::int64_t cols) {
    return in_place(rows, cols) ? static_cast<void*>(at) : buffer_;
  }
  /// Brings what was written to its place.
  void write(std::byte* at, std::int64_t rows, std::int64_t cols) {
    if (in_place(rows, cols)) return;
    const std::int64_t n = rows * cols;
    const std::byte* from = buffer_;
    if (o_->stored != o_->computed) {
      std::byte* to = is_dense(rows, cols) ? at : raw_;
      cast(kernels().cast, o_->computed, buffer_, o_->stored, to, static_cast<std::size_t>(n));
      from = to;
    }
    if (!is_dense(rows, cols)) scatter(at, from, {rows, cols, row_, col_, static_cast<std::size_t>(size_)});
  }

 private:
  bool in_place(std::int64_t rows, std::int64_t cols) const {
    return as_it_is_ || (is_dense(rows, cols) && o_->stored == o_->computed);
  }
  bool is_dense(std::int64_t rows, std::int64_t cols) const {
    return (col_ == size_ || cols == 1) && (rows == 1 || row_ == cols * size_);
  }
  static std::int64_t block_bytes(const Tiling& t, Dtype dtype) {
    return (t.tile_rows * t.tile_cols * static_cast<std::int64_t>(itemsize(dtype)) + 63) / 64 * 64;
  }

  const LoopOperand* o_ = nullptr;
  std::int64_t row_ = 0, col_ = 0, size_ = 0;
  bool as_it_is_ = false;           // rows that the kernel reads or writes in place
  RowGather gather_row_ = nullptr;  // of rows that only need to be moved together
  const std::byte* filled_ = nullptr;
  std::int64_t filled_count_ = 0;
  std::byte *buffer_ = nullptr, *raw_ = nullptr;
};

bool transposes(const Plan& p) {
  if (p.rank < 2) return false;
  for (int k = 0; k < p.operands; ++k) {
    const std::int64_t size = static_cast<std::int64_t>(itemsize(p.operand[k].stored));
    const std::int64_t row = std::abs(p.stride[p.rank - 2][k]), col = std::abs(p.stride[p.rank - 1][k]);
    if (row != 0 && row < col && col > size) return true;
  }
  return false;
}

/// Whether an operand's neighbours along the last dimension lie apart in memory.
bool strides(const Plan& p) {
  for (int k = 0; k < p.operands; ++k) {
    const std::int64_t stride = p.stride[p.rank - 1][k];
    if (stride != static_cast<std::int64_t>(itemsize(p.operand[k].stored)) && stride != 0) return true;
  }
  return false;
}

Tiling make_tiling(const Plan& p) {
  Tiling t;
  t.cols = p.size[p.rank - 1];
  t.rows = p.rank > 1 ? p.size[p.rank - 2] : 1;
  for (int d = 0; d < p.rank - 2; ++d) t.outer *= p.size[d];
  const bool turned = transposes(p);
  const std::int64_t elements = !turned && strides(p) ? strided_block_elements : block_elements;
  t.tile_cols = std::min(t.cols, turned ? tile_edge : elements);
  t.tile_rows = std::min(t.rows, std::max<std::int64_t>(1, elements / t.tile_cols));
  t.down = (t.rows + t.tile_rows - 1) / t.tile_rows;
  t.across = (t.cols + t.tile_cols - 1) / t.tile_cols;
  return t;
}

const char* describe(const Plan& p) {
  if (transposes(p)) return "transposed tiles";
  bool broadcast = false, converted = false;
  for (int k = 0; k < p.operands; ++k) {
    converted |= p.operand[k].stored != p.operand[k].computed;
    for (int d = 0; d < p.rank; ++d) broadcast |= p.stride[d][k] == 0;
  }
  if (strides(p)) return broadcast ? "strided with broadcast" : "strided";
  if (broadcast) return "contiguous with broadcast";
  return converted ? "contiguous, converted in blocks" : "rows";
}

/// Blocks for the windows of each thread at work. All are there before the loop writes anything, so that nothing can
/// fail half-way; and they are not on the stack, since a thread may have a small one.
class Scratch {
 public:
  Scratch(std::int64_t bytes, int threads) : bytes_(bytes), slots_(bytes == 0 ? 0 : threads) {
    const std::size_t all = static_cast<std::size_t>(bytes) * static_cast<std::size_t>(slots_);
    if (slots_ > 1) taken_ = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(slots_));
    if (all > sizeof small_) block_ = pool::allocate(all);
  }
  ~Scratch() { pool::release(block_.data, block_.capacity); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Calls f with the blocks of a slot that no other thread has.
  template <class F>
  void with_slot(F f) {
    std::byte* const first = block_.data != nullptr ? static_cast<std::byte*>(block_.data) : small_;
    if (taken_ == nullptr) return f(first);
    for (int i = 0;; i = (i + 1) % slots_) {
      if (taken_[static_cast<std::size_t>(i)].exchange(true, std::memory_order_acquire)) continue;
      f(first + i * bytes_);
      taken_[static_cast<std::size_t>(i)].store(false, std::memory_order_release);
      return;
    }
  }

 private:
  std::int64_t bytes_;
  int slots_;
  pool::Block block_{};
  std::unique_ptr<std::atomic<bool>[]> taken_;
  alignas(64) std::byte small_[2048];
};

std::int64_t row_stride(const Plan& p, int k) { return p.rank > 1 ? p.stride[p.rank - 2][k] : 0; }
std::int64_t col_stride(const Plan& p, int k) { return p.stride[p.rank - 1][k]; }

std::int64_t scratch_bytes(const Plan& p, const Tiling& t) {
  std::int64_t bytes = 0;
  for (int k = 0; k < p.operands; ++k) {
    bytes += Window::scratch_bytes(p.operand[k], row_stride(p, k), col_stride(p, k), t);
  }
  return bytes;
}

/// Where a tile lies.
struct Place {
  std::int64_t row, col;
  std::array<std::int64_t, max_operands> at;  // of its first element, in bytes
};

Place place_of(const Plan& p, const Tiling& t, std::int64_t tile) {
  const std::int64_t across = tile % t.across, down = tile / t.across % t.down;
  std::int64_t rest = tile / t.across / t.down;
  Place place{down * t.tile_rows, across * t.tile_cols, {}};
  for (int k = 0; k < p.operands; ++k) place.at[k] = place.row * row_stride(p, k) + place.col * col_stride(p, k);
  for (int d = p.rank - 3; d >= 0; --d) {
    const std::int64_t i = rest % p.size[d];
    rest /= p.size[d];
    for (int k = 0; k < p.operands; ++k) place.at[k] += i * p.stride[d][k];
  }
  return place;
}

void run_tiles(const Loop& loop, const Plan& p, const Tiling& t, std::int64_t begin, std::int64_t end, bool stream,
               std::byte* scratch) {
  alignas(Window) std::byte room[max_operands * sizeof(Window)];  // of which only some are made
  auto* const w = reinterpret_cast<Window*>(room);
  for (int k = 0; k < p.operands; ++k) new (w + k) Window(p.operand[k], row_stride(p, k), col_stride(p, k), t, scratch);
  Place place = place_of(p, t, begin);
  for (std::int64_t tile = begin; tile < end; ++tile) {
    const std::int64_t rows = std::min(t.tile_rows, t.rows - place.row);
    const std::int64_t cols = std::min(t.tile_cols, t.cols - place.col);
    const void* in[max_operands];
    void* out[max_operands];
    bool can_stream = stream;
    for (int k = 0; k < p.inputs; ++k) in[k] = w[k].read(p.operand[k].data + place.at[k], rows, cols);
    for (int k = p.inputs; k < p.operands; ++k) {
      std::byte* to = p.operand[k].data + place.at[k];
      out[k - p.inputs] = w[k].target(to, rows, cols);
      can_stream &= out[k - p.inputs] == to && aligned(to);
    }
    loop.kernel(in, out, static_cast<std::size_t>(rows * cols), loop.attr, can_stream);
    for (int k = p.inputs; k < p.operands; ++k) w[k].write(p.operand[k].data + place.at[k], rows, cols);
    place.col += cols;
    if (place.col < t.cols) {  // the common step, without a division
      for (int k = 0; k < p.operands; ++k) place.at[k] += cols * col_stride(p, k);
    } else if (tile + 1 < end) {
      place = place_of(p, t, tile + 1);
    }
  }
  if (stream) std::atomic_thread_fence(std::memory_order_seq_cst);
}

/// A plain transposed copy: the input contiguous along the second to last dimension, the output along the last.
bool is_transposition(const Loop& loop, const Plan& p) {
  if (!loop.moves || p.rank < 2 || p.operands != 2) return false;
  const LoopOperand &in = p.operand[0], &out = p.operand[1];
  const std::int64_t size = static_cast<std::int64_t>(itemsize(out.stored)), edge = 64 / size;
  return in.stored == out.stored && p.stride[p.rank - 2][0] == size && p.stride[p.rank - 1][1] == size &&
         p.size[p.rank - 1] >= edge && p.size[p.rank - 2] >= edge;
}

/// Strips two cache lines wide, down all rows: as many read streams as they have elements, and full lines written, two
/// in a place: one alone takes half as long again.
bool run_transposition(const Loop& loop, const Plan& p, LoopReport* report) {
  const std::int64_t size = static_cast<std::int64_t>(itemsize(p.operand[1].stored)), width = 128 / size;
  const std::int64_t rows = p.size[p.rank - 2], cols = p.size[p.rank - 1], strips = (cols + width - 1) / width;
  std::int64_t outer = 1;
  for (int d = 0; d < p.rank - 2; ++d) outer *= p.size[d];
  const bool parallel = bytes_of(p) > parallel_bytes && num_threads() > 1, large = worth_streaming(p);
  if (report != nullptr) {
    const auto threads = parallel ? std::min<std::int64_t>(num_threads(), strips * outer) : 1;
    *report = {"transposed, by cache lines", static_cast<int>(threads), {}, false, rows * outer, {}};
    if (!large) report->streaming = false;  // past that, some lines are and some are not
  }
  return spread(strips * outer, parallel, loop.interruptible, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      std::int64_t rest = k / strips, from = 0, to = 0;
      for (int d = p.rank - 3; d >= 0; --d) {
        from += rest % p.size[d] * p.stride[d][0];
        to += rest % p.size[d] * p.stride[d][1];
        rest /= p.size[d];
      }
      const std::int64_t col = k % strips * width, col_stride = p.stride[p.rank - 1][0],
                         row_stride = p.stride[p.rank - 2][1];
      std::byte* target = p.operand[1].data + to + col * size;
      const Tile tile{rows, std::min(width, cols - col), row_stride, col_stride, static_cast<std::size_t>(size)};
      const bool stream = large && aligned(target) && row_stride % 64 == 0;
      transpose_copy(target, p.operand[0].data + from + col * col_stride, tile, stream);
    }
    if (large) std::atomic_thread_fence(std::memory_order_seq_cst);
  });
}

bool is_flat(const Plan& p) {
  if (p.rank != 1) return false;
  for (int k = 0; k < p.operands; ++k) {
    const LoopOperand& o = p.operand[k];
    if (o.data == nullptr) continue;
    if (o.stored != o.computed || p.stride[0][k] != static_cast<std::int64_t>(itemsize(o.stored))) return false;
  }
  return true;
}

}  // namespace

bool run(const Loop& loop, LoopReport* report) {
  if (has_zero(loop.shape)) return true;
  const Plan p = make_plan(loop);
  if (is_flat(p)) return run_flat(loop, p, report);
  if (is_transposition(loop, p)) return run_transposition(loop, p, report);
  const Tiling t = make_tiling(p);
  const std::int64_t bytes = bytes_of(p);
  const bool parallel = bytes * (loop.heavy ? 8 : 1) > parallel_bytes && num_threads() > 1;
  const bool stream = worth_streaming(p);
  if (report != nullptr) {
    *report = {describe(p),
               parallel ? static_cast<int>(std::min<std::int64_t>(num_threads(), t.tiles())) : 1,
               {},
               true,
               t.rows * t.outer,
               bytes_of_pass(p)};
    if (!stream) report->streaming = false;  // past that, some tiles are and some are not
  }
  Scratch scratch(scratch_bytes(p, t), parallel ? num_threads() : 1);
  return spread(t.tiles(), parallel, loop.interruptible, [&](std::int64_t begin, std::int64_t end) {
    scratch.with_slot([&](std::byte* blocks) { run_tiles(loop, p, t, begin, end, stream, blocks); });
  });
}

namespace {

/// Elements as they are, whatever they mean.
template <std::size_t size>
void move_elements(const void* const* in, void* const* out, std::size_t n, const double*, bool) {
  std::memcpy(out[0], in[0], n * size);
}

ElementwiseFn mover(std::size_t size) {
  switch (size) {
    case 1:
      return move_elements<1>;
    case 2:
      return move_elements<2>;
    case 4:
      return move_elements<4>;
    case 8:
      return move_elements<8>;
    default:
      return move_elements<16>;
  }
}

}  // namespace

bool copy(const LoopOperand& in, const LoopOperand& out, Dims shape, LoopReport* report) {
  // The input is converted on its way through the block, so the kernel only moves.
  LoopOperand from = in, to = out;
  from.computed = to.computed = out.stored;
  return run({.kernel = mover(itemsize(out.stored)), .shape = shape, .in = {&from, 1}, .out = {&to, 1}, .moves = true},
             report);
}

}  // namespace hyalite::cpu
