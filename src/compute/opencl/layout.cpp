/// Axes that are one in every operand become one.
#include "compute/opencl/layout.h"

#include <algorithm>

namespace hyalite::opencl {

Layout::Layout(Dims shape, const std::vector<const TensorImpl*>& operands) {
  const int n = static_cast<int>(shape.size());
  std::vector<std::vector<std::int64_t>> strides;  // by axis that is left, of all operands
  for (const TensorImpl* t : operands) operands_.push_back({t->offset(), {}, false, false});
  for (int d = 0; d < n; ++d) {
    const std::int64_t size = shape[static_cast<std::size_t>(d)];
    count_ *= size;
    if (size == 1) continue;
    std::vector<std::int64_t> now;
    for (const TensorImpl* t : operands) {
      const int own = d - (n - t->ndim());
      const bool repeats = own < 0 || t->shape()[static_cast<std::size_t>(own)] == 1;
      now.push_back(repeats ? 0 : t->strides()[static_cast<std::size_t>(own)]);
    }
    bool joins = !sizes_.empty();
    for (std::size_t k = 0; joins && k < now.size(); ++k) joins = strides.back()[k] == now[k] * size;
    if (joins) {
      sizes_.back() *= size;
      strides.back() = std::move(now);
    } else {
      sizes_.push_back(size);
      strides.push_back(std::move(now));
    }
  }
  for (std::size_t k = 0; k < operands_.size(); ++k) {
    Lies& o = operands_[k];
    std::int64_t expected = 1;
    o.dense = o.single = true;
    for (std::size_t a = sizes_.size(); a-- > 0;) {
      o.dense = o.dense && strides[a][k] == expected;
      o.single = o.single && strides[a][k] == 0;
      expected *= sizes_[a];
    }
    for (std::size_t a = 0; a < sizes_.size(); ++a) o.strides.push_back(strides[a][k]);
    o.single = o.single && !o.dense;
  }
}

std::vector<std::int64_t> Layout::numbers() const {
  std::vector<std::int64_t> all = sizes_;
  for (const Lies& o : operands_) {
    all.push_back(o.offset);
    all.insert(all.end(), o.strides.begin(), o.strides.end());
  }
  return all;
}

std::string Layout::place(int k) const {
  const Lies& o = operands_[static_cast<std::size_t>(k)];
  const int first = axes() + k * (axes() + 1);
  const std::string offset = "m[" + std::to_string(first) + "]";
  if (o.dense) return offset + " + i";
  std::string s = offset;
  for (int a = 0; !o.single && a < axes(); ++a) {
    if (o.strides[static_cast<std::size_t>(a)] == 0) continue;
    s += " + c" + std::to_string(a) + " * m[" + std::to_string(first + 1 + a) + "]";
  }
  return s;
}

std::string Layout::coordinates(const std::string& indent) const {
  if (std::ranges::all_of(operands_, [](const Lies& o) { return o.dense || o.single; })) return "";
  std::string s;
  for (int a = axes() - 1; a >= 0; --a) {
    const std::string rest = a == axes() - 1 ? "i" : "r" + std::to_string(a + 1);
    const std::string size = "m[" + std::to_string(a) + "]";
    if (a > 0) {
      s += indent + "const long r" + std::to_string(a) + " = " + rest + " / " + size + ", c" + std::to_string(a) +
           " = " + rest + " - r" + std::to_string(a) + " * " + size + ";\n";
    } else {
      s += indent + "const long c0 = " + rest + ";\n";
    }
  }
  return s;
}

std::string Layout::coordinates(std::int64_t rows, std::int64_t cols, const std::string& row,
                                const std::string& col) const {
  const std::string general = coordinates("      ");
  if (general.empty() || sizes_ != std::vector{rows, cols}) return general;
  return "      const long c0 = " + row + ", c1 = " + col + ";\n";
}

}  // namespace hyalite::opencl
