/// What a reduction runs, before anything is known of its layout: the kernel, what precedes and what follows it.
#pragma once

#include "compute/cpu/reduce.h"
#include "compute/cpu/reduce_convert.h"

namespace hyalite {

struct ReduceChoice {
  ReduceOp op;
  const ReduceKernel* kernel = nullptr;
  std::uint64_t bits = 0;
  int element = 0;              ///< bytes of an element in memory
  ConvertFn convert = nullptr;  ///< elements to kernel->in_size, after gathering; null when it is the identity
  FinishFn finish = nullptr;
  int out_size = 0;
  bool arg = false;
};

inline bool is_arg(ReduceOp op) { return op == ReduceOp::argmax || op == ReduceOp::argmin; }
inline bool is_extreme(ReduceOp op) { return op == ReduceOp::max || op == ReduceOp::min || is_arg(op); }
inline bool is_idempotent(ReduceOp op) {
  return op == ReduceOp::max || op == ReduceOp::min || op == ReduceOp::any || op == ReduceOp::all;
}

/// What follows from op and dtypes alone.
void begin_choice(ReduceChoice& p, ReduceOp op, Dtype t, Dtype result);
/// The kernel of a choice that was begun; its `element` is by then the component's, where components are reduced.
void choose_kernel(ReduceChoice& p, Dtype t, Dtype result, const ReduceKernels& kernels);

}  // namespace hyalite
