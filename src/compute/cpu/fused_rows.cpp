/// Rows that stay in the cache from one reduction to the next; long rows and columns, which are walked once.
#include "compute/cpu/fused_rows.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "compute/blocking.h"
#include "compute/cpu/code.h"
#include "compute/cpu/cpu_info.h"
#include "compute/cpu/describe.h"
#include "compute/cpu/fused_walk.h"
#include "compute/cpu/gather.h"
#include "compute/cpu/generated.h"
#include "compute/cpu/loops.h"
#include "compute/cpu/operands.h"
#include "compute/cpu/primitives.h"
#include "compute/cpu/reduce_choice.h"
#include "compute/cpu/reduce_walk.h"
#include "compute/cpu/threads.h"

namespace hyalite::cpu {
namespace {

using lazy::Memory;
using lazy::Pass;
using lazy::Program;
using reduce_walk::Buffer;

constexpr std::int64_t B = reduce_block;            // elements of a chunk, as of a block of a reduction
constexpr std::int64_t part_blocks = 64;            // of a long row, for one thread at a time
constexpr std::int64_t narrow = 64;                 // fewer columns than this are reduced as one stream
constexpr std::int64_t direct_columns = 256;        // a row of which is a chunk of its own: it is read where it lies
constexpr std::int64_t panel_columns = 2048;        // long enough streams; their accumulators stay near
constexpr std::int64_t parallel_bytes = 512 << 10;  // as the loops of elementwise ops
constexpr std::int64_t chunk_bytes = 128 << 10;     // of work for a thread at a time

/// A reduction within a pass.
struct Reduction {
  ReduceChoice choice;
  int from = 0, to = 0;  // registers
  int pass = 0;
};

class Rows final : public lazy::FusedKernel {
 public:
  Rows(const Program& p, Generator* generator) : code_(p), pass_(p.pass) { build(p, generator); }

  void run(std::span<const Memory> in, std::span<const Memory> out, Recorder* rec) const override {
    Span span(rec, Phase::compute, Who::backend, Who::kernel, StepKind::request);
    Run r{};
    for (std::size_t i = 0; i < in.size(); ++i) r.in[i] = in[i].storage->address() + in[i].shift + offset_[i];
    for (std::size_t k = 0; k < out.size(); ++k)
      r.out[k] = out[k].storage->address() + out[k].shift + offset_[in.size() + k];
    threads_detail::last_threads = 1;
    bool finished = true;
    {
      std::optional<Blocking> released;
      if (bytes_ > small_bytes) released.emplace();
      finished = pass_.kind == Pass::rows ? run_rows(r) : pass_.kind == Pass::long_rows ? run_long(r) : run_columns(r);
    }
    if (!finished) throw Interrupted("interrupted; the unfinished result is dropped");
    if (span.over()) {
      LoopReport report;
      report.shape = pass_.kind == Pass::columns ? "columns, a panel at a time" : "rows, one after the other";
      report.threads = threads_detail::last_threads;
      report.bytes = bytes_;  // rows stay in the cache, and columns are walked once
      describe_fused(*rec, code_.ops, code_.generated, report);
    }
  }

 private:
  /// Where the operands of a run lie.
  struct Run {
    const std::byte* in[max_operands];
    std::byte* out[max_operands];
  };
  /// Where a chunk lies: `rows` of `cols` elements, side by side in blocks.
  struct Chunk {
    std::int64_t row, rows, col, cols;
    std::int64_t kept_at;    // where its elements stand in what is kept of the row, or of the panel
    std::int64_t piece = 0;  // of a row of a panel: how far in it begins
    std::int64_t count() const { return rows * cols; }
  };
  /// A thread's memory.
  struct Work {
    std::byte *blocks, *windows, *spread, *row, *kept, *converted;
    const std::byte* window[max_operands];
  };

  // ---- running ----

  Work work() const {
    std::byte* at = scratch(static_cast<std::size_t>(all_bytes_));
    const auto take = [&](std::int64_t bytes) {
      std::byte* const p = at;
      at += (bytes + 63) / 64 * 64;
      return p;
    };
    Work w{};
    w.blocks = take(blocks_ * block_bytes_);
    w.windows = take(static_cast<std::int64_t>(inputs_) * B * 16);
    w.spread = take(spreads_ * longest_ * 16);
    w.row = take(rows_ * row_bytes_);
    w.kept = take(kepts_ * kept_bytes_);
    w.converted = take(B * 16 * 2);
    return w;
  }

  template <class F>
  bool spread_out(std::int64_t tiles, std::int64_t together, F&& fn) const {
    const bool parallel = bytes_ * (code_.heavy ? 8 : 1) > parallel_bytes && num_threads() > 1;
    const auto run = [&](std::int64_t begin, std::int64_t end) {
      const Work w = work();
      for (std::int64_t t = begin * together; t < std::min(end * together, tiles); ++t) fn(w, t);
      if (stream_) std::atomic_thread_fence(std::memory_order_seq_cst);
    };
    const std::int64_t chunks = (tiles + together - 1) / together;
    if (!parallel) {
      run(0, chunks);
      return true;
    }
    if (interruptible_) return parallel_for_interruptible(chunks, run);
    parallel_for(chunks, run);
    return true;
  }

