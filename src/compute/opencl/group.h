/// A fused group as generated kernels.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "compute/lazy/kernel.h"
#include "compute/opencl/device.h"
#include "compute/opencl/expressions.h"

namespace hyalite::opencl {

std::unique_ptr<lazy::FusedKernel> fuse(ClDevice& device, const lazy::Program& program);

/// What groups of every pass share: the kernels' text, their arguments, and what is told of a run.
class GeneratedGroup : public lazy::FusedKernel {
 public:
  void run(std::span<const lazy::Memory> in, std::span<const lazy::Memory> out, Recorder* rec) const final;
  TierText tier() const final { return told_; }

 protected:
  /// Throws Unsupported where the device does not compute in one of the dtypes.
  GeneratedGroup(ClDevice& device, const lazy::Program& p);
  const Kernel& compile(const std::string& body, const std::string& name);
  /// The arguments of a kernel that are parameters, behind those that `all` holds.
  void append(std::vector<KernelArgument>& all, std::span<const lazy::Memory> in,
              std::span<const lazy::Memory> out) const;
  virtual void launch(std::span<const lazy::Memory> in, std::span<const lazy::Memory> out) const = 0;

  ClDevice& device_;
  Expressions expressions_;

 private:
  TierText told_{1, "", "", "opencl", 0, 0, 0};
  std::string ops_, came_;
  mutable std::atomic<bool> ran_{false};  // then the plan has been kept since
};

/// Of a program whose pass reduces.
std::unique_ptr<lazy::FusedKernel> fuse_rows(ClDevice& device, const lazy::Program& program);

}  // namespace hyalite::opencl
