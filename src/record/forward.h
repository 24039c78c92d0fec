/// Forward mode: tangents pushed through the ops as they are recorded.
#pragma once

#include <unordered_map>

#include "record/autograd_meta.h"

namespace hyalite {

/// The derivatives of everything that is computed along one direction of the inputs. While it is entered, each node
/// is given its tangents as soon as it is recorded, when nothing that it saved has been written; what was recorded
/// elsewhere gets them when they are asked for. Levels nest: a tangent is computed where only the outer levels see it.
class Forward {
 public:
  /// `recording`: tangents may be differentiated again, where they depend on something other than the seeds.
  explicit Forward(bool recording) : recording_(recording) {}
  Forward(const Forward&) = delete;
  ~Forward() { leave(); }

  /// The tangent of an input. `foreign`: the input has a history of its own.
  void seed(const Tensor& input, const Tensor& tangent, bool foreign);
  void enter();
  void leave() noexcept;
  /// The tangent of a tensor; empty where no path leads to it.
  Tensor tangent(const Tensor& t);
  /// Of a node that was just recorded: its tangents on this level and on those around it.
  static void push(Node& node);

 private:
  struct Known {
    NodeRef node;
    std::vector<Tensor> tangents;  // by output
    bool foreign = false;          // leads to something that is no seed
  };
  const Known& know(Node& node);
  void compute(Node& node);
  Tensor at(const Edge& e);

  std::unordered_map<Node*, Known> known_;
  Forward* parent_ = nullptr;
  bool recording_;
  bool entered_ = false;
};

/// J t for a node that has only a backward: its backward is linear in the gradients, and this is its transpose.
/// `forms` are the outputs' shapes and dtypes, null for those without a gradient.
std::vector<Tensor> transposed(Node& node, std::span<const TensorRef> forms, std::span<const Tensor> tangents,
                               bool create_graph);

}  // namespace hyalite
