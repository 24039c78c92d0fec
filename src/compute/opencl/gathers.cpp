/// Elements by index. A wrong index sets the error word, and is said when somebody waits.
#include <algorithm>

#include "compute/lazy/running.h"
#include "compute/opencl/kernels.h"
#include "compute/opencl/primitives.h"
#include "ops/indexing.h"

namespace hyalite::opencl {
namespace {

/// C's text of an index that is checked: a wrong one sets the error word and becomes 0.
constexpr const char* checked_index = R"(
    long k = given;
    if (k < 0 && from_end) k += size;
    if (k < 0 || k >= size) {
      if (atomic_cmpxchg((volatile __global int*)error, 0, site) == 0) error[1] = given;
      k = 0;
    }
)";

int index_site(ClDevice& d, std::int64_t axis, std::int64_t size, bool is_unsigned, std::string caller) {
  const std::string line = lazy::running_line();
  return d.add_site([=](std::int64_t given) {
    const std::string text = is_unsigned ? std::to_string(static_cast<std::uint64_t>(given)) : std::to_string(given);
    const IndexError e = index_error(text, given, axis, size, caller.c_str());
    if (line.empty()) throw e;
    Error::Attributes attributes = e.attributes();
    attributes.emplace_back("line", line);
    throw IndexError(std::string(e.what()) + " (" + line + ")", attributes);
  });
}

struct Pieces {
  std::int64_t outer = 1, inner = 1;
};
Pieces pieces(Dims shape, int axis) {
  Pieces p;
  for (int i = 0; i < axis; ++i) p.outer *= shape[static_cast<std::size_t>(i)];
  for (int i = axis + 1; i < static_cast<int>(shape.size()); ++i) p.inner *= shape[static_cast<std::size_t>(i)];
  return p;
}

const char* word_of(std::size_t bytes) {
  return bytes == 1 ? "uchar" : bytes == 2 ? "ushort" : bytes == 4 ? "uint" : bytes == 8 ? "ulong" : "ulong2";
}

}  // namespace

Outputs take(ClDevice& d, const Validated& v, TensorImpl* target) {
  const Call& c = v.call();
  const TensorImpl &x = c.x(0), &indices = c.x(1);
  const int axis = normalize_axis(c.attributes<TakeBackward::Attr>().axis, x.ndim(), c.op.name().data());
  const std::int64_t size = x.shape()[static_cast<std::size_t>(axis)];
  Outputs o = outputs(d, v, target);
  const TensorRef from = dense(d, x, x.dtype()), at = dense(d, indices, indices.dtype()), out = dense_result(d, *o[0]);
  const Pieces p = pieces(x.shape(), axis);
  const std::string T = word_of(itemsize(x.dtype()));
  // Indices are looked at even where nothing is taken.
  const std::int64_t items = std::max(out->numel(), indices.numel());
  const std::string body =
      "__kernel void hyalite_take(long count, long indices, long inner, long size, int from_end, int site, __global "
      "const " +
      T + "* x, __global const " + stored_type(indices.dtype()) + "* at, __global " + T +
      "* out, volatile __global long* error) {\n  const long all = max(count, indices);\n"
      "  for (long i = get_global_id(0); i < all; i += get_global_size(0)) {\n"
      "    const long l = inner == 0 ? i : i / inner, j = i - l * inner, o = l / indices;\n"
      "    const long given = (long)at[l - o * indices];" +
      checked_index + "    if (i < count) out[i] = x[(o * size + k) * inner + j];\n  }\n}\n";
  const bool is_unsigned = is_unsigned_integer(indices.dtype());
  const int site = index_site(d, axis, size, is_unsigned, "take(): ");
  if (indices.numel() != 0) {
    launch(d, body, "hyalite_take",
           {scalar(out->numel()), scalar(indices.numel()), scalar(p.inner), scalar(size), scalar(is_unsigned ? 0 : 1),
            scalar(site), memory_of(*from), memory_of(*at), memory_of(*out), d.error_word()},
           items);
  }
  put(d, out, *o[0]);
  return o;
}