  std::byte* address(int reg, const Run& r, const Work& w, const Chunk& c) const {
    if (reg < 0) return nullptr;
    const auto at = static_cast<std::size_t>(reg);
    const Place p = code_.place[at];
    const auto size = static_cast<std::int64_t>(code_.size[at]);
    switch (p.kind) {
      case Place::input:
        return const_cast<std::byte*>(w.window[p.index]);
      case Place::number:
        return numbers_.at(p.index);
      case Place::block:
        return w.blocks + p.index * block_bytes_;
      case Place::kept:
        return w.kept + p.index * kept_bytes_ + c.kept_at * size;
      case Place::spread:
        return w.spread + p.index * longest_ * 16 + c.piece * size;
      case Place::row:
        return w.row + p.index * row_bytes_;
      case Place::output:
        return r.out[p.index] + (c.row * inner_ + c.col) * size;
      default:
        return nullptr;
    }
  }

  void call(const std::vector<Instruction>& list, const Run& r, const Work& w, const Chunk& c, std::int64_t n,
            bool stream) const {
    const void* from[max_operands];
    void* to[max_operands];
    for (const Instruction& i : list) {
      for (std::size_t k = 0; k < i.in.size(); ++k) from[k] = address(i.in[k], r, w, c);
      for (std::size_t k = 0; k < i.out.size(); ++k) to[k] = address(i.out[k], r, w, c);
      bool aligned = stream;
      for (std::size_t k = 0; k < i.out.size(); ++k) aligned &= reinterpret_cast<std::uintptr_t>(to[k]) % 64 == 0;
      i(from, to, static_cast<std::size_t>(n), aligned);
    }
  }

  /// Brings the operands of a pass over the chunk to where the kernels can read them.
  void load(const std::vector<int>& inputs, const Run& r, Work& w, const Chunk& c, bool first_of_row) const {
    for (const int i : inputs) {
      const auto at = static_cast<std::size_t>(i);
      const Walk& walk = walks_[at];
      const bool columns = pass_.kind == Pass::columns;
      const std::byte* from = r.in[i] + (columns ? c.row * walk.outer() : walk.row(c.row)) + c.col * walk.inner;
      const bool dense = walk.inner == walk.size;
      if (c.rows == 1 && dense) {
        w.window[i] = from;
        continue;
      }
      const bool one_step = walk.sizes.size() <= 1;
      if (dense && one_step && walk.outer() == c.cols * walk.size) {
        w.window[i] = from;
        continue;
      }
      std::byte* const to = w.windows + i * B * 16;
      w.window[i] = to;
      if (c.rows == 1 && walk.inner == 0) {
        if (!first_of_row) continue;  // the whole block is that element
        std::memcpy(to, from, static_cast<std::size_t>(walk.size));
        repeat(to, static_cast<std::size_t>(walk.size), static_cast<std::size_t>(B * walk.size));
        continue;
      }
      if (columns || one_step) {
        gather(to, from, {c.rows, c.cols, walk.outer(), walk.inner, static_cast<std::size_t>(walk.size)});
        continue;
      }
      for (std::int64_t k = 0; k < c.rows; ++k) {
        gather(to + k * c.cols * walk.size, r.in[i] + walk.row(c.row + k) + c.col * walk.inner,
               {1, c.cols, 0, walk.inner, static_cast<std::size_t>(walk.size)});
      }
    }
  }

  /// Values of kept places beside the elements that they belong to.
  void spread_values(int pass, const Run& r, const Work& w, const Chunk& c, std::int64_t count) const {
    for (const Spread& s : spreads_of_[static_cast<std::size_t>(pass)]) {
      const auto size = static_cast<std::size_t>(code_.size[static_cast<std::size_t>(s.from)]);
      const std::byte* from = address(s.from, r, w, c);
      std::byte* to = w.spread + s.index * longest_ * 16;
      if (pass_.kind == Pass::columns) {
        const std::size_t once = static_cast<std::size_t>(c.cols) * size;
        std::memcpy(to, from, once);
        repeat(to, once, static_cast<std::size_t>(count) * size);
        continue;
      }
      spread_elements(to, from, size, c.rows, c.rows == 1 ? std::min(inner_, B) : inner_);
    }
  }

