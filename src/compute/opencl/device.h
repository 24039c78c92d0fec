/// One OpenCL device: its memory, its kernels, its queue.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "compute/opencl/cl.h"
#include "hyalite/dtype.h"
#include "tensor/storage.h"

namespace hyalite::opencl {

/// What a device can do.
struct Facts {
  std::string name, platform, version, driver;
  bool has_float64 = false;
  bool exact_division = false;                  ///< float32 division and square root are correctly rounded
  std::size_t group = 1;                        ///< most items of a work-group
  std::int64_t memory = 0, largest_buffer = 0;  ///< bytes
};

/// An argument of a kernel: memory, or a scalar.
struct Bytes {
  std::size_t size;
  std::byte value[16];
};
using KernelArgument = std::variant<cl_mem, Bytes>;
template <class T>
KernelArgument scalar(T v) {
  Bytes b{sizeof v, {}};
  static_assert(sizeof v <= sizeof b.value);
  __builtin_memcpy(b.value, &v, sizeof v);
  return b;
}

class Kernel;

class ClDevice {
 public:
  /// The devices there are, found once.
  static const std::vector<ClDevice*>& all();
  /// What was looked for and not found; empty where there is nothing to say.
  static const std::string& problem();

  const Facts& facts() const { return facts_; }
  std::uint8_t index() const { return index_; }  ///< among all

  /// So many bytes, not initialised, from the pool. Throws OutOfMemory.
  Ref<Storage> memory(std::size_t bytes);
  static cl_mem buffer(const Storage& s);
  void upload(const void* from, const Storage& to, std::size_t bytes);
  /// Waits for all that was asked. Throws what kernels found wrong with values.
  void download(const Storage& from, void* to, std::size_t bytes);
  void finish();

  /// The kernel of a text, compiled once. Throws Unsupported with the compiler's words where it does not take it.
  const Kernel& kernel(const std::string& text, const std::string& name);
  /// Runs it over `items`, in groups of `group` (0: any).
  void launch(const Kernel& k, const std::vector<KernelArgument>& arguments, std::size_t items, std::size_t group = 0);

  /// Has a library ask for kernels of its own; `f` gets the queue, and gives 0, or what went wrong. False for that.
  bool ask_library(const char* name, std::int64_t items, const std::function<int(cl_command_queue*)>& f);

  /// A word that kernels set to the number of a site where a value is wrong, with that value behind it.
  cl_mem error_word();
  /// Raises for the value; called at the next synchronisation if a kernel has set its number.
  using Site = std::function<void(std::int64_t value)>;
  int add_site(Site s);

  struct Counts {
    std::int64_t compiled = 0, from_disk = 0, launches = 0, buffers = 0, held = 0, pooled = 0;
    double compile_seconds = 0;
  };
  Counts counts();
  /// Where kernels came from since then, in words.
  std::string came_since(const Counts& before);

 private:
  struct Buffer;
  ClDevice(cl_platform_id platform, cl_device_id device);
  cl_context context();
  /// Throws Unsupported in the child of a fork: a driver's threads do not live there.
  void check_process() const;
  void give_back(Buffer* b);
  void trim();
  void check(cl_int status, const char* what);
  void check_errors();
  cl_program build(const std::string& text);

  cl_device_id id_;
  std::uint8_t index_ = 0;
  Facts facts_;
  std::recursive_mutex mutex_;
  cl_context context_ = nullptr;
  int process_ = 0;  // that made the context
  cl_command_queue queue_ = nullptr;
  cl_mem error_word_ = nullptr;
  std::deque<Site> sites_;
  std::map<std::size_t, std::vector<cl_mem>> free_;
  std::int64_t pooled_bytes_ = 0;
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_;
  Counts counts_;
};

/// A compiled kernel.
class Kernel {
 public:
  cl_kernel get() const { return kernel_; }
  const std::string& text() const { return *text_; }
  const std::string& name() const { return name_; }
  double seconds() const { return seconds_; }    ///< that it took to have it
  bool from_disk() const { return from_disk_; }  ///< an earlier process had compiled it

 private:
  friend class ClDevice;
  const std::string* text_ = nullptr;
  std::string name_;
  double seconds_ = 0;
  bool from_disk_ = false;
  cl_program program_ = nullptr;
  cl_kernel kernel_ = nullptr;
};

}  // namespace hyalite::opencl
