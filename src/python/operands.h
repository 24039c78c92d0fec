/// `unwrap_or_scalar` and `maybe_promote`: from Python's arguments to the operands an op wants.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "apply.h"
#include "python/tensor_object.h"
#include "tensor/small_vector.h"

namespace hyalite::python {

/// A Python argument taken apart: a tensor, or a weak scalar.
struct Unwrapped {
  TensorImpl* tensor = nullptr;
  TensorRef owned;  ///< when the tensor was made here, from a NumPy array
  Scalar scalar;
  int beyond = 0;              ///< the sign of an int outside 64 bits; `scalar` then holds the nearest that fits
  PyObject* object = nullptr;  ///< borrowed
  bool none = false;
};

using Arguments = SmallVector<Unwrapped, 3>;
using Operands = SmallVector<Operand, 3>;

/// False if the object is neither (no exception set). An operator `defers` to what has rules of its own, then false
/// too.
bool unwrap_or_scalar(PyObject* o, Unwrapped& to, bool defers = false);

/// A Python float or int as an operand beside a tensor of `dtype`, where nothing is to be decided: false where it is.
bool plain_number(const OpInfo& op, PyObject* o, Dtype dtype, Operand& to);

/// What is called for an op of these operands.
struct Simplified {
  const OpInfo& op;
  std::span<const Operand> in;
};
/// x ** 2 of reals as `square`: correctly rounded, and one multiplication.
Simplified with_two(const OpInfo& op, std::span<const Operand> in);
inline Simplified simplified(const OpInfo& op, std::span<const Operand> in) {
  if (!op.schema.with_two.empty()) [[unlikely]]
    return with_two(op, in);
  return {op, in};
}

/// For the trace: dtype, shape and device of a tensor, or the number as Python writes it.
std::string described(const Unwrapped& u);

/// The number as the dtype takes it: a float dtype rounds an int of any size once. Throws OverflowError for an int
/// outside an integer dtype.
Scalar number_in(std::string_view op, const Unwrapped& u, Dtype dtype);
/// The same as a tensor without dimensions.
TensorRef number_tensor(std::string_view op, const Unwrapped& u, Dtype dtype, Device device = {});
/// The dtype of the number alone: int64, or uint64 where only that holds it. Throws OverflowError beyond both.
Dtype number_dtype(std::string_view op, const Unwrapped& u);

/// A comparison of two numbers, exact as Python makes it; empty for an op that is none, or that complex numbers lack.
std::optional<bool> compare_numbers(const OpInfo& op, std::span<const Unwrapped> args);
/// Throws OverflowError where an op of only integers has an exact result that its dtype does not hold.
void check_exact(const OpInfo& op, std::span<const Unwrapped> args, std::span<const TensorRef> results);

/// What was done to align dtypes, for the trace.
struct Promotion {
  Dtype dtype = Dtype::float32;
  bool cast = false;
  bool by_autocast = false;
};

/// Operands in the dtypes the op wants; owns what it had to make.
class Aligned {
 public:
  /// Aligns dtypes by the rules of semantics. Throws DtypeMismatch where there is no common dtype, OverflowError for an
  /// int that does not fit.
  Aligned(const OpInfo& op, Arguments&& args);
  std::span<const Operand> operands() const { return {operands_.data(), operands_.size()}; }
  const Promotion& promotion() const { return promotion_; }
  const Arguments& arguments() const { return args_; }
  /// No operand was a tensor.
  bool only_numbers() const { return only_numbers_; }

 private:
  void make_first(const OpInfo& op, std::size_t first);
  void keep_first(const OpInfo& op, Arguments& args);
  void all_real(const OpInfo& op, Dtype dtype);
  void compare_mixed(const OpInfo& op, Arguments& args);
  void add(TensorImpl* t, Dtype dtype);
  void add(const OpInfo& op, const Unwrapped& u, Dtype dtype);
  Operands operands_;
  SmallVector<TensorRef, 3> keep_;
  Arguments args_;
  Promotion promotion_;
  bool only_numbers_ = false;
};

}  // namespace hyalite::python
