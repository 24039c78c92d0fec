/// Axes that are one in memory are one in the walk.
#include "compute/cpu/fused_walk.h"

#include "compute/cpu/operands.h"

namespace hyalite::cpu {

using lazy::Pass;

Walk walk_of(const TensorImpl& t, const Pass& pass) {
  Walk w;
  w.size = static_cast<std::int64_t>(itemsize(t.dtype()));
  ByteStrides strides;
  byte_strides(t, pass.shape, strides);
  const int n = pass.shape.size();
  for (int i = n - 1; i >= pass.split; --i) {
    if (pass.shape[i] == 1) continue;
    w.inner = strides[static_cast<std::size_t>(i)];
    break;
  }
  for (int i = 0; i < pass.split; ++i) {
    const std::int64_t size = pass.shape[i], stride = strides[static_cast<std::size_t>(i)];
    if (size == 1) continue;
    if (!w.sizes.empty() && w.strides.back() == stride * size) {
      w.sizes.back() *= size;
      w.strides.back() = stride;
    } else {
      w.sizes.push_back(size);
      w.strides.push_back(stride);
    }
  }
  return w;
}

}  // namespace hyalite::cpu
