/// Operands of other libraries that have rules of their own: pandas, xarray, Dask, masked arrays, Decimal, Fraction.
#pragma once

#include "ops/op_info.h"
#include "python/tensor_object.h"

namespace hyalite::python {

/// Whether an operator with `o` is for its class to compute, because it adds labels, masks, units or laziness to its
/// elements. It says so as NumPy asks: by an __array_ufunc__, and an __array_priority__ above an ndarray's.
bool has_own_rules(PyObject* o) noexcept;

/// What `x op y` is where one is a tensor and the other no operand of ours: the result by the other's own rules, which
/// see the tensor and, if they decline it, the same memory as an ndarray; NotImplemented where there are none. Throws
/// TypeError for numbers of classes without a dtype, which Python would call unequal to everything.
PyObject* by_other_rules(const OpInfo& op, PyObject* x, PyObject* y, bool in_place);

/// What a module that is already imported has by that name; null without an exception.
Owned loaded(const char* module, const char* name) noexcept;

/// Throws ValueError for a NumPy array with elements that are masked: a tensor would show what lies below.
void refuse_masked(PyObject* o, const char* op);

}  // namespace hyalite::python
