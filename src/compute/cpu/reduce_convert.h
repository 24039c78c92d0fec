/// What surrounds a reduction kernel: conversion of elements to the accumulate type, and the one rounding at the end.
#pragma once

#include <cstdint>

#include "compute/cpu/reduce.h"
#include "hyalite/dtype.h"

namespace hyalite {

/// Converts `count` contiguous elements.
using ConvertFn = void (*)(const void* in, std::int64_t count, void* out);

/// Rounds `count` accumulators to outputs `out_stride` bytes apart. `divisor` is used by means, `bits` (the flip) by
/// min.
using FinishFn = void (*)(const void* values, std::int64_t count, double divisor, std::uint64_t bits, void* out,
                          std::int64_t out_stride);

/// From `from` to int64 (wrapping), float32, float64, complex128, or boolean (complex128 only).
ConvertFn convert_fn(Dtype from, Dtype to);

/// Sum, product or mean accumulated as int64, float32, float64 or complex128; NaN becomes the canonical one.
FinishFn finish_fold(Dtype accumulated, Dtype result);
/// max and min of that dtype.
FinishFn finish_extreme(Dtype dtype);
/// any and all from accumulators of `size` bytes; `inverted` for all.
FinishFn finish_flag(int size, bool inverted);

/// The value of an empty sum, product, mean, any or all, in the result's dtype.
void empty_value(ReduceOp op, Dtype result, void* out);

}  // namespace hyalite
