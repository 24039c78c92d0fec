/// Opening the loader, and the names of its answers.
#include "compute/opencl/cl.h"

#include <dlfcn.h>

#include <cstdlib>

namespace hyalite::opencl {

const Api* api(std::string* why) {
  static std::string problem;
  static const Api* const loaded = []() -> const Api* {
    const char* const named = std::getenv("HYALITE_OPENCL");
    const char* const path = named != nullptr ? named : "libOpenCL.so.1";
    void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      problem = std::string("the OpenCL loader did not open: ") + dlerror() + "; install ocl-icd-libopencl1";
      return nullptr;
    }
    static Api a;
#define HYALITE_LOOK_UP(name)                                        \
  a.name = reinterpret_cast<decltype(a.name)>(dlsym(handle, #name)); \
  if (a.name == nullptr) {                                           \
    problem = std::string(path) + " lacks " #name;                   \
    return nullptr;                                                  \
  }
    HYALITE_CL_FUNCTIONS(HYALITE_LOOK_UP)
#undef HYALITE_LOOK_UP
    return &a;
  }();
  if (why != nullptr) *why = problem;
  return loaded;
}

std::string status_name(cl_int status) {
  switch (status) {
#define HYALITE_CASE(name) \
  case name:               \
    return #name;
    HYALITE_CASE(CL_SUCCESS)
    HYALITE_CASE(CL_DEVICE_NOT_FOUND)
    HYALITE_CASE(CL_DEVICE_NOT_AVAILABLE)
    HYALITE_CASE(CL_COMPILER_NOT_AVAILABLE)
    HYALITE_CASE(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    HYALITE_CASE(CL_OUT_OF_RESOURCES)
    HYALITE_CASE(CL_OUT_OF_HOST_MEMORY)
    HYALITE_CASE(CL_BUILD_PROGRAM_FAILURE)
    HYALITE_CASE(CL_INVALID_VALUE)
    HYALITE_CASE(CL_INVALID_DEVICE)
    HYALITE_CASE(CL_INVALID_BUFFER_SIZE)
    HYALITE_CASE(CL_INVALID_BINARY)
    HYALITE_CASE(CL_INVALID_BUILD_OPTIONS)
    HYALITE_CASE(CL_INVALID_KERNEL_ARGS)
    HYALITE_CASE(CL_INVALID_WORK_GROUP_SIZE)
    HYALITE_CASE(CL_INVALID_ARG_SIZE)
    HYALITE_CASE(CL_INVALID_MEM_OBJECT)
    HYALITE_CASE(CL_INVALID_OPERATION)
#undef HYALITE_CASE
    default:
      return "OpenCL error " + std::to_string(status);
  }
}

}  // namespace hyalite::opencl