  /// Operands of which there is one value for each kept place.
  void load_kept(const Run& r, const Work& w, std::int64_t first, std::int64_t count) const {
    for (const KeptInput& k : kept_inputs_) {
      const auto size = static_cast<std::size_t>(code_.size[static_cast<std::size_t>(k.input)]);
      std::byte* const to = w.row + k.row * row_bytes_;
      if (k.single) {
        std::memcpy(to, r.in[k.input], size);
        repeat(to, size, static_cast<std::size_t>(count) * size);
      } else {
        std::memcpy(to, r.in[k.input] + first * static_cast<std::int64_t>(size),
                    static_cast<std::size_t>(count) * size);
      }
    }
  }
  void store_kept(const Run& r, const Work& w, const Chunk& c, std::int64_t first, std::int64_t count) const {
    for (const auto& [reg, output] : kept_outputs_) {
      const auto size = static_cast<std::int64_t>(code_.size[static_cast<std::size_t>(reg)]);
      std::memcpy(r.out[output] + first * size, address(reg, r, w, c), static_cast<std::size_t>(count * size));
    }
  }

  /// The elements as the reduction's kernel takes them.
  const void* converted(const Reduction& d, const Work& w, const void* from, std::int64_t n) const {
    if (d.choice.convert == nullptr) return from;
    d.choice.convert(from, n, w.converted);
    return w.converted;
  }

  /// Bytes of a reduction's values: of so many blocks of a row, or rows. An arg-reduction has the places first, then
  /// the best of each row, then those of a chunk.
  static std::int64_t room(const Reduction& d, std::int64_t count) {
    const std::int64_t values = (count + reduce_padding) * d.choice.kernel->acc_size;
    return ((d.choice.arg ? 2 * values + count * 8 : values) + 63) / 64 * 64;
  }
  std::int64_t room_of(int pass, std::int64_t count) const {
    std::int64_t all = 0;
    for (const Reduction& d : reductions_) all += d.pass == pass ? room(d, count) : 0;
    return all;
  }

  /// Goes on with the place of the best element of each row, by those of a chunk.
  void add_places(const Reduction& d, const void* data, const Chunk& c, char* memory) const {
    const ReduceKernel& k = *d.choice.kernel;
    const std::int64_t count = std::max((inner_ + B - 1) / B, c.rows);
    auto* const places = reinterpret_cast<std::int64_t*>(memory);
    char *const best = memory + count * 8, *const fresh = best + (count + reduce_padding) * k.acc_size;
    k.contiguous(data, c.cols * k.in_size, c.cols, c.rows, fresh, d.choice.bits);
    for (std::int64_t i = 0; i < c.rows; ++i) {
      char *const value = fresh + i * k.acc_size, *const so_far = best + i * k.acc_size;
      if (c.col == 0) {
        std::memcpy(so_far, value, static_cast<std::size_t>(k.acc_size));
      } else {
        std::int64_t from = 0;
        k.select(so_far, &from, value, &c.col, 1);
        if (from == 0) continue;
      }
      places[i] =
          c.col + k.locate(static_cast<const char*>(data) + i * c.cols * k.in_size, c.cols, value, d.choice.bits);
    }
  }

  void finish(const Reduction& d, const Work& w, const void* values, std::int64_t count) const {
    std::byte* const to = w.row + code_.place[static_cast<std::size_t>(d.to)].index * row_bytes_;
    if (d.choice.arg) {
      std::memcpy(to, values, static_cast<std::size_t>(count) * 8);
      return;
    }
    d.choice.finish(values, count, d.choice.op == ReduceOp::mean ? static_cast<double>(pass_.reduced()) : 1.0,
                    d.choice.bits, to, d.choice.out_size);
  }

  bool run_rows(const Run& r) const {
    const std::int64_t n = inner_, m = pass_.outer(), at_once = n >= B ? 1 : B / n;
    const std::int64_t tiles = (m + at_once - 1) / at_once;
    const std::int64_t tile_bytes = std::max<std::int64_t>(1, bytes_ / tiles) * (code_.heavy ? 8 : 1);
    const std::int64_t together = std::max<std::int64_t>(1, chunk_bytes / tile_bytes);
    return spread_out(tiles, together, [&](Work w, std::int64_t t) {
      const std::int64_t first = t * at_once, count = std::min(at_once, m - first);
      Chunk whole{first, count, 0, n, 0};
      load_kept(r, w, first, count);
      for (int pass = 0; pass < passes_; ++pass) {
        const auto at = static_cast<std::size_t>(pass);
        call(row_lists_[at], r, w, whole, count, false);
        spread_values(pass, r, w, whole, count * n);
        std::vector<char*> values;
        const std::int64_t blocks = (n + B - 1) / B;
        thread_local Buffer accumulators;
        char* acc = accumulators.get(room_of(pass, std::max(blocks, count)));
        for (const Reduction& d : reductions_) {
          if (d.pass != pass) continue;
          values.push_back(acc);
          acc += room(d, std::max(blocks, count));
        }
        for (std::int64_t col = 0; col < n; col += count == 1 && n >= B ? B : n) {
          const Chunk c{first, count, col, n >= B ? std::min(B, n - col) : n, col};
          load(inputs_of_[at], r, w, c, col == 0);
          call(lists_[at], r, w, c, c.count(), stream_);
          std::size_t k = 0;
          for (const Reduction& d : reductions_) {
            if (d.pass != pass) continue;
            const ReduceKernel& kernel = *d.choice.kernel;
            const void* data = converted(d, w, address(d.from, r, w, c), c.count());
            char* const to = values[k++];
            if (d.choice.arg) {
              add_places(d, data, c, to);
              continue;
            }
            kernel.contiguous(data, c.cols * kernel.in_size, c.cols, c.rows, to + col / B * kernel.acc_size,
                              d.choice.bits);
          }
          if (pass + 1 == passes_) call(late_, r, w, c, c.count(), false);
        }
        std::size_t k = 0;
        for (const Reduction& d : reductions_) {
          if (d.pass != pass) continue;
          if (blocks > 1 && !d.choice.arg) d.choice.kernel->tree(values[k], blocks);
          finish(d, w, values[k++], count);
        }
      }
      call(row_lists_.back(), r, w, whole, count, false);
      store_kept(r, w, whole, first, count);
    });
  }

