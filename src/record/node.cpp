/// Making nodes, saving what their gradients read, and freeing long graphs without deep recursion.
#include "record/node.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <new>
#include <numeric>

#include "apply.h"
#include "compute/backend.h"
#include "ops/movement.h"
#include "record/autograd_meta.h"
#include "tensor/context.h"

namespace hyalite {
namespace {

thread_local std::uint64_t next_sequence = 1;
// Nodes waiting to be freed while one is being freed: a chain of a million nodes must not recurse.
thread_local Node* doomed = nullptr;
thread_local bool freeing = false;

template <class T>
T* place() {
  return static_cast<T*>(pool::allocate(sizeof(T)).data);
}
template <class T>
constexpr std::size_t capacity_of = std::size_t{1} << (6 + pool::detail::small_class(sizeof(T)));

/// The axes of `t` from the slowest to the fastest in memory; empty when that is their own order.
Shape memory_order(const TensorImpl& t) {
  Shape order(t.contiguous() ? 0 : static_cast<std::size_t>(t.ndim()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{}, [&](std::int64_t i) { return std::abs(t.strides()[i]); });
  return std::ranges::is_sorted(order) ? Shape{} : order;
}

/// Whether kernels compute the dtype in float32 and round at the end.
bool is_narrow(Dtype t) { return t == Dtype::float16 || t == Dtype::bfloat16; }

/// Only its shape.
TensorRef shape_of(const TensorImpl& t) {
  return TensorImpl::make(t.dtype(), t.device(), t.shape(), row_major(t.shape()), {});
}

}  // namespace

Shape inverse(const Shape& order) {
  Shape r(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) r[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return r;
}

Node::Node() : sequence_(hyalite::next_sequence++) {}

std::uint64_t Node::next_sequence() noexcept { return hyalite::next_sequence; }

Node::~Node() {
  if (edges_ != inline_edges_) delete[] edges_;
  release_location(location_);
}

void Node::set_edge_count(int n) {
  edge_count_ = n;
  if (n > 2) edges_ = new Edge[n];
}

void Node::destroy() noexcept {
  if (freeing) {
    next_doomed_ = doomed;
    doomed = this;
    return;
  }
  freeing = true;
  deallocate();
  while (doomed != nullptr) {
    Node* n = doomed;
    doomed = n->next_doomed_;
    n->deallocate();
  }
  freeing = false;
}

OpNode::Kept& OpNode::kept() {
  static_assert(sizeof(Kept) <= pool::largest_small);
  if (kept_ == nullptr) kept_ = new (place<Kept>()) Kept();
  return *kept_;
}

void OpNode::drop_kept() noexcept {
  if (kept_ == nullptr) return;
  kept_->~Kept();
  pool::release(kept_, capacity_of<Kept>);
  kept_ = nullptr;
}

void OpNode::deallocate() noexcept {
  drop_kept();
  this->~OpNode();
  pool::release(this, capacity_of<OpNode>);
}

void OpNode::save(int leaf, const Operand& o, Device device, const Storage* written) {
  Saved& s = kept().saved[leaf];
  if (o.tensor == nullptr) {
    const Backend& b = for_device(context(), device);
    s.tensor = b.empty(o.dtype, {});
    b.fill(*s.tensor, o.bytes.data());
    return;
  }
  Storage& storage = *o.tensor->storage();
  // What is about to be written, and what others may write without a version, is kept as it is now.
  if (&storage == written || storage.exposed()) {
    s = {clone(*o.tensor), 0, Saved::How::copy};
    return;
  }
  s = {detached(*o.tensor), storage.version(), Saved::How::alias};
  storage.mark_saved();
}

Ref<OpNode> OpNode::make(const Call& c, std::span<TensorImpl* const> outputs, Dtype computed, Writing writing) {
  static_assert(sizeof(OpNode) <= pool::largest_small);
  OpNode* n = new (place<OpNode>()) OpNode();
  Ref<OpNode> node = Ref<OpNode>::adopt(n);
  n->op_ = &c.op;
  n->computed_ = computed;
  n->location_ = capture_location();
  n->attrs_ = AttrRef::share(c.attrs);
  const int count = static_cast<int>(c.in.size());
  n->set_edge_count(count);
  std::uint32_t reads = 0;
  const Dims shape = outputs[0]->shape();
  for (int i = 0; i < count; ++i) {
    TensorImpl* t = c.in[i].tensor;
    const Dtype mine = t != nullptr ? t->dtype() : c.in[i].dtype;
    // Of constants too: the fused gradient takes operands of one dtype.
    if (c.op.schema.real_with_complex && is_complex(computed) && !is_complex(mine)) {
      n->real_operands_ |= static_cast<std::uint8_t>(1 << i);
    }
    const bool through = (writing.through >> (i & 63) & 1) != 0;
    if (t == nullptr || !(through || wants_grad(*t))) continue;
    if (c.op.schema.variadic) {
      n->next()[i] = gradient_edge(*t);
      continue;
    }
    if (!c.op.reads[i].exists) continue;
    if (!through) n->next()[i] = gradient_edge(*t);
    reads |= gradient_reads(c.op)[static_cast<std::size_t>(i)].reads;
    if (c.op.elementwise < 0 || same_dims(t->shape(), shape)) continue;
    n->kept().reduce_to[i] = shape_of(*t);
    n->kept().result = shape_of(*outputs[0]);
  }
  if (c.op.schema.variadic) {
    for (const Operand& o : c.in) n->kept().list.push_back({shape_of(*o.tensor), 0, Saved::How::shape});
    return node;
  }
  // A 16-bit result has been rounded: a gradient that reads it computes it again, in float32.
  const std::uint32_t operands = ((std::uint32_t{1} << count) - 1) << 1, results = reads & ~(operands | 1);
  if (c.op.elementwise >= 0 && is_narrow(computed) && c.op.outputs == 1 && results != 0) {
    reads = (reads & ~results) | operands;
  }
  for (int i = 0; i < count; ++i) {
    if ((reads >> (1 + i) & 1) != 0) {
      n->save(1 + i, c.in[i], outputs[0]->device(), writing.memory);
    } else if (c.op.needs_shapes) {
      n->kept().saved[1 + i] = {shape_of(*c.in[i].tensor), 0, Saved::How::shape};
    }
  }
  for (int k = 0; k < c.op.outputs; ++k) {
    const int leaf = 1 + count + k;
    if ((reads >> leaf & 1) != 0) {
      Storage& storage = *outputs[k]->storage();
      const bool writes = &storage == writing.memory;
      if (writes && storage.exposed()) {
        const Backend& b = for_device(context(), outputs[k]->device());
        n->kept().saved[leaf] = {b.empty(outputs[k]->dtype(), shape), 0, Saved::How::copy};
      } else {
        // A write counts once more before anybody can read it.
        n->kept().saved[leaf] = {detached(*outputs[k]), storage.version() + writes, Saved::How::alias};
        storage.mark_saved();
      }
    } else if (c.op.needs_shapes) {
      n->kept().saved[leaf] = {shape_of(*outputs[k]), 0, Saved::How::shape};
    }
  }
  return node;
}

bool OpNode::saves_values() const {
  return kept_ != nullptr &&
         std::ranges::any_of(kept_->saved, [](const Saved& s) { return s.tensor && s.how != Saved::How::shape; });
}

bool OpNode::saves_output() const {
  for (int leaf = op_->arity + 1; kept_ != nullptr && leaf < most_leaves; ++leaf) {
    const Saved& s = kept_->saved[leaf];
    if (s.tensor && s.how != Saved::How::shape) return true;
  }
  return false;
}

void OpNode::keep_output(const TensorImpl& written) noexcept {
  if (kept_ == nullptr) return;
  const Saved& s = kept_->saved[1 + op_->arity];
  if (s.tensor && s.how == Saved::How::copy) for_device(context(), written.device()).copy(written, *s.tensor);
}

void OpNode::release_saved() noexcept { drop_kept(); }

std::string OpNode::saved_text() const {
  std::string text;
  if (kept_ == nullptr) return text;
  for (int i = 0; i < most_leaves; ++i) {
    const Saved& s = kept_->saved[i];
    if (!s.tensor || s.how == Saved::How::shape) continue;
    const std::string what = is_output(i) ? "output" : op_->params[static_cast<std::size_t>(i - 1)];
    text += (text.empty() ? "" : ", ") + what +
            (s.how == Saved::How::copy ? " as a copy: its memory may be written"
                                       : " at version " + std::to_string(s.version));
  }
  return text;
}

void OpNode::check_version(int leaf) const {
  const Saved& s = kept_->saved[leaf];
  if (s.how != Saved::How::alias || !s.tensor || s.tensor->storage() == nullptr) return;
  const Storage& storage = *s.tensor->storage();
  if (storage.version() == s.version) return;
  const Location last = storage.last_writer();
  const std::string saver = describe(location_), writer = describe(last);
  release_location(last);
  throw VersionMismatch("backward(): " + name() + " saved " +
                            (is_output(leaf) ? "its output" : op_->params[static_cast<std::size_t>(leaf - 1)]) +
                            " at version " + std::to_string(s.version) + (saver.empty() ? "" : " (" + saver + ")") +
                            ", but it was written in place since and is at version " +
                            std::to_string(storage.version()) + (writer.empty() ? "" : " (" + writer + ")") +
                            "; write x = x + y in place of x += y, or x.copy() before",
                        {{"saved_version", std::int64_t{s.version}},
                         {"current_version", std::int64_t{storage.version()}},
                         {"saver", saver},
                         {"writer", writer},
                         {"op", std::string(op_->name())}});
}

void OpNode::check_versions(std::uint32_t reads) const {
  if (kept_ == nullptr) return;
  const std::uint32_t operands = ((std::uint32_t{1} << op_->arity) - 1) << 1, results = reads & ~(operands | 1);
  // A result that was not saved was made of the operands again.
  if (op_->outputs == 1 && results != 0 && !kept_->saved[1 + op_->arity].tensor) reads |= operands;
  for (int leaf = 1; leaf < most_leaves; ++leaf) {
    if ((reads >> leaf & 1) != 0) check_version(leaf);
  }
}

Tensor OpNode::unpack(int leaf, bool create_graph, const Histories* histories) {
  if (kept_ == nullptr || !kept_->saved[leaf].tensor) return {};
  const Saved& s = kept_->saved[leaf];
  const bool own = is_output(leaf);
  check_version(leaf);
  if (!create_graph || s.how == Saved::How::shape) return Tensor::share(s.tensor.get());
  Edge from;
  if (own) {
    from = histories != nullptr ? histories->output
                                : Edge{NodeRef::share(this), static_cast<std::uint32_t>(leaf - 1 - op_->arity)};
  } else {
    const auto operand = static_cast<std::size_t>(leaf - 1);
    from = histories != nullptr ? histories->operands[operand] : next()[operand];
  }
  if (!from.node) return Tensor::share(s.tensor.get());
  TensorRef value = detached(*s.tensor);
  set_history(*value, std::move(from.node), from.output);
  return Tensor::adopt(value.leak());
}

std::vector<Tensor> OpNode::leaves(std::span<const Tensor> grads, std::uint32_t reads, bool create_graph,
                                   const Histories* histories) {
  const int n = op_->arity;
  std::vector<Tensor> all(static_cast<std::size_t>(leaf_count(n, op_->outputs)));
  for (int i = 1; i < n + 1 + op_->outputs; ++i) {
    Tensor& leaf = all[static_cast<std::size_t>(i)];
    if (kept_ == nullptr) continue;
    const Saved& s = kept_->saved[i];
    if ((reads >> i & 1) != 0 || s.how == Saved::How::shape) {
      leaf = unpack(i, create_graph, histories);
    } else if (op_->needs_shapes && s.tensor) {
      // Saved for another operand's gradient: this one may ask for its shape, whatever was written since.
      leaf = Tensor::adopt(shape_of(*s.tensor).leak());
    }
  }
  const int out = n + 1;
  if (op_->elementwise >= 0 && op_->outputs == 1 && (reads >> out & 1) != 0 && !all[static_cast<std::size_t>(out)]) {
    all[static_cast<std::size_t>(out)] = result_again(create_graph, histories);
  }
  for (int k = 0; k < op_->outputs; ++k) {
    const auto leaf = static_cast<std::size_t>(incoming_leaf(n, op_->outputs, k));
    all[leaf] = grads[static_cast<std::size_t>(k)];
    if (all[leaf] || (reads >> leaf & 1) == 0) continue;
    // Nobody asked for this output's gradient.
    const Tensor& form = all[static_cast<std::size_t>(out + k)];
    const Tensor& other = *std::ranges::find_if(grads, [](const Tensor& g) { return static_cast<bool>(g); });
    const Tensor& like = form ? form : other;
    all[leaf] = nothings(to_vector(like.shape()), like.dtype(), other.device());
  }
  return all;
}

Tensor OpNode::result_again(bool create_graph, const Histories* histories) {
  std::array<Tensor, most_operands> wide;
  std::array<Operand, most_operands> in;
  const auto count = static_cast<std::size_t>(op_->arity);
  for (std::size_t i = 0; i < count; ++i) {
    wide[i] = unpack(static_cast<int>(i) + 1, create_graph, histories);
    if (is_narrow(wide[i].dtype())) wide[i] = astype(wide[i], Dtype::float32);
    in[i] = tensor_operand(wide[i].impl());
  }
  return Tensor::adopt(apply(*op_, {in.data(), count}, attrs_.get()).leak());
}

void OpNode::gradients(std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph, std::span<Tensor> result,
                       const Histories* histories) {
  if (op_->schema.variadic) {
    std::vector<Tensor> all{grads[0]};
    for (const Saved& s : kept_->list) all.push_back(Tensor::share(s.tensor.get()));
    std::vector<std::uint8_t> each(result.size());
    for (std::size_t i = 0; i < each.size(); ++i) each[i] = next()[i].node && (wanted >> (i & 63) & 1) != 0;
    op_->gradients({all, attrs_.get(), computed_}, each, result);
    return;
  }
  for (std::size_t i = 0; i < result.size(); ++i) {
    if ((wanted >> i & 1) == 0) continue;
    result[i] = gradient_of(static_cast<int>(i), grads, create_graph, histories);
    if (result[i] && kept_ != nullptr && kept_->reduce_to[i]) {
      result[i] = sum_to_shape(result[i], kept_->reduce_to[i]->shape());
    }
  }
}

Tensor OpNode::gradient_of(int index, std::span<const Tensor> grads, bool create_graph, const Histories* histories) {
  const auto i = static_cast<std::size_t>(index);
  const bool fusible = op_->elementwise >= 0 && !create_graph && real_operands_ == 0;
  const GradientReads r = gradient_reads(*op_)[i];
  Tensor result;
  if (!r.exists) return result;
  const std::vector<Tensor> all = leaves(grads, r.reads, create_graph, histories);
  if (r.passes_g) {
    result = all[0];
  } else if (fusible && r.reads != 0) {
    const Tensor& g = all[static_cast<std::size_t>(first_incoming(op_->arity, op_->outputs, r.reads))];
    const bool from_nothings = has_nothings(g), any = from_nothings || r.makes_nothing;
    result =
        for_device(context(), g.device()).gradient({*op_, index, all, attrs_.get(), computed_, from_nothings, any});
    if (result && any) result = with_nothings(result);
  }
  if (!result) result = op_->gradient({all, attrs_.get(), computed_}, index);
  check_versions(r.reads);
  if ((real_operands_ >> i & 1) != 0) result = gradient_as(result, real_part(result.dtype()));
  return result;
}

Ref<ViewWriteNode> ViewWriteNode::make(Ref<OpNode> op, Edge edge, const TensorImpl& base,
                                       std::shared_ptr<const ViewChain> chain, std::uint64_t target_operands,
                                       Dims view_shape) {
  ViewWriteNode* n = new (place<ViewWriteNode>()) ViewWriteNode();
  const std::span<Edge> edges = op->next();
  n->set_edge_count(1 + static_cast<int>(edges.size()));
  n->next()[0] = std::move(edge);
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if ((target_operands >> i & 1) == 0) n->next()[1 + i] = edges[i];
  }
  n->op_ = std::move(op);
  n->base_shape_ = TensorImpl::make(base.dtype(), base.device(), base.shape(), base.strides(), {}, base.offset());
  n->order_ = memory_order(base);
  n->from_memory_ = chain;
  if (!n->order_.empty()) {
    const PermuteDimsBackward::Attr back{inverse(n->order_)};
    n->from_memory_ = chain_after({&find_op("permute_dims"), Attributes::make(back)}, *chain);
  }
  n->chain_ = std::move(chain);
  n->target_operands_ = target_operands;
  n->view_shape_ = to_vector(view_shape);
  n->location_ = n->op_->location();
  retain_location(n->location_);
  return Ref<ViewWriteNode>::adopt(n);
}

void ViewWriteNode::deallocate() noexcept {
  this->~ViewWriteNode();
  pool::release(this, capacity_of<ViewWriteNode>);
}

void ViewWriteNode::backward(std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph,
                             std::span<Tensor> result) {
  const Tensor inside = follow(grads[0], chain_);
  const bool base_wanted = (wanted & 1) != 0;
  std::vector<Tensor> operands(result.size() - 1);
  const OpNode::Histories histories = create_graph ? this->histories() : OpNode::Histories();
  op_->gradients({&inside, 1}, (wanted >> 1) | (base_wanted ? target_operands_ : 0), create_graph, operands,
                 create_graph ? &histories : nullptr);
  Tensor through;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if ((target_operands_ >> i & 1) == 0) {
      result[1 + i] = operands[i];
    } else if (operands[i]) {
      through = through ? add_gradients(through, operands[i]) : operands[i];
    }
  }
  if (!base_wanted) return;
  if (!through) through = nothings(view_shape_, inside.dtype(), inside.device());
  // A reshape in the chain is a view only of a base that lies in memory as the written one did.
  const Tensor base = order_.empty() ? grads[0] : permute_dims(grads[0], order_);
  const Tensor written = write_view(base, through, from_memory_);
  result[0] = order_.empty() ? written : permute_dims(written, inverse(order_));
}

OpNode::Histories ViewWriteNode::histories() {
  OpNode::Histories h;
  const std::span<Edge> edges = op_->next();
  for (std::size_t i = 0; i < edges.size() && i < h.operands.size(); ++i) {
    h.operands[i] = (target_operands_ >> i & 1) != 0 ? history_of_view(next()[0]) : edges[i];
  }
  if (op_->saves_output()) h.output = history_of_view({NodeRef::share(this), 0});
  return h;
}

Edge ViewWriteNode::history_of_view(Edge from) const {
  if (!from.node) return {};
  TensorRef base = detached(*base_shape_);
  set_history(*base, std::move(from.node), from.output);
  const Tensor view = follow(Tensor::adopt(base.leak()), chain_);
  return gradient_edge(*view.impl());
}

namespace {
// Held for a few loads and stores only, and never over a call of the front end.
std::mutex leaves_mutex;
}  // namespace

Ref<AccumulateGrad> AccumulateGrad::make(TensorImpl& leaf) {
  AutogradMeta& m = meta_of(leaf);
  if (AccumulateGrad* known = m.accumulator.load(std::memory_order_acquire)) return Ref<AccumulateGrad>::share(known);
  const std::lock_guard lock(leaves_mutex);
  AccumulateGrad* n = m.accumulator.load(std::memory_order_relaxed);
  if (n == nullptr) {
    n = new (place<AccumulateGrad>()) AccumulateGrad();
    Ref<AccumulateGrad> made = Ref<AccumulateGrad>::adopt(n);
    n->leaf_ = &leaf;
    if (m.hooks) n->hooks = {m.hooks};
    m.accumulator.store(made.leak(), std::memory_order_release);
  }
  return Ref<AccumulateGrad>::share(n);
}

void AccumulateGrad::forget_leaf() noexcept {
  const std::lock_guard lock(leaves_mutex);
  leaf_ = nullptr;
}

TensorRef AccumulateGrad::leaf() const noexcept {
  const std::lock_guard lock(leaves_mutex);
  return leaf_ != nullptr && leaf_->try_retain() ? TensorRef::adopt(leaf_) : TensorRef();
}

void AccumulateGrad::deallocate() noexcept {
  this->~AccumulateGrad();
  pool::release(this, capacity_of<AccumulateGrad>);
}

}  // namespace hyalite
