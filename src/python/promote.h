/// Promotion: the front end aligns dtypes, the engine never does.
#pragma once

#include <span>

#include "hyalite/dtype.h"
#include "hyalite/scalar.h"

namespace hyalite::python {

/// The join of two dtypes. Throws DtypeMismatch for uint64 with a signed type and for float8 with another dtype.
Dtype promote(Dtype a, Dtype b, const char* op = "result_type");
/// The join of several: the highest kind first, so the order never matters.
Dtype promote(std::span<const Dtype> dtypes, const char* op = "result_type");

/// float32, int64, bool, complex64.
Dtype default_dtype(Kind k);
/// The dtype that a weak scalar of `kind` and tensors of dtype `t` give together.
Dtype promote_weak(Dtype t, Kind scalar);
/// Whether the integer of `s` is a value of the dtype; true for other kinds.
bool fits(const Scalar& s, Dtype dtype);

}  // namespace hyalite::python