  /// The values of all blocks of a reduction, of `width` kept places side by side.
  struct Values {
    Buffer memory;
    std::int64_t slot = 0;
    char* at(std::int64_t i) { return memory.get(0) + i * slot; }
  };

  bool run_long(const Run& r) const {
    const std::int64_t n = inner_, m = pass_.outer(), blocks = (n + B - 1) / B;
    const std::int64_t parts = (blocks + part_blocks - 1) / part_blocks;
    std::vector<Values> values(reductions_.size());
    for (std::size_t k = 0; k < values.size(); ++k) {
      values[k].slot = reductions_[k].choice.kernel->acc_size;
      values[k].memory.get((m * blocks + reduce_padding) * values[k].slot);
    }
    const bool finished = spread_out(m * parts, 1, [&](Work w, std::int64_t t) {
      const std::int64_t row = t / parts, from = t % parts * part_blocks * B, to = std::min(n, from + part_blocks * B);
      const Chunk whole{row, 1, 0, n, 0};
      load_kept(r, w, row, 1);
      call(row_lists_[0], r, w, whole, 1, false);
      spread_values(0, r, w, whole, n);
      for (std::int64_t col = from; col < to; col += B) {
        const Chunk c{row, 1, col, std::min(B, n - col), 0};
        load(inputs_of_[0], r, w, c, col == from);
        call(lists_[0], r, w, c, c.count(), stream_);
        for (std::size_t k = 0; k < reductions_.size(); ++k) {
          const Reduction& d = reductions_[k];
          const void* data = converted(d, w, address(d.from, r, w, c), c.cols);
          // The kernel writes whole vectors, and the next block may be another thread's.
          alignas(64) char value[(1 + reduce_padding) * 16];
          d.choice.kernel->contiguous(data, 0, c.cols, 1, value, d.choice.bits);
          std::memcpy(values[k].at(row * blocks + col / B), value, static_cast<std::size_t>(values[k].slot));
        }
        call(late_, r, w, c, c.count(), false);
      }
    });
    if (!finished) return false;
    Work w = work();
    for (std::int64_t row = 0; row < m; ++row) {
      const Chunk c{row, 1, 0, n, 0};
      load_kept(r, w, row, 1);
      call(row_lists_[0], r, w, c, 1, false);
      for (std::size_t k = 0; k < reductions_.size(); ++k) {
        reductions_[k].choice.kernel->tree(values[k].at(row * blocks), blocks);
        finish(reductions_[k], w, values[k].at(row * blocks), 1);
      }
      call(row_lists_.back(), r, w, c, 1, false);
      store_kept(r, w, c, row, 1);
    }
    return true;
  }

