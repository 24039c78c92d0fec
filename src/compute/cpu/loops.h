/// The shapes an elementwise loop can have; no op writes a loop, a tail or a stride of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "compute/cpu/kernels.h"
#include "tensor/shape.h"

namespace hyalite::cpu {

/// One operand of a loop over `shape`.
struct LoopOperand {
  std::byte* data = nullptr;
  const std::int64_t* strides = nullptr;  ///< bytes, one a dimension of the loop; 0 where it is broadcast
  Dtype stored = Dtype::float32;          ///< as it lies in memory
  Dtype computed = Dtype::float32;        ///< as the kernel wants it
  bool number = false;                    ///< held by the loop: not read from the caller's memory
};

/// What a loop did, for the trace. What it does not count stays empty.
struct LoopReport {
  const char* shape = nullptr;
  std::optional<int> threads;
  std::optional<bool> streaming;
  std::optional<bool> blocks;  ///< operands went through blocks in the cache
  std::optional<std::int64_t> rows;
  std::optional<std::int64_t> bytes;  ///< read and written in memory
};

inline constexpr const char* one_call = "one call of the kernel";  ///< where no loop of shapes was needed

inline constexpr int max_operands = 20;  ///< of a fused group, its results too

/// One elementwise loop.
struct Loop {
  ElementwiseFn kernel = nullptr;
  const double* attr = nullptr;
  Dims shape;
  std::span<const LoopOperand> in;
  std::span<const LoopOperand> out;
  bool heavy = false;          ///< a transcendental function: worth threads sooner
  bool moves = false;          ///< the kernel only moves elements
  bool interruptible = false;  ///< may stop between chunks, leaving the output unfinished
};

/// Runs it. False when it was interrupted. `report` may be null.
bool run(const Loop& loop, LoopReport* report);

/// Copies and converts: the loop whose kernel is a cast.
bool copy(const LoopOperand& in, const LoopOperand& out, Dims shape, LoopReport* report);

}  // namespace hyalite::cpu
