/// Along an axis, a tensor is `outer` pieces of `size` rows of `inner` contiguous elements.
#include "compute/cpu/indexing.h"

#include <algorithm>
#include <cstring>

#include "compute/blocking.h"
#include "compute/cpu/backend.h"
#include "compute/cpu/cast.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/operands.h"
#include "compute/cpu/threads.h"
#include "ops/indexing.h"
#include "ops/movement.h"
#include "tensor/small_vector.h"

namespace hyalite::cpu {
namespace {

/// Indices along an axis, as int64 in [0, size).
using Places = SmallVector<std::int64_t, 512>;

/// Reads the indices once, so that no other thread can change what was checked. Throws for the first that is out of
/// range; the message begins with `caller`.
void read_places(const TensorImpl& indices, std::int64_t axis, std::int64_t size, const char* caller,
                 std::int64_t* to) {
  const auto n = static_cast<std::size_t>(indices.numel());
  const TensorRef source = dense(indices, indices.dtype());
  cast(kernels().cast, indices.dtype(), source->address(), Dtype::int64, to, n);
  const bool is_unsigned = is_unsigned_integer(indices.dtype());
  const std::int64_t from_end = is_unsigned ? 0 : size;
  const auto end = static_cast<std::uint64_t>(size);
  bool outside = false;
  for (std::size_t k = 0; k < n; ++k) {
    to[k] += to[k] < 0 ? from_end : 0;
    outside |= static_cast<std::uint64_t>(to[k]) >= end;
  }
  for (std::size_t k = 0; outside && k < n; ++k) {
    if (static_cast<std::uint64_t>(to[k]) < end) continue;
    const std::int64_t given = to[k] < 0 ? to[k] - from_end : to[k];
    const auto as_unsigned = static_cast<std::uint64_t>(given);
    throw index_error(is_unsigned ? std::to_string(as_unsigned) : std::to_string(given), given, axis, size, caller);
  }
}

Places places(const TensorImpl& indices, std::int64_t axis, std::int64_t size, const char* caller) {
  Places r(static_cast<std::size_t>(indices.numel()));
  read_places(indices, axis, size, caller, r.data());
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
  const Places at = places(indices, axis, size, "take(): ");
  if (out.numel() == 0) return;
  const Pieces p = pieces(x.shape(), axis);
  // A strided source of few rows is cheaper read row by row, but rows must be contiguous.
  const TensorRef source = dense(x, x.dtype());
  const std::int64_t bytes = p.inner * static_cast<std::int64_t>(itemsize(x.dtype()));
  const auto count = static_cast<std::int64_t>(at.size());
  // Rows of a size known when this is compiled are moved without a call.
  const auto copy = [&](auto row_bytes, std::int64_t begin, std::int64_t end) {
    const std::int64_t* places = at.data();
    const auto step = static_cast<std::int64_t>(std::size_t{row_bytes});
    const std::byte* from = source->address() + begin / count * size * step;
    std::byte* to = out.address() + begin * step;
    for (std::int64_t row = begin, k = begin % count; row < end; k = 0, from += size * step) {
      const std::int64_t last = std::min(count, k + end - row);
      row += last - k;
      for (; k < last; ++k, to += step) std::memcpy(to, from + places[k] * step, row_bytes);
    }
  };
  const auto rows = [&](std::int64_t begin, std::int64_t end) {
    using std::integral_constant;
    bytes == 4    ? copy(integral_constant<std::size_t, 4>(), begin, end)
    : bytes == 8  ? copy(integral_constant<std::size_t, 8>(), begin, end)
    : bytes == 1  ? copy(integral_constant<std::size_t, 1>(), begin, end)
    : bytes == 2  ? copy(integral_constant<std::size_t, 2>(), begin, end)
    : bytes == 16 ? copy(integral_constant<std::size_t, 16>(), begin, end)
                  : copy(static_cast<std::size_t>(bytes), begin, end);
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
  const Places at = places(indices, axis, size, "scatter_add(): ");
  // float16 and bfloat16 accumulate in float32 and round once.
  const bool half = out.dtype() == Dtype::float16 || out.dtype() == Dtype::bfloat16;
  const Dtype dtype = half ? Dtype::float32 : out.dtype();
  const TensorRef source = dense(x, dtype);
  const TensorRef sum = half ? backend().empty(dtype, out.shape()) : TensorRef::share(&out);
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
      std::byte* to = sum->address() + (o * size + at[static_cast<std::size_t>(k)]) * bytes;
      const void* in[] = {to, source->address() + (o * count + k) * bytes};
      void* result[] = {to};
      add(in, result, static_cast<std::size_t>(p.inner), nullptr, false);
    }
  }
  if (half) backend().copy(*sum, out);
}

void positions(const Call& c, TensorImpl& out) {
  const auto& a = c.attributes<PositionsBackward::Attr>();
  read_places(c.x(0), a.axis, a.size, "", reinterpret_cast<std::int64_t*>(out.address()));
}

void true_positions(const Call& c, TensorImpl& out) {
  const TensorRef mask = dense(c.x(0), Dtype::boolean);
  const auto* p = reinterpret_cast<const std::uint8_t*>(mask->address());
  auto* to = reinterpret_cast<std::int64_t*>(out.address());
  // Another thread may have written the mask since it was counted.
  std::int64_t i = 0, found = 0;
  for (; i < mask->numel() && found < out.numel(); ++i) {
    if (p[i] != 0) to[found++] = i;
  }
  std::fill(to + found, to + out.numel(), std::int64_t{0});
}

void last_writers(const Call& c, const Outputs& o) {
  const TensorRef places = dense(c.x(0), Dtype::int64);
  const auto* at = reinterpret_cast<const std::int64_t*>(places->address());
  const std::int64_t size = o[0]->numel();
  auto* written = reinterpret_cast<std::uint8_t*>(o[0]->address());
  auto* source = reinterpret_cast<std::int64_t*>(o[1]->address());
  std::fill_n(written, size, std::uint8_t{0});
  std::fill_n(source, size, std::int64_t{0});
  for (std::int64_t i = 0; i < places->numel(); ++i) {
    if (at[i] < 0 || at[i] >= size) throw index_error(std::to_string(at[i]), at[i], 0, size);
    written[at[i]] = 1;
    source[at[i]] = i;
  }
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