  bool run_columns(const Run& r) const {
    const std::int64_t n = pass_.outer(), m = inner_, width = std::min(m, panel_columns);
    const std::int64_t across = (m + width - 1) / width, blocks = (n + B - 1) / B;
    std::vector<Values> values(reductions_.size());
    for (std::size_t k = 0; k < values.size(); ++k) {
      values[k].slot = (width + reduce_padding) * reductions_[k].choice.kernel->acc_size;
      values[k].memory.get(across * blocks * values[k].slot);
    }
    const bool finished = spread_out(across * blocks, 1, [&](Work w, std::int64_t t) {
      const std::int64_t col = t % across * width, cols = std::min(width, m - col), block = t / across;
      const std::int64_t last = std::min(n, (block + 1) * B), at_once = cols >= direct_columns ? 1 : B / cols;
      load_kept(r, w, col, cols);
      Chunk c{block * B, 0, col, cols, 0};
      call(row_lists_[0], r, w, c, cols, false);
      spread_values(0, r, w, c, at_once * cols);
      const bool parts = cols >= narrow;
      const std::int64_t rows = last - block * B, step = parts ? panel_step : rows;
      for (std::int64_t first = 0; first < rows; first += step) {
        const std::int64_t begin = block * B + first, end = std::min(last, begin + step);
        if (parts && at_once == 1) {
          // The rows of a lane one after the other, so that what is kept of them stays in the first cache.
          for (std::int64_t lane = 0; lane < std::min<std::int64_t>(reduce_lanes, end - begin); ++lane) {
            std::int64_t kept = 0;
            c.rows = 1;
            for (c.row = begin + lane; c.row < end; c.row += reduce_lanes) compute_row(r, w, c, col, cols, kept++);
            for (std::size_t k = 0; k < reductions_.size(); ++k)
              add_lane(k, r, w, {0, kept, col, cols, 0}, static_cast<int>(lane), first == 0);
          }
          continue;
        }
        for (c.row = begin, c.kept_at = 0; c.row < end; c.row += c.rows) {
          c.rows = std::min(at_once, end - c.row);
          compute_row(r, w, c, col, cols, c.row - begin);
        }
        c.kept_at = c.piece = 0;
        c.col = col;
        c.cols = cols;
        for (std::size_t k = 0; k < reductions_.size(); ++k)
          add_panel(k, r, w, c, first, std::min(step, rows - first), parts, values[k].at(t));
      }
      for (std::size_t k = 0; parts && k < reductions_.size(); ++k)
        reductions_[k].choice.kernel->panel_end(rows, cols, lanes(k, cols), values[k].at(t));
    });
    if (!finished) return false;
    Work w = work();
    for (std::int64_t tile = 0; tile < across; ++tile) {
      const Chunk c{0, 1, tile * width, std::min(width, m - tile * width), 0};
      load_kept(r, w, c.col, c.cols);
      call(row_lists_[0], r, w, c, c.cols, false);
      for (std::size_t k = 0; k < reductions_.size(); ++k) {
        join(reductions_[k], values[k], tile, across, 0, blocks, c.cols);
        finish(reductions_[k], w, values[k].at(tile), c.cols);
      }
      call(row_lists_.back(), r, w, c, c.cols, false);
      store_kept(r, w, c, c.col, c.cols);
    }
    return true;
  }

  /// The accumulators of reduction k, of a thread.
  char* lanes(std::size_t k, std::int64_t cols) const {
    thread_local std::vector<Buffer> memory;
    if (memory.size() <= k) memory.resize(k + 1);
    const ReduceKernel& kernel = *reductions_[k].choice.kernel;
    const std::int64_t n =
        cols < narrow ? cols * kernel.dense_lanes + reduce_padding : (cols + reduce_padding) * kernel.panel_lanes;
    return memory[k].get(n * kernel.acc_size);
  }

  /// Rows of a panel, and what is stored of them; they are kept from `place` rows on.
  void compute_row(const Run& r, Work& w, Chunk c, std::int64_t col, std::int64_t cols, std::int64_t place) const {
    c.kept_at = place * cols;
    for (c.piece = 0; c.piece < cols; c.piece += c.cols) {
      c.cols = std::min(cols - c.piece, c.rows == 1 ? B : cols);
      c.col = col + c.piece;
      load(inputs_of_[0], r, w, c, true);
      call(lists_[0], r, w, c, c.count(), false);
      for (const auto& [reg, output] : panel_outputs_) {
        const auto size = static_cast<std::int64_t>(code_.size[static_cast<std::size_t>(reg)]);
        scatter(r.out[output] + (c.row * inner_ + c.col) * size, address(reg, r, w, c),
                {c.rows, c.cols, inner_ * size, size, static_cast<std::size_t>(size)});
      }
      c.kept_at += c.count();
    }
  }

  /// The rows of a lane, side by side in what is kept. An operation whose order is free has one lane.
  void add_lane(std::size_t index, const Run& r, const Work& w, const Chunk& c, int lane, bool first) const {
    const Reduction& d = reductions_[index];
    const ReduceKernel& k = *d.choice.kernel;
    const void* data = converted_rows(d, address(d.from, r, w, c), c.count());
    const bool begins = first && (k.panel_lanes > 1 || lane == 0);
    k.panel_lane(data, c.rows, c.cols, k.panel_lanes > 1 ? lane : 0, begins, lanes(index, c.cols), d.choice.bits);
  }

  /// As the reduction's kernel takes them.
  const void* converted_rows(const Reduction& d, const void* data, std::int64_t n) const {
    if (d.choice.convert == nullptr) return data;
    thread_local Buffer wide;
    char* const buffer = wide.get(n * d.choice.kernel->in_size);
    d.choice.convert(data, n, buffer);
    return buffer;
  }

