/// Along an axis, a tensor is `outer` pieces of `size` rows of `inner` contiguous elements.
#include "compute/cpu/indexing.h"

#include <cstring>
#include <vector>

#include "compute/blocking.h"
#include "compute/cpu/backend.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/threads.h"
#include "hyalite/error.h"
#include "ops/movement.h"

namespace hyalite::cpu {
namespace {

TensorRef dense(const TensorImpl& t, Dtype dtype) {
  if (t.contiguous() && t.dtype() == dtype) return TensorRef::share(const_cast<TensorImpl*>(&t));
  TensorRef r = TensorImpl::empty(dtype, t.shape());
  backend().copy(t, *r);
  return r;
}

/// Indices as int64 in [0, size). Throws for the first that is out of range.
std::vector<std::int64_t> checked_indices(const TensorImpl& indices, std::int64_t axis, std::int64_t size,
                                          const char* op) {
  const TensorRef wide = dense(indices, Dtype::int64);
  const auto* p = reinterpret_cast<const std::int64_t*>(wide->data());
  std::vector<std::int64_t> r(p, p + indices.numel());
  const bool is_unsigned = is_unsigned_integer(indices.dtype());
  for (std::int64_t& i : r) {
    const std::int64_t given = i;
    if (i < 0 && !is_unsigned) i += size;
    if (i >= 0 && i < size) continue;
    throw IndexError(std::string(op) + "(): index " + std::to_string(given) + " is out of range for axis " +
                         std::to_string(axis) + " of size " + std::to_string(size),
                     {{"index", given}, {"axis", axis}, {"size", size}});
  }
  return r;
}

struct Pieces {
  std::int64_t outer = 1, inner = 1;
};
Pieces pieces(Dims shape, int axis, int span = 1) {
  Pieces p;
  for (int i = 0; i < axis; ++i) p.outer *= shape[i];
  for (int i = axis + span; i < static_cast<int>(shape.size()); ++i) p.inner *= shape[i];
  return p;
}

}  // namespace

void take(const TensorImpl& x, const TensorImpl& indices, std::int64_t axis_given, TensorImpl& out) {
  const int axis = normalize_axis(axis_given, x.ndim(), "take");
  const std::int64_t size = x.shape()[axis];
  const std::vector<std::int64_t> at = checked_indices(indices, axis, size, "take");
  if (out.numel() == 0) return;
  const Pieces p = pieces(x.shape(), axis);
  // A strided source of few rows is cheaper read row by row, but rows must be contiguous.
  const TensorRef source = dense(x, x.dtype());
  const std::int64_t bytes = p.inner * static_cast<std::int64_t>(itemsize(x.dtype()));
  const auto count = static_cast<std::int64_t>(at.size());
  auto rows = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      const std::int64_t o = k / count, i = at[static_cast<std::size_t>(k % count)];
      std::memcpy(out.data() + k * bytes, source->data() + (o * size + i) * bytes, static_cast<std::size_t>(bytes));
    }
  };
  if (out.nbytes() > (256 << 10)) {
    const Blocking released;
    parallel_for(p.outer * count, rows);
  } else {
    rows(0, p.outer * count);
  }
}

void scatter_add(const TensorImpl& x, const TensorImpl& indices, std::int64_t axis_given, TensorImpl& out) {
  const int axis = static_cast<int>(axis_given);
  const std::int64_t size = out.shape()[axis];
  const std::vector<std::int64_t> at = checked_indices(indices, axis, size, "scatter_add");
  // float16 and bfloat16 accumulate in float32 and round once.
  const bool half = out.dtype() == Dtype::float16 || out.dtype() == Dtype::bfloat16;
  const Dtype dtype = half ? Dtype::float32 : out.dtype();
  const TensorRef source = dense(x, dtype);
  const TensorRef sum = half ? TensorImpl::empty(dtype, out.shape()) : TensorRef::share(&out);
  if (sum->numel() == 0) return;
  alignas(16) std::byte nothing[16] = {};
  encode_scalar(Scalar(std::complex<double>(-0.0, -0.0)), dtype, nothing);
  backend().fill(*sum, nothing);
  const Pieces p = pieces(out.shape(), axis);
  const std::int64_t bytes = p.inner * static_cast<std::int64_t>(itemsize(dtype));
  const ElementwiseFn add = kernels().forward[find_op("add").elementwise][static_cast<std::size_t>(dtype)];
  const auto count = static_cast<std::int64_t>(at.size());
  for (std::int64_t o = 0; o < p.outer && bytes > 0; ++o) {
    for (std::int64_t k = 0; k < count; ++k) {
      std::byte* to = sum->data() + (o * size + at[static_cast<std::size_t>(k)]) * bytes;
      const void* in[] = {to, source->data() + (o * count + k) * bytes};
      void* result[] = {to};
      add(in, result, static_cast<std::size_t>(p.inner), nullptr, false);
    }
  }
  if (half) backend().copy(*sum, out);
}

void concat(const Call& call, TensorImpl& out) {
  const std::optional<std::int64_t> given = call.attributes<ConcatBackward::Attr>().axis;
  std::int64_t at = 0;
  for (std::size_t i = 0; !given && i < call.in.size(); ++i) {
    const TensorImpl& x = call.x(static_cast<int>(i));
    const TensorRef part = TensorImpl::make(out.dtype(), out.device(), x.shape(), row_major(x.shape()),
                                            out.storage_ref(), out.offset() + at);
    copy_elements(x, *part);
    at += x.numel();
  }
  if (!given) return;
  const int axis = normalize_axis(*given, out.ndim(), "concat");
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const TensorImpl& x = call.x(static_cast<int>(i));
    const TensorRef part = TensorImpl::make(out.dtype(), out.device(), x.shape(), out.strides(), out.storage_ref(),
                                            out.offset() + at * out.strides()[axis]);
    copy_elements(x, *part);
    at += x.shape()[axis];
  }
}

}  // namespace hyalite::cpu
