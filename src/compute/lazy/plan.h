/// A schedule made ready to run again and again: memory by number, kernels, calls.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compute/lazy/fuse.h"
#include "compute/lazy/kernel.h"

namespace hyalite::lazy {

/// Runs what a graph's roots need, over memory that is given each time. Does not change, so that threads may share it.
class Plan {
 public:
  /// `inputs` slots, numbered by the graph's input nodes. Throws Unsupported where the backend lacks an op. Without
  /// `fuse` each op is a step of its own, by its eager entry.
  Plan(const Roots& roots, int inputs, Backend& backend, Tier tier = Tier::automatic, bool fuse = true,
       Device device = {});

  /// The plan as people see it, without the machine code.
  PlanGraph graph() const;
  /// The generated code of a step, as assembly; empty where it has none.
  std::string machine_code(int step) const;
  int kernels() const { return static_cast<int>(steps_.size()); }

  /// Runs it; gives the memory of each result, in the order of the roots.
  void run(std::span<const Memory> inputs, std::span<Ref<Storage>> results, Recorder* rec) const {
    run(inputs, results, rec, nullptr);
  }
  /// Told of each value that is in memory after a step: the step's number, the value, its elements.
  using Watch = std::function<void(int step, const Value& value, const TensorImpl& elements)>;
  void run(std::span<const Memory> inputs, std::span<Ref<Storage>> results, Recorder* rec, const Watch* watch) const;
  std::size_t results() const { return results_.size(); }

 private:
  struct Buffer {
    std::int64_t bytes = 0;
    int input = -1;
    bool result = false;
  };
  struct Step {
    std::unique_ptr<FusedKernel> kernel;  // null for a call
    Program program;                      // of a kernel
    const Group* group = nullptr;
    std::vector<int> in, out;  // buffers
    std::vector<Value> made;   // by output
    std::vector<int> fresh;    // buffers that begin here
    std::vector<int> done;     // buffers that are needed no more after it
  };
  struct Running;
  class Told;
  int buffer_of(const Value& v);
  int new_buffer(std::int64_t bytes);
  void find_needed();
  void add_step(const Group& g);
  void reuse(Step& s);
  void call(const Step& s, Running& r, Recorder* rec) const;
  PlanKernel text_of(const Step& s) const;
  std::int64_t temporary_bytes() const;

  Schedule schedule_;
  Backend& backend_;
  Tier tier_;
  Device device_;
  std::vector<Buffer> buffers_;
  std::vector<Step> steps_;
  std::vector<int> results_;  // buffers
  std::vector<std::pair<int, int>> write_back_;
  std::map<std::pair<const Node*, int>, int> places_;
  std::set<std::pair<const Node*, int>> needed_;  // while the plan is made
};

}  // namespace hyalite::lazy