  /// Rows [first, first + rows) of a block, side by side in what is kept: all of it at once, or a part of a panel.
  void add_panel(std::size_t index, const Run& r, const Work& w, const Chunk& c, std::int64_t first, std::int64_t rows,
                 bool part, char* to) const {
    const Reduction& d = reductions_[index];
    const ReduceKernel& k = *d.choice.kernel;
    const void* data = converted_rows(d, address(d.from, r, w, c), rows * c.cols);
    if (!part) return k.dense(data, rows, c.cols, lanes(index, c.cols), to, d.choice.bits);
    std::array<std::int64_t, panel_step> offsets;
    for (std::int64_t j = 0; j < rows; ++j) offsets[static_cast<std::size_t>(j)] = j * c.cols * k.in_size;
    k.panel_add(data, offsets.data(), first, rows, c.cols, lanes(index, c.cols), d.choice.bits);
  }

  /// The left-balanced tree over blocks [first, first + count) of a tile, into the first of them.
  void join(const Reduction& d, Values& v, std::int64_t tile, std::int64_t across, std::int64_t first,
            std::int64_t count, std::int64_t width) const {
    if (count <= 1) return;
    std::int64_t left = 1;
    while (left * 2 < count) left *= 2;
    join(d, v, tile, across, first, left, width);
    join(d, v, tile, across, first + left, count - left, width);
    d.choice.kernel->join(v.at(first * across + tile), v.at((first + left) * across + tile), width);
  }

  // ---- building ----

  struct Spread {
    int from;  // a register with a value for each kept place
    int index;
  };
  struct KeptInput {
    int input;
    int row;
    bool single;
  };

  bool is_kept(int r) const { return r >= 0 && kept_[static_cast<std::size_t>(r)]; }

  void build(const Program& p, Generator* generator) {
    interruptible_ = p.interruptible;
    inner_ = pass_.inner();
    inputs_ = static_cast<int>(p.in.size());
    kept_ = p.kept;
    std::vector<int> pass = passes(p);
    lists_.resize(static_cast<std::size_t>(passes_));
    inputs_of_.resize(lists_.size());
    spreads_of_.resize(lists_.size());
    row_lists_.resize(lists_.size() + 1);
    for (int i = 0; i < inputs_; ++i) {
      if (!is_kept(i)) continue;
      kept_inputs_.push_back({i, static_cast<int>(rows_), p.in[static_cast<std::size_t>(i)]->numel() == 1});
      code_.place[static_cast<std::size_t>(i)] = {Place::row, static_cast<int>(rows_++)};
    }
    for (std::size_t i = 0; i < p.steps.size(); ++i) add(p.steps[i], pass[i]);
    outputs(p);
    for (int k = 0; generator != nullptr && k < passes_; ++k) {
      generator->merge(lists_[static_cast<std::size_t>(k)], code_, [&](int r, int i) { return read_after(r, k, i); });
    }
    places();
    lay(p);
  }

  /// By step: the pass over the row in which it runs; of values for kept places, that before which they are known.
  std::vector<int> passes(const Program& p) {
    std::vector<int> known(static_cast<std::size_t>(p.registers)), of(p.steps.size());
    const auto is_input = [&](int r) { return r < static_cast<int>(p.in.size() + p.numbers.size()); };
    for (std::size_t i = 0; i < p.steps.size(); ++i) {
      const Program::Step& s = p.steps[i];
      for (const int r : s.from) {
        if (r >= 0 && !is_input(r)) of[i] = std::max(of[i], known[static_cast<std::size_t>(r)]);
      }
      const bool reduces = !s.node->is_elementwise();
      for (std::size_t k = 0; k < s.node->out.size(); ++k)
        known[static_cast<std::size_t>(s.to) + k] = of[i] + (reduces ? 1 : 0);
      passes_ = std::max(passes_, is_kept(s.to) && !reduces ? 1 : of[i] + 1);
    }
    // What is made of operands alone waits for whoever reads it first, so that it need not be kept.
    for (std::size_t i = p.steps.size(); i-- > 0;) {
      const Program::Step& s = p.steps[i];
      if (is_kept(s.to) || !std::ranges::all_of(s.from, [&](int r) { return r < 0 || is_input(r) || is_kept(r); }))
        continue;
      int first = -1;
      for (std::size_t j = i + 1; j < p.steps.size(); ++j) {
        for (const int r : p.steps[j].from) {
          const bool reads = r >= s.to && r < s.to + static_cast<int>(s.node->out.size());
          if (reads) first = first < 0 ? of[j] : std::min(first, of[j]);
        }
      }
      of[i] = std::max(of[i], first);
    }
    return of;
  }

