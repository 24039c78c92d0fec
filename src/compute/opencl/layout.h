/// Where the elements of operands lie, as kernels are told it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor_impl.h"

namespace hyalite::opencl {

/// A walk over a shape by several operands, with as few axes as can be.
class Layout {
 public:
  /// Operands are broadcast to the shape.
  Layout(Dims shape, const std::vector<const TensorImpl*>& operands);

  std::int64_t count() const { return count_; }
  int axes() const { return static_cast<int>(sizes_.size()); }
  /// The sizes of the axes, then of each operand its offset and its strides, in elements.
  std::vector<std::int64_t> numbers() const;

  /// C's text for the place of element `i` in operand k, with the numbers of a walk in `m`.
  std::string place(int k) const;
  /// Lines that give the coordinates of `i`; empty where no operand needs them.
  std::string coordinates(const std::string& indent = "    ") const;
  /// The same where the kernel knows `row` and `col`, coordinates of two sides of the shape, of these sizes.
  std::string coordinates(std::int64_t rows, std::int64_t cols, const std::string& row, const std::string& col) const;

 private:
  struct Lies {
    std::int64_t offset;
    std::vector<std::int64_t> strides;
    bool dense, single;
  };
  std::vector<std::int64_t> sizes_;
  std::vector<Lies> operands_;
  std::int64_t count_ = 1;
};

}  // namespace hyalite::opencl
