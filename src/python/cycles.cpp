/// Python's collector does not see the graph, and counts do not see cycles. So before each full collection both are
/// looked at together: who is referred to more often than from within is alive, and what it reaches; the rest is
/// garbage.
#include "python/cycles.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "python/function_node.h"

namespace hyalite::python {
namespace {

using Thing = std::variant<PyObject*, TensorImpl*, Node*, HookList*>;

const void* address(const Thing& t) {
  return std::visit([](auto* p) { return static_cast<const void*>(p); }, t);
}

/// A namespace of a module leads to everything, and is alive.
bool leads_everywhere(PyObject* o) {
  return PyModule_Check(o) || PyType_Check(o) ||
         (PyDict_Check(o) && PyDict_GetItemString(o, "__builtins__") != nullptr);
}

/// Whether it may be asked what it holds: an object that is not tracked may be half made, but for tensors.
bool seen_by_collector(PyObject* o) { return is_tensor(o) || (PyObject_IS_GC(o) && PyObject_GC_IsTracked(o)); }

/// Calls f for each thing that `t` holds a reference to.
template <class F>
void each_held(const Thing& t, F f) {
  if (const auto* o = std::get_if<PyObject*>(&t)) {
    if (is_tensor(*o) && impl_of(*o) != nullptr) f(Thing(impl_of(*o)));
    const traverseproc traverse = Py_TYPE(*o)->tp_traverse;
    if (traverse == nullptr) return;
    traverse(
        *o,
        [](PyObject* held, void* g) {
          if (!seen_by_collector(held) || leads_everywhere(held)) return 0;
          (*static_cast<F*>(g))(Thing(held));
          return 0;
        },
        &f);
  } else if (const auto* tensor = std::get_if<TensorImpl*>(&t)) {
    if (TensorImpl* parent = (*tensor)->view.parent) f(Thing(parent));
    const AutogradMeta* m = (*tensor)->autograd;
    if (m == nullptr) return;
    if (m->grad) f(Thing(m->grad.get()));
    if (m->grad_fn) f(Thing(m->grad_fn.get()));
    if (Node* a = m->accumulator.load(std::memory_order_acquire)) f(Thing(a));
    if (m->hooks) f(Thing(m->hooks.get()));
  } else if (const auto* node = std::get_if<Node*>(&t)) {
    for (const Edge& e : (*node)->next()) {
      if (e.node) f(Thing(e.node.get()));
    }
    if (Node* inner = (*node)->inner()) f(Thing(inner));
    for (const auto& list : (*node)->hooks) {
      if (list) f(Thing(list.get()));
    }
    if (const auto* custom = dynamic_cast<FunctionNode*>(*node)) {
      for (PyObject* o : {custom->callback(), custom->releaser()}) {
        if (o != nullptr) f(Thing(o));
      }
    }
  } else if (const auto* list = std::get_if<HookList*>(&t)) {
    for (const Hook& h : (*list)->hooks) {
      if (h.owner != nullptr) f(Thing(static_cast<PyObject*>(h.owner)));
    }
  }
}

class Search {
 public:
  void start(const Thing& t, long holders) { members_[address(enter(t))].holders = holders; }

  /// Whether nothing outside reaches `p`.
  bool garbage(const void* p) const { return !members_.at(p).alive; }

  void run() {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const Thing from = order_[i];
      each_held(from, [&](const Thing& t) { ++members_[address(enter(t))].from_within; });
    }
    std::vector<Thing> alive;
    const auto revive = [&](const Thing& t) {
      Member& m = members_.at(address(t));
      if (!std::exchange(m.alive, true)) alive.push_back(t);
    };
    for (const Thing& t : order_) {
      const Member& m = members_.at(address(t));
      if (m.holders > m.from_within) revive(t);
    }
    while (!alive.empty()) {
      const Thing t = alive.back();
      alive.pop_back();
      each_held(t, revive);
    }
  }

 private:
  struct Member {
    long holders = 0, from_within = 0;
    bool alive = false;
  };

  const Thing& enter(const Thing& t) {
    if (members_.try_emplace(address(t), Member{holders(t)}).second) order_.push_back(t);
    return t;
  }

  static long holders(const Thing& t) {
    if (const auto* o = std::get_if<PyObject*>(&t)) return static_cast<long>(Py_REFCNT(*o));
    if (const auto* tensor = std::get_if<TensorImpl*>(&t)) return (*tensor)->users();
    if (const auto* node = std::get_if<Node*>(&t)) return (*node)->users();
    return 1L << 30;  // a list that is not one of ours to begin with: as if held from outside
  }

  std::unordered_map<const void*, Member> members_;
  std::vector<Thing> order_;
};

}  // namespace

std::size_t collect_cycles() {
  const std::vector<std::shared_ptr<HookList>> lists = hook_lists();
  const auto& functions = FunctionNode::all();
  if (lists.empty() && functions.empty()) return 0;
  Search search;
  for (const auto& list : lists) search.start(list.get(), list.use_count() - 1);
  for (FunctionNode* node : functions) {
    if (node->users() != 0) search.start(static_cast<Node*>(node), node->users());  // else it is on its way out
  }
  search.run();
  // All are found before any goes: what goes runs code that changes the graph.
  std::vector<Hook> dropped;
  std::size_t count = 0;
  for (const auto& list : lists) {
    if (!search.garbage(list.get())) continue;
    ++count;
    std::ranges::move(list->hooks, std::back_inserter(dropped));
    list->hooks.clear();
  }
  std::vector<Ref<FunctionNode>> doomed;
  for (FunctionNode* node : functions) {
    if (node->users() != 0 && search.garbage(static_cast<const void*>(static_cast<Node*>(node))))
      doomed.push_back(Ref<FunctionNode>::share(node));
  }
  for (const auto& node : doomed) node->drop();
  return count + doomed.size();
}

}  // namespace hyalite::python