  void add(const Program::Step& s, int pass) {
    const auto at = static_cast<std::size_t>(pass);
    if (!s.node->is_elementwise()) {
      Reduction d;
      d.from = in_pass(s.from[0], pass);
      if (pass_.kind == Pass::columns && written_by(lists_[at], d.from) < 0) {
        // All rows of a block are kept until they are reduced.
        const Dtype t = code_.dtype[static_cast<std::size_t>(d.from)];
        const int kept = code_.add_register(t);
        kept_.resize(code_.dtype.size());
        lists_[at].push_back({Instruction::move, nullptr, {}, t, t, {d.from}, {kept}});
        d.from = kept;
      }
      d.to = s.to;
      d.pass = pass;
      const Dtype in = code_.dtype[static_cast<std::size_t>(d.from)], out = code_.dtype[static_cast<std::size_t>(d.to)];
      begin_choice(d.choice, *reduction_of(*s.node->op), in, out);
      choose_kernel(d.choice, in, out, kernels().reduce);
      code_.place[static_cast<std::size_t>(d.to)] = {Place::row, static_cast<int>(rows_++)};
      reductions_.push_back(d);
      return;
    }
    if (is_kept(s.to)) {
      code_.add(s, row_lists_[at], -1 - pass);
      kept_.resize(code_.dtype.size(), true);
      return;
    }
    Program::Step full = s;
    for (int& r : full.from) r = r < 0 ? r : in_pass(r, pass);
    code_.add(full, lists_[at], pass);
    kept_.resize(code_.dtype.size());
  }

  /// The register with the elements of r in a pass: values of kept places are spread for each pass anew.
  int in_pass(int r, int pass) {
    r = code_.alias[static_cast<std::size_t>(r)];
    for (const auto& [key, register_] : spread_) {
      if (register_ == r) r = key.first;
    }
    return is_kept(r) ? spread(r, pass) : r;
  }

  /// The register that has the value of a kept place beside each of its elements.
  int spread(int r, int pass) {
    const auto [at, fresh] = spread_.try_emplace({r, pass}, 0);
    if (fresh) {
      at->second =
          code_.add_register(code_.dtype[static_cast<std::size_t>(r)], {Place::spread, static_cast<int>(spreads_)});
      kept_.resize(code_.dtype.size());
      spreads_of_[static_cast<std::size_t>(pass)].push_back({r, static_cast<int>(spreads_++)});
    }
    return at->second;
  }

  /// Whether the register is read after instruction `i` of a pass.
  bool read_after(int r, int pass, int i) const {
    for (int p = pass; p < passes_; ++p) {
      if (last_read(lists_[static_cast<std::size_t>(p)], r) > (p == pass ? i : -1)) return true;
      for (const Reduction& d : reductions_) {
        if (d.pass == p && d.from == r) return true;
      }
    }
    return last_read(late_, r) >= 0 || std::ranges::any_of(panel_outputs_, [&](const auto& o) { return o.first == r; });
  }
  /// The pass that writes the register; -1: none.
  int pass_of(int r) const {
    for (int p = 0; p < passes_; ++p) {
      if (written_by(lists_[static_cast<std::size_t>(p)], r) >= 0) return p;
    }
    return -1;
  }

  /// An operand that another output overwrites, as it was: brought into memory of our own before anything is written.
  int loaded(int r) {
    const Dtype t = code_.dtype[static_cast<std::size_t>(r)];
    const int kept = code_.add_register(t);
    kept_.resize(code_.dtype.size());
    lists_[0].insert(lists_[0].begin(), {Instruction::move, nullptr, {}, t, t, {r}, {kept}});
    return kept;
  }

  void outputs(const Program& p) {
    for (std::size_t k = 0; k < p.out.size(); ++k) {
      const int output = static_cast<int>(k);
      if (p.kept[static_cast<std::size_t>(p.stored[k])]) {
        kept_outputs_.emplace_back(code_.alias[static_cast<std::size_t>(p.stored[k])], output);
        continue;
      }
      int r = in_pass(p.stored[k], passes_ - 1);
      if (r < inputs_ && r != p.replaces[k] && std::ranges::find(p.replaces, r) != p.replaces.end()) r = loaded(r);
      if (pass_.kind == Pass::columns) {
        panel_outputs_.emplace_back(r, output);
        continue;
      }
      const int pass = pass_of(r), over = p.replaces[k];
      const bool read_later =
          over >= 0 && (pass < 0 || read_after(over, pass, written_by(lists_[static_cast<std::size_t>(pass)], r)));
      if (pass >= 0 && code_.place[static_cast<std::size_t>(r)].kind == Place::nowhere && !read_later) {
        code_.place[static_cast<std::size_t>(r)] = {Place::output, output};
        continue;
      }
      const Dtype dtype = code_.dtype[static_cast<std::size_t>(r)];
      const int to = code_.add_register(dtype, {Place::output, output});
      kept_.resize(code_.dtype.size());
      late_.push_back({Instruction::move, nullptr, {}, dtype, dtype, {r}, {to}});
    }
    for (int pass = 0; pass < passes_; ++pass) {
      for (Instruction& i : lists_[static_cast<std::size_t>(pass)]) {
        i.streams = std::ranges::all_of(i.out, [&](int r) {
          return code_.place[static_cast<std::size_t>(r)].kind == Place::output && !read_after(r, pass, -1);
        });
      }
    }
  }

