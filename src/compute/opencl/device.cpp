/// Finding devices; pooled buffers, compiled programs, launches.
#include "compute/opencl/device.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>

#include "compute/codegen/print_c.h"
#include "compute/jit/disk_cache.h"
#include "explain/recorder.h"
#include "hyalite/error.h"
#include "tensor/context.h"

namespace hyalite::opencl {
namespace {

constexpr std::size_t least_buffer = 256;
constexpr std::int64_t most_pooled = std::int64_t{1} << 30;  // bytes that nobody uses

struct Found {
  std::vector<ClDevice*> devices;
  std::string problem;
};

template <class T>
T device_info(cl_device_id d, cl_device_info what) {
  T value{};
  api()->clGetDeviceInfo(d, what, sizeof value, &value, nullptr);
  return value;
}

template <class Get>
std::string text_info(Get get) {
  std::size_t bytes = 0;
  if (get(0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) return "";
  std::string s(bytes, '\0');
  get(bytes, s.data(), nullptr);
  while (!s.empty() && (s.back() == '\0' || s.back() == ' ')) s.pop_back();
  return s;
}
std::string device_text(cl_device_id d, cl_device_info what) {
  return text_info(
      [&](std::size_t n, void* to, std::size_t* all) { return api()->clGetDeviceInfo(d, what, n, to, all); });
}

using EventRef = std::shared_ptr<_cl_event>;
EventRef counted(cl_event e) {
  return {e, [](cl_event it) {
            if (it != nullptr) api()->clReleaseEvent(it);
          }};
}

/// From where the first event begins, or ends, to where the last one ends, by the device's clock, in nanoseconds; once
/// that is done.
std::optional<double> device_time(const EventRef& first, cl_profiling_info from, const EventRef& last) {
  cl_ulong begin = 0, end = 0;
  cl_event wait = last.get();
  if (first == nullptr || wait == nullptr || api()->clWaitForEvents(1, &wait) != CL_SUCCESS) return {};
  const auto ask = [&](const EventRef& e, cl_profiling_info what, cl_ulong* to) {
    return api()->clGetEventProfilingInfo(e.get(), what, sizeof *to, to, nullptr) == CL_SUCCESS;
  };
  if (!ask(first, from, &begin) || !ask(last, CL_PROFILING_COMMAND_END, &end) || end < begin) return {};
  return static_cast<double>(end - begin);
}

/// Buffers come in sizes of at most an eighth more than asked for, so that they can be used again.
std::size_t rounded(std::size_t bytes) {
  if (bytes <= least_buffer) return least_buffer;
  std::size_t step = least_buffer;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

}  // namespace

struct ClDevice::Buffer {
  ClDevice* device;
  cl_mem memory;
  std::size_t bytes;
};

const std::vector<ClDevice*>& ClDevice::all() {
  problem();
  static const std::vector<ClDevice*>& devices = *[] {
    auto* found = new std::vector<ClDevice*>;
    const Api* a = api();
    if (a == nullptr) return found;
    cl_uint count = 0;
    if (a->clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS || count == 0) return found;
    std::vector<cl_platform_id> platforms(count);
    a->clGetPlatformIDs(count, platforms.data(), nullptr);
    for (const cl_platform_id p : platforms) {
      cl_uint n = 0;
      if (a->clGetDeviceIDs(p, CL_DEVICE_TYPE_ALL, 0, nullptr, &n) != CL_SUCCESS || n == 0) continue;
      std::vector<cl_device_id> ids(n);
      a->clGetDeviceIDs(p, CL_DEVICE_TYPE_ALL, n, ids.data(), nullptr);
      for (const cl_device_id id : ids) {
        if (device_info<cl_bool>(id, CL_DEVICE_AVAILABLE) && device_info<cl_bool>(id, CL_DEVICE_COMPILER_AVAILABLE) &&
            device_info<cl_bool>(id, CL_DEVICE_ENDIAN_LITTLE)) {
          found->push_back(new ClDevice(p, id));
          found->back()->index_ = static_cast<std::uint8_t>(found->size() - 1);
        }
      }
    }
    return found;
  }();
  return devices;
}

const std::string& ClDevice::problem() {
  static const std::string& why = *[] {
    auto* s = new std::string;
    const Api* a = api(s);
    cl_uint count = 0;
    if (a != nullptr && (a->clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS || count == 0))
      *s = "there is no OpenCL platform; install a driver, such as pocl-opencl-icd for this processor";
    return s;
  }();
  return why;
}

ClDevice::ClDevice(cl_platform_id platform, cl_device_id device) : id_(device) {
  facts_.name = device_text(device, CL_DEVICE_NAME);
  facts_.version = device_text(device, CL_DEVICE_VERSION);
  facts_.driver = device_text(device, CL_DRIVER_VERSION);
  facts_.platform = text_info([&](std::size_t n, void* to, std::size_t* all) {
    return api()->clGetPlatformInfo(platform, CL_PLATFORM_NAME, n, to, all);
  });
  facts_.has_float64 = device_text(device, CL_DEVICE_EXTENSIONS).find("cl_khr_fp64") != std::string::npos;
  facts_.exact_division =
      (device_info<cl_device_fp_config>(device, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  facts_.group = device_info<std::size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  facts_.memory = static_cast<std::int64_t>(device_info<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE));
  facts_.largest_buffer = static_cast<std::int64_t>(device_info<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
}

void ClDevice::check(cl_int status, const char* what) {
  if (status == CL_SUCCESS) return;
  throw Unsupported(std::string("OpenCL: ") + what + " on " + facts_.name + " answered " + status_name(status),
                    {{"status", std::int64_t{status}}, {"device", facts_.name}});
}

void ClDevice::check_process() const {
  if (context_ == nullptr || process_ == ::getpid()) return;
  throw Unsupported("opencl: the process was forked after its first use of " + facts_.name +
                        ", whose driver does not work in the child; fork first, or start processes with spawn",
                    {{"device", facts_.name}});
}

cl_context ClDevice::context() {
  check_process();
  if (context_ != nullptr) return context_;
  process_ = ::getpid();
  cl_int status = CL_SUCCESS;
  context_ = api()->clCreateContext(nullptr, 1, &id_, nullptr, nullptr, &status);
  check(status, "making a context");
  queue_ = api()->clCreateCommandQueue(context_, id_, CL_QUEUE_PROFILING_ENABLE, &status);
  check(status, "making a queue");
  return context_;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

Ref<Storage> ClDevice::memory(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t all = rounded(bytes);
  cl_mem m = nullptr;
  if (auto& list = free_[all]; !list.empty()) {
    m = list.back();
    list.pop_back();
    pooled_bytes_ -= static_cast<std::int64_t>(all);
  } else {
    cl_int status = CL_SUCCESS;
    for (int attempt = 0; attempt < 2 && m == nullptr; ++attempt) {
      if (static_cast<std::int64_t>(all) > facts_.largest_buffer) {
        status = CL_INVALID_BUFFER_SIZE;
        break;
      }
      m = api()->clCreateBuffer(context(), CL_MEM_READ_WRITE, all, nullptr, &status);
      if (m == nullptr) trim();
    }
    if (m == nullptr) {
      throw OutOfMemory(facts_.name + " has no room for " + std::to_string(bytes) + " bytes (" + status_name(status) +
                            "); " + std::to_string(counts_.held) + " are in use",
                        {{"bytes", static_cast<std::int64_t>(bytes)}, {"device", facts_.name}});
    }
    ++counts_.buffers;
  }
  counts_.held += static_cast<std::int64_t>(all);
  auto* b = new Buffer{this, m, all};
  return Storage::deferred(
      bytes, [](void* p) { static_cast<Buffer*>(p)->device->give_back(static_cast<Buffer*>(p)); }, b);
}

cl_mem ClDevice::buffer(const Storage& s) { return static_cast<const Buffer*>(s.cell())->memory; }

void ClDevice::give_back(Buffer* b) {
  const std::lock_guard lock(mutex_);
  counts_.held -= static_cast<std::int64_t>(b->bytes);
  // What still runs on it was asked before whatever will be asked of its next user: the queue keeps the order.
  free_[b->bytes].push_back(b->memory);
  pooled_bytes_ += static_cast<std::int64_t>(b->bytes);
  delete b;
  if (pooled_bytes_ > most_pooled) trim();
}

void ClDevice::trim() {
  for (auto& [bytes, list] : free_) {
    for (const cl_mem m : list) api()->clReleaseMemObject(m);
    list.clear();
  }
  pooled_bytes_ = 0;
}

void ClDevice::upload(const void* from, const Storage& to, std::size_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  check_process();
  check(api()->clEnqueueWriteBuffer(queue_, buffer(to), CL_TRUE, 0, bytes, from, 0, nullptr, nullptr), "writing");
}

void ClDevice::download(const Storage& from, void* to, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  check_process();
  if (bytes != 0)
    check(api()->clEnqueueReadBuffer(queue_, buffer(from), CL_TRUE, 0, bytes, to, 0, nullptr, nullptr), "reading");
  check_errors();
}

void ClDevice::finish() {
  const std::lock_guard lock(mutex_);
  if (queue_ == nullptr) return;
  check_process();
  check(api()->clFinish(queue_), "waiting");
  check_errors();
}

// ---- values that are wrong ------------------------------------------------------------------------------------------

cl_mem ClDevice::error_word() {
  const std::lock_guard lock(mutex_);
  if (error_word_ == nullptr) {
    cl_int status = CL_SUCCESS;
    std::int64_t none[2] = {0, 0};
    error_word_ =
        api()->clCreateBuffer(context(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof none, none, &status);
    check(status, "making a buffer");
  }
  return error_word_;
}

int ClDevice::add_site(Site s) {
  const std::lock_guard lock(mutex_);
  sites_.push_back(std::move(s));
  return static_cast<int>(sites_.size());
}

void ClDevice::check_errors() {
  if (sites_.empty()) return;
  std::int64_t word[2];
  check(api()->clEnqueueReadBuffer(queue_, error_word(), CL_TRUE, 0, sizeof word, word, 0, nullptr, nullptr),
        "reading");
  std::deque<Site> sites;
  sites.swap(sites_);
  const auto code = static_cast<std::size_t>(word[0] & 0xffffffff);
  if (code == 0 || code > sites.size()) return;
  const std::int64_t none[2] = {0, 0};
  check(api()->clEnqueueWriteBuffer(queue_, error_word(), CL_TRUE, 0, sizeof none, none, 0, nullptr, nullptr),
        "writing");
  sites[code - 1](word[1]);
}

// ---- kernels --------------------------------------------------------------------------------------------------------

cl_program ClDevice::build(const std::string& text) {
  std::string options = "-w";  // or a driver prints its warnings for everybody to read
  for (const std::string_view o : compile_options(Language::opencl)) {
    if (!facts_.exact_division && o.find("correctly-rounded") != std::string_view::npos) continue;
    options += " " + std::string(o);
  }
  const std::string key = "OpenCL " + facts_.platform + " / " + facts_.name + " / " + facts_.version + " / " +
                          facts_.driver + " / " + options + "\n" + text;
  cl_int status = CL_SUCCESS;
  if (const auto binary = jit::DiskCache::get().load(key)) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(binary->data());
    const std::size_t size = binary->size();
    cl_program p = api()->clCreateProgramWithBinary(context(), 1, &id_, &size, &bytes, nullptr, &status);
    if (p != nullptr && api()->clBuildProgram(p, 1, &id_, options.c_str(), nullptr, nullptr) == CL_SUCCESS) {
      ++counts_.from_disk;
      return p;
    }
    if (p != nullptr) api()->clReleaseProgram(p);
  }
  const char* source = text.c_str();
  const std::size_t length = text.size();
  cl_program p = api()->clCreateProgramWithSource(context(), 1, &source, &length, &status);
  check(status, "making a program");
  if (api()->clBuildProgram(p, 1, &id_, options.c_str(), nullptr, nullptr) != CL_SUCCESS) {
    const std::string log = text_info([&](std::size_t n, void* to, std::size_t* all) {
      return api()->clGetProgramBuildInfo(p, id_, CL_PROGRAM_BUILD_LOG, n, to, all);
    });
    api()->clReleaseProgram(p);
    throw Unsupported("OpenCL: " + facts_.name + " does not take a kernel: " + log,
                      {{"device", facts_.name}, {"build_log", log}});
  }
  ++counts_.compiled;
  std::size_t size = 0;
  if (api()->clGetProgramInfo(p, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) == CL_SUCCESS && size > 0) {
    std::string binary(size, '\0');
    auto* bytes = reinterpret_cast<unsigned char*>(binary.data());
    if (api()->clGetProgramInfo(p, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, nullptr) == CL_SUCCESS)
      jit::DiskCache::get().store(key, binary);
  }
  return p;
}

const Kernel& ClDevice::kernel(const std::string& text, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto known = kernels_.find(text);
  if (known != kernels_.end()) return *known->second;
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t found = counts_.from_disk;
  auto k = std::make_unique<Kernel>();
  k->program_ = build(text);
  cl_int status = CL_SUCCESS;
  k->kernel_ = api()->clCreateKernel(k->program_, name.c_str(), &status);
  check(status, "making a kernel");
  k->name_ = name;
  k->from_disk_ = counts_.from_disk != found;
  k->seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  counts_.compile_seconds += k->seconds_;
  const auto& [kept, made] = *kernels_.emplace(text, std::move(k)).first;
  made->text_ = &kept;
  return *made;
}

void ClDevice::launch(const Kernel& k, const std::vector<KernelArgument>& arguments, std::size_t items,
                      std::size_t group) {
  if (items == 0) return;
  const std::lock_guard lock(mutex_);
  check_process();
  cl_uint at = 0;
  for (const KernelArgument& a : arguments) {
    cl_int status = CL_SUCCESS;
    if (const auto* m = std::get_if<cl_mem>(&a)) {
      status = api()->clSetKernelArg(k.get(), at, sizeof *m, m);
    } else {
      const Bytes& b = std::get<Bytes>(a);
      status = api()->clSetKernelArg(k.get(), at, b.size, b.value);
    }
    check(status, "setting an argument");
    ++at;
  }
  if (group != 0) items = (items + group - 1) / group * group;
  Recorder* const rec = active_recorder(hyalite::context());
  cl_event done = nullptr;
  check(api()->clEnqueueNDRangeKernel(queue_, k.get(), 1, nullptr, &items, group != 0 ? &group : nullptr, 0, nullptr,
                                      rec != nullptr ? &done : nullptr),
        "running a kernel");
  ++counts_.launches;
  if (rec == nullptr) return;
  const EventRef event = counted(done);
  rec->launched({k.name(), k.text(), static_cast<std::int64_t>(items), static_cast<std::int64_t>(group),
                 [event] { return device_time(event, CL_PROFILING_COMMAND_START, event); }, std::nullopt});
}

bool ClDevice::ask_library(const char* name, std::int64_t items, const std::function<int(cl_command_queue*)>& f) {
  const std::lock_guard lock(mutex_);
  check_process();
  Recorder* const rec = active_recorder(hyalite::context());
  // Its kernels lie between two markers, whose times are the device's.
  const auto marker = [&] {
    cl_event e = nullptr;
    if (rec != nullptr) api()->clEnqueueMarkerWithWaitList(queue_, 0, nullptr, &e);
    return counted(e);
  };
  const EventRef before = marker();
  if (f(&queue_) != 0) return false;
  ++counts_.launches;
  const EventRef after = marker();
  if (rec == nullptr) return true;
  rec->launched(
      {name, "", items, 0, [=] { return device_time(before, CL_PROFILING_COMMAND_END, after); }, std::nullopt});
  return true;
}

ClDevice::Counts ClDevice::counts() {
  const std::lock_guard lock(mutex_);
  Counts c = counts_;
  c.pooled = pooled_bytes_;
  return c;
}

std::string ClDevice::came_since(const Counts& before) {
  const Counts now = counts();
  const std::string ms = std::to_string(std::lround(1e3 * (now.compile_seconds - before.compile_seconds))) + " ms";
  return now.compiled != before.compiled     ? "compiled in " + ms
         : now.from_disk != before.from_disk ? "read from disk in " + ms
                                             : "known";
}

}  // namespace hyalite::opencl
