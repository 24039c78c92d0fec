/// Strides, outputs and overlap of the CPU's operands.
#include "compute/cpu/operands.h"

#include "compute/cpu/backend.h"

namespace hyalite::cpu {

namespace {

template <class T>
void spread_few(std::byte* to, const std::byte* from, std::int64_t count, std::int64_t times) {
  T* out = reinterpret_cast<T*>(to);
  for (std::int64_t k = 0; k < count; ++k) {
    T value;
    std::memcpy(&value, from + k * static_cast<std::int64_t>(sizeof value), sizeof value);
    for (std::int64_t i = 0; i < times; ++i) *out++ = value;
  }
}

}  // namespace

void spread_elements(std::byte* to, const std::byte* from, std::size_t size, std::int64_t count, std::int64_t times) {
  constexpr std::int64_t few = 64;  // past that, copies of what is there already are faster
  if (times <= few && size == 4) return spread_few<std::uint32_t>(to, from, count, times);
  if (times <= few && size == 8) return spread_few<std::uint64_t>(to, from, count, times);
  const std::size_t all = static_cast<std::size_t>(times) * size;
  for (std::int64_t k = 0; k < count; ++k, to += all, from += size) {
    std::memcpy(to, from, size);
    repeat(to, size, all);
  }
}

void byte_strides(const TensorImpl& t, Dims shape, ByteStrides& to) {
  const std::int64_t size = static_cast<std::int64_t>(itemsize(t.dtype()));
  const int extra = static_cast<int>(shape.size()) - t.ndim();
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    const bool repeats = i < extra || (t.shape()[i - extra] == 1 && shape[i] != 1);
    to[i] = repeats ? 0 : t.strides()[i - extra] * size;
  }
}

LoopOperand stored(const TensorImpl& t, Dims shape, ByteStrides& strides) {
  byte_strides(t, shape, strides);
  return {t.address(), strides.data(), t.dtype(), t.dtype()};
}

LoopOperand operand(const TensorImpl& t, Dims shape, ByteStrides& strides) {
  byte_strides(t, shape, strides);
  return {t.address(), strides.data(), t.dtype(), computed(t.dtype())};
}

TensorRef output(const Validated& v, int k) {
  const Dtype dtype = v.out_dtype(k);
  if (v.like() != nullptr) return output_like(*v.like(), dtype);
  std::int64_t n = 1;  // which the guard has checked
  for (const std::int64_t size : v.shape(k)) n = wrapping_multiply(n, size);
  return TensorImpl::make(dtype, {}, v.shape(k), v.strides(k),
                          Storage::allocate(static_cast<std::size_t>(n) * itemsize(dtype)));
}

Outputs outputs(const Validated& v) {
  Outputs o;
  for (int k = 0; k < v.call().op.outputs; ++k) o.add(output(v, k));
  return o;
}

TensorRef copy_of(const TensorImpl& t, Dtype dtype) {
  TensorRef r = backend().empty(dtype, t.shape());
  backend().copy(t, *r);
  return r;
}

TensorRef dense(const TensorImpl& t, Dtype dtype) {
  if (t.contiguous() && t.dtype() == dtype) return TensorRef::share(const_cast<TensorImpl*>(&t));
  return copy_of(t, dtype);
}

namespace {

/// The bytes from the first to the last element of `t`.
std::pair<const std::byte*, const std::byte*> extent(const TensorImpl& t) {
  const std::int64_t size = static_cast<std::int64_t>(itemsize(t.dtype()));
  std::int64_t low = 0, high = size;
  for (int i = 0; i < t.ndim(); ++i) {
    const std::int64_t reach = (t.shape()[i] - 1) * t.strides()[i] * size;
    (reach < 0 ? low : high) += reach;
  }
  return {t.address() + low, t.address() + high};
}

}  // namespace

bool share_memory(const TensorImpl& a, const TensorImpl& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const auto [a0, a1] = extent(a);
  const auto [b0, b1] = extent(b);
  return a0 < b1 && b0 < a1;
}

bool same_place(const TensorImpl& a, const TensorImpl& b) {
  return a.address() == b.address() && itemsize(a.dtype()) == itemsize(b.dtype()) && same_dims(a.shape(), b.shape()) &&
         same_dims(a.strides(), b.strides());
}

}  // namespace hyalite::cpu