  /// Registers that live from one pass to the next, or that a panel is made of, are kept; the others are blocks.
  void places() {
    for (std::vector<Instruction>& list : row_lists_) {
      for (const Instruction& i : list) {
        for (const int r : i.out) code_.place[static_cast<std::size_t>(r)] = {Place::row, static_cast<int>(rows_++)};
      }
    }
    for (int pass = 0; pass < passes_; ++pass) {
      const std::vector<Instruction>& list = lists_[static_cast<std::size_t>(pass)];
      for (const Instruction& i : list) {
        for (const int r : i.out) {
          Place& place = code_.place[static_cast<std::size_t>(r)];
          const bool reduced = std::ranges::any_of(reductions_, [&](const Reduction& d) { return d.from == r; });
          const bool crosses = pass + 1 < passes_ && read_after(r, pass + 1, -1);
          if (place.kind == Place::nowhere && (crosses || (reduced && pass_.kind == Pass::columns)))
            place = {Place::kept, static_cast<int>(kepts_++)};
        }
      }
      const auto needed = [&](int r, int i) { return read_after(r, pass, i); };
      blocks_ = std::max<std::int64_t>(blocks_, give_blocks(list, code_, needed));
      // What the pass reads of the operands.
      std::vector<int>& inputs = inputs_of_[static_cast<std::size_t>(pass)];
      for (int i = 0; i < inputs_; ++i) {
        if (code_.place[static_cast<std::size_t>(i)].kind == Place::input && read_after(i, pass, -1) &&
            (last_read(list, i) >= 0 || (pass + 1 == passes_ && last_read(late_, i) >= 0) ||
             std::ranges::any_of(panel_outputs_, [&](const auto& o) { return o.first == i; }) ||
             std::ranges::any_of(reductions_, [&](const Reduction& d) { return d.pass == pass && d.from == i; })))
          inputs.push_back(i);
      }
    }
  }

  void lay(const Program& p) {
    const std::size_t widest = std::ranges::max(code_.size);
    block_bytes_ = B * static_cast<std::int64_t>(widest);
    const std::int64_t whole =
        pass_.kind == Pass::rows ? std::max(inner_, B) : std::max(B * narrow, panel_step * panel_columns);
    kept_bytes_ = (whole * static_cast<std::int64_t>(widest) + 63) / 64 * 64;
    longest_ = pass_.kind == Pass::columns ? panel_columns : B;
    row_bytes_ = (longest_ + reduce_padding) * 16;
    all_bytes_ = blocks_ * block_bytes_ + static_cast<std::int64_t>(inputs_) * B * 16 + spreads_ * longest_ * 16 +
                 rows_ * row_bytes_ + kepts_ * kept_bytes_ + 2 * B * 16 + 6 * 64;
    numbers_.lay(p, static_cast<std::size_t>(longest_));
    std::int64_t written = 0;
    const std::size_t n = p.in.size() + p.out.size();
    for (std::size_t i = 0; i < n; ++i) {
      const TensorImpl& t = i < p.in.size() ? *p.in[i] : *p.out[i - p.in.size()];
      offset_.push_back(t.offset() * static_cast<std::int64_t>(itemsize(t.dtype())));
      if (i < p.in.size()) walks_.push_back(is_kept(static_cast<int>(i)) ? Walk{} : walk_of(t, pass_));
      bytes_ += lazy::bytes_in_memory(t);
      if (i >= p.in.size()) written += t.nbytes();
    }
    stream_ = pass_.kind != Pass::columns && written > static_cast<std::int64_t>(last_level_cache_bytes() / 4 * 3);
  }

  Code code_;
  Pass pass_;
  std::int64_t inner_ = 0, bytes_ = 0;
  int inputs_ = 0, passes_ = 1;
  bool interruptible_ = true, stream_ = false;
  std::vector<bool> kept_;                           // by register: one value for each kept place
  std::vector<std::vector<Instruction>> lists_;      // by pass
  std::vector<Instruction> late_;                    // of the last pass, when its reductions have read
  std::vector<std::vector<Instruction>> row_lists_;  // before each pass, and after the last
  std::vector<std::vector<int>> inputs_of_;          // by pass
  std::vector<std::vector<Spread>> spreads_of_;      // by pass
  std::map<std::pair<int, int>, int> spread_;
  std::vector<Reduction> reductions_;
  std::vector<KeptInput> kept_inputs_;
  std::vector<std::pair<int, int>> kept_outputs_, panel_outputs_;  // register, output
  std::int64_t blocks_ = 0, kepts_ = 0, rows_ = 0, spreads_ = 0;   // how many
  std::int64_t block_bytes_ = 0, kept_bytes_ = 0, row_bytes_ = 0, all_bytes_ = 0, longest_ = B;
  Numbers numbers_;
  std::vector<Walk> walks_;
  std::vector<std::int64_t> offset_;
};

}  // namespace

std::unique_ptr<lazy::FusedKernel> fuse_rows(const Program& program, Generator* generator) {
  return std::make_unique<Rows>(program, generator);
}

}  // namespace hyalite::cpu
