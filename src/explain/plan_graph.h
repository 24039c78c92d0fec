/// A plan as a trace shows it: ops in kernels, from what is read to what is given.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hyalite {

/// Which tier a kernel runs in, and why; the text that was generated for it.
struct TierText {
  int tier = 0;
  std::string why;       ///< of tier 0
  std::string source;    ///< of generated code
  std::string language;  ///< of it: "llvm" or "opencl"
  double seconds = 0;    ///< that compiling took
  int functions = 0;     ///< that were generated
  int from_disk = 0;     ///< of them, by an earlier process
};

/// What makes a value: an op, or memory that was there before.
struct PlanNode {
  std::string name;
  std::string makes;      ///< dtype and shape
  std::string where;      ///< the line that asked for it; empty where it is not known
  int kernel = -1;        ///< in which it runs; -1: memory that was there before
  int slot = -1;          ///< of such memory: which input of the plan it is
  bool given = false;     ///< somebody outside gets what it makes
  std::vector<int> from;  ///< nodes
};

/// A step of a plan: a fused group, or the call of an op.
struct PlanKernel {
  bool fused = false;
  std::string name;    ///< its ops
  std::string reason;  ///< why it is a step of its own
  std::string source;  ///< its ops as text, a line each
  std::vector<std::int64_t> shape;
  std::int64_t read = 0, written = 0;  ///< bytes, each operand once
  int nodes = 0;
  TierText tier;
  std::string assembly;  ///< of generated code
};

struct PlanGraph {
  std::string name;
  std::vector<PlanNode> nodes;  ///< operands first
  std::vector<PlanKernel> kernels;
  std::int64_t temporary_bytes = 0;     ///< the most that lies between the kernels at one time
  std::int64_t bytes_least = 0;         ///< of what comes from outside and what goes there, each once
  std::optional<double> ready_seconds;  ///< from the function to a plan that can run; none where each run plans anew
  std::int64_t calls = 0;               ///< of this plan, this one included

  std::int64_t bytes_moved() const {
    std::int64_t sum = 0;
    for (const PlanKernel& k : kernels) sum += k.read + k.written;
    return sum;
  }
};

/// A kernel asked of a device that works by itself.
struct Launch {
  std::string name, text;                       ///< of the kernel; a library's has no text
  std::int64_t items = 0, group = 0;            ///< 0: of any size
  std::function<std::optional<double>()> time;  ///< waits for its end; nanoseconds on the device's own clock
  std::optional<double> ns;                     ///< what that gave
};

}  // namespace hyalite
