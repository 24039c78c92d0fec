/// The list of ops that are no formula, and those that only move or make elements.
#include "compute/opencl/primitives.h"

#include <algorithm>
#include <cstring>

#include "compute/opencl/kernels.h"
#include "compute/opencl/reductions.h"
#include "ops/creation.h"
#include "ops/movement.h"

namespace hyalite::opencl {
namespace {

using lazy::NodeKind;

Outputs concat(ClDevice& d, const Validated& v, TensorImpl* target) {
  const Call& c = v.call();
  Outputs o = outputs(d, v, target);
  TensorImpl& out = *o[0];
  const std::optional<std::int64_t> given = c.attributes<ConcatBackward::Attr>().axis;
  const TensorRef whole = given ? TensorRef::share(&out) : dense_result(d, out);
  const int axis = given ? normalize_axis(*given, out.ndim(), "concat") : 0;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    const TensorImpl& x = c.x(static_cast<int>(i));
    const std::int64_t step = given ? whole->strides()[static_cast<std::size_t>(axis)] : 1;
    const TensorRef part =
        TensorImpl::make(out.dtype(), {}, x.shape(), given ? DimList(whole->strides()) : row_major(x.shape()),
                         whole->storage_ref(), whole->offset() + at * step);
    convert(d, x, *part);
    at += given ? x.shape()[static_cast<std::size_t>(axis)] : x.numel();
  }
  if (!given) put(d, whole, out);
  return o;
}

Outputs conversion(ClDevice& d, const Validated& v, TensorImpl* target) {
  Outputs o = outputs(d, v, target);
  convert(d, v.call().x(0), *o[0]);
  return o;
}

Outputs leave_empty(ClDevice& d, const Validated& v, TensorImpl* target) { return outputs(d, v, target); }

/// Constants are written by the CPU, and brought here.
Outputs constant(ClDevice& d, const Validated& v, TensorImpl* target) {
  Outputs o = outputs(d, v, target);
  const Call& c = v.call();
  if (const auto* full = c.attrs->get_if<FullBackward::Attr>()) {
    std::byte bytes[16] = {};
    encode_scalar(full->value, o[0]->dtype(), bytes);
    fill(d, *o[0], bytes);
    return o;
  }
  const TensorRef there = at_once({}).empty(o[0]->dtype(), o[0]->shape());
  at_once({}).run[static_cast<std::size_t>(c.op.index)](v, there.get(), nullptr);
  const TensorRef out = dense_result(d, *o[0]);
  d.upload(there->address(), *out->storage(), static_cast<std::size_t>(there->nbytes()));
  put(d, out, *o[0]);
  return o;
}

constexpr std::array<Named, primitive_count> entries{{
    {"sum", reduce<Fold::sum>, Fold::sum},
    {"prod", reduce<Fold::prod>, Fold::prod},
    {"mean", reduce<Fold::mean>, Fold::mean},
    {"max", reduce<Fold::max>, Fold::max},
    {"min", reduce<Fold::min>, Fold::min},
    {"any", reduce<Fold::any>, Fold::any},
    {"all", reduce<Fold::all>, Fold::all},
    {"argmax", reduce<Fold::argmax>},
    {"argmin", reduce<Fold::argmin>},
    {"astype", conversion},
    {"contiguous", conversion},
    {"matmul", matmul},
    {"concat", concat},
    {"others", others},
    {"take", take},
    {"scatter_add", scatter_add},
    {"positions", positions},
    {"true_positions", true_positions},
    {"last_writers", last_writers},
    {"empty", leave_empty},
    {"full", constant},
    {"arange", constant},
    {"linspace", constant},
    {"eye", constant},
}};

}  // namespace

std::span<const Named, primitive_count> primitives() { return entries; }

std::optional<Fold> fold_of(std::string_view op) {
  const auto* at = std::ranges::find(entries, op, &Named::op);
  return at == entries.end() ? std::nullopt : at->folds;
}

Outputs run_elementwise(ClDevice& d, const Validated& v, TensorImpl* target) {
  const Call& c = v.call();
  Outputs o = outputs(d, v, target);
  const lazy::NodeRef n = lazy::Node::make(NodeKind::call);
  n->op = &c.op;
  n->attrs = AttrRef::share(c.attrs);
  n->computed = v.dtype();
  n->real_operand = static_cast<std::int8_t>(v.real_operand());
  n->mixed = v.mixed();
  n->in.resize(c.in.size());
  std::vector<const TensorImpl*> in;
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    if (c.in[i].tensor == nullptr) {
      n->in[i].is_number = true;
      n->in[i].number = c.in[i];
    } else {
      in.push_back(c.in[i].tensor);
    }
  }
  if (c.op.schema.check == Check::integer_exponent && is_signed_integer(v.dtype())) {
    const auto raise = [](std::int64_t least) {
      throw ValueError("pow(): an integer to the negative power " + std::to_string(least) +
                           " is no integer; write x.astype(hl.float32) ** y",
                       {{"op", std::string("pow")}, {"exponent", least}});
    };
    if (c.in[1].tensor == nullptr) {
      if (c.in[1].scalar.integer < 0) raise(c.in[1].scalar.integer);
    } else {
      const TensorRef y = dense(d, *c.in[1].tensor, Dtype::int64);
      static const std::string body = R"(__kernel void hyalite_exponents(long count, int site, __global const long* y,
                                volatile __global long* error) {
  for (long i = get_global_id(0); i < count; i += get_global_size(0)) {
    if (y[i] < 0 && atomic_cmpxchg((volatile __global int*)error, 0, site) == 0) error[1] = y[i];
  }
}
)";
      launch(d, body, "hyalite_exponents",
             {scalar(y->numel()), scalar(d.add_site(raise)), memory_of(*y), d.error_word()}, y->numel());
    }
  }
  if (o[0]->numel() != 0) run_node(d, n, in, v.shape(), o);
  return o;
}

}  // namespace hyalite::opencl
