/// Expressions made of expressions.
#include "compute/codegen/expr.h"

#include <unordered_map>

namespace hyalite {
namespace {

using Memo = std::unordered_map<const ExprNode*, std::shared_ptr<const ExprNode>>;

std::shared_ptr<const ExprNode> replaced(const std::shared_ptr<const ExprNode>& n, std::span<const Expr> leaves,
                                         Memo& memo) {
  if (const auto at = memo.find(n.get()); at != memo.end()) return at->second;
  std::shared_ptr<const ExprNode> made = n;
  if (n->op == ExprOp::leaf || n->op == ExprOp::attribute) {
    if (n->index >= 0) made = leaves[static_cast<std::size_t>(n->index)].shared();
  } else if (n->in[0]) {
    std::array<std::shared_ptr<const ExprNode>, 3> in = n->in;
    for (auto& i : in) {
      if (i) i = replaced(i, leaves, memo);
    }
    if (in != n->in) made = Expr(*n, std::move(in)).shared();
  }
  return memo[n.get()] = made;
}

}  // namespace

Expr with_leaves(const Expr& e, std::span<const Expr> leaves) {
  Memo memo;
  return Expr(replaced(e.shared(), leaves, memo));
}

}  // namespace hyalite