/// Each item goes along the indices for one column of the result: equal indices are added in their order.
Outputs scatter_add(ClDevice& d, const Validated& v, TensorImpl* target) {
  const Call& c = v.call();
  const TensorImpl &x = c.x(0), &indices = c.x(1);
  Outputs o = outputs(d, v, target);
  TensorImpl& result = *o[0];
  const int axis = static_cast<int>(c.attributes<ScatterAddBackward::Attr>().axis);
  const std::int64_t size = result.shape()[static_cast<std::size_t>(axis)];
  const Dtype wide = computed_in(result.dtype());
  const TensorRef from = dense(d, x, wide), at = dense(d, indices, indices.dtype());
  TensorRef sum =
      wide == result.dtype() ? dense_result(d, result) : make(d, wide, result.shape(), row_major(result.shape()));
  std::byte nothing[16] = {};
  encode_scalar(Scalar(std::complex<double>(-0.0, -0.0)), wide, nothing);
  fill(d, *sum, nothing);
  const Pieces p = pieces(result.shape(), axis);
  const std::string T = value_type(wide);
  const std::string body =
      "__kernel void hyalite_scatter_add(long count, long indices, long inner, long size, int from_end, int site, "
      "__global const " +
      T + "* x, __global const " + stored_type(indices.dtype()) + "* at, __global " + T +
      "* out, volatile __global long* error) {\n"
      "  for (long i = get_global_id(0); i < count; i += get_global_size(0)) {\n"
      "    const long o = i / inner, j = i - o * inner;\n    for (long q = 0; q < indices; ++q) {\n"
      "    const long given = (long)at[q];" +
      checked_index + "    out[(o * size + k) * inner + j] += x[(o * indices + q) * inner + j];\n    }\n  }\n}\n";
  const bool is_unsigned = is_unsigned_integer(indices.dtype());
  const int site = index_site(d, axis, size, is_unsigned, "scatter_add(): ");
  if (p.outer * p.inner != 0) {
    launch(
        d, body, "hyalite_scatter_add",
        {scalar(p.outer * p.inner), scalar(indices.numel()), scalar(p.inner), scalar(size), scalar(is_unsigned ? 0 : 1),
         scalar(site), memory_of(*from), memory_of(*at), memory_of(*sum), d.error_word()},
        p.outer * p.inner);
  }
  put(d, sum, result);
  return o;
}

Outputs positions(ClDevice& d, const Validated& v, TensorImpl* target) {
  const Call& c = v.call();
  const TensorImpl& indices = c.x(0);
  const auto& a = c.attributes<PositionsBackward::Attr>();
  Outputs o = outputs(d, v, target);
  const TensorRef at = dense(d, indices, indices.dtype()), out = dense_result(d, *o[0]);
  const std::string body =
      "__kernel void hyalite_positions(long count, long size, int from_end, int site, __global const " +
      stored_type(indices.dtype()) +
      "* at, __global long* out, volatile __global long* error) {\n"
      "  for (long i = get_global_id(0); i < count; i += get_global_size(0)) {\n"
      "    const long given = (long)at[i];" +
      checked_index + "    out[i] = k;\n  }\n}\n";
  const bool is_unsigned = is_unsigned_integer(indices.dtype());
  const int site = index_site(d, a.axis, a.size, is_unsigned, "");
  launch(d, body, "hyalite_positions",
         {scalar(out->numel()), scalar(std::int64_t{a.size}), scalar(is_unsigned ? 0 : 1), scalar(site), memory_of(*at),
          memory_of(*out), d.error_word()},
         out->numel());
  put(d, out, *o[0]);
  return o;
}

/// One item goes along the mask.
Outputs true_positions(ClDevice& d, const Validated& v, TensorImpl* target) {
  Outputs o = outputs(d, v, target);
  const TensorRef mask = dense(d, v.call().x(0), Dtype::boolean), out = dense_result(d, *o[0]);
  static const std::string body = R"(__kernel void hyalite_true_positions(long n, long room, __global const uchar* x,
                                     __global long* out) {
  if (get_global_id(0) != 0) return;
  long found = 0;
  for (long i = 0; i < n && found < room; ++i) {
    if (x[i] != 0) out[found++] = i;
  }
  for (; found < room; ++found) out[found] = 0;
}
)";
  launch(d, body, "hyalite_true_positions",
         {scalar(mask->numel()), scalar(out->numel()), memory_of(*mask), memory_of(*out)}, 1, 0);
  put(d, out, *o[0]);
  return o;
}

Outputs last_writers(ClDevice& d, const Validated& v, TensorImpl* target) {
  Outputs o = outputs(d, v, target);
  const TensorRef places = dense(d, v.call().x(0), Dtype::int64);
  const TensorRef written = dense_result(d, *o[0]), source = dense_result(d, *o[1]);
  static const std::string body =
      std::string(R"(__kernel void hyalite_last_writers(long n, long size, int site, __global const long* at,
                                   __global uchar* written, __global long* source, volatile __global long* error) {
  if (get_global_id(0) != 0) return;
  const int from_end = 0;
  for (long i = 0; i < size; ++i) written[i] = source[i] = 0;
  for (long i = 0; i < n; ++i) {
    const long given = at[i];)") +
      checked_index + "    written[k] = 1;\n    source[k] = i;\n  }\n}\n";
  const int site = index_site(d, 0, o[0]->numel(), false, "");
  if (o[0]->numel() != 0) {
    launch(d, body, "hyalite_last_writers",
           {scalar(places->numel()), scalar(o[0]->numel()), scalar(site), memory_of(*places), memory_of(*written),
            memory_of(*source), d.error_word()},
           1, 0);
  }
  put(d, written, *o[0]);
  put(d, source, *o[1]);
  return o;
}

}  // namespace hyalite::opencl
