/// OpenCL through the ICD loader, which is opened when a device is first asked for.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <string>

namespace hyalite::opencl {

#define HYALITE_CL_FUNCTIONS(F)  \
  F(clGetPlatformIDs)            \
  F(clGetPlatformInfo)           \
  F(clGetDeviceIDs)              \
  F(clGetDeviceInfo)             \
  F(clCreateContext)             \
  F(clCreateCommandQueue)        \
  F(clCreateProgramWithSource)   \
  F(clCreateProgramWithBinary)   \
  F(clBuildProgram)              \
  F(clGetProgramBuildInfo)       \
  F(clGetProgramInfo)            \
  F(clReleaseProgram)            \
  F(clCreateKernel)              \
  F(clReleaseKernel)             \
  F(clSetKernelArg)              \
  F(clEnqueueNDRangeKernel)      \
  F(clCreateBuffer)              \
  F(clReleaseMemObject)          \
  F(clEnqueueReadBuffer)         \
  F(clEnqueueWriteBuffer)        \
  F(clEnqueueMarkerWithWaitList) \
  F(clWaitForEvents)             \
  F(clGetEventProfilingInfo)     \
  F(clReleaseEvent)              \
  F(clFinish)
/// The functions of OpenCL 1.2 that are used here.
struct Api {
#define HYALITE_MEMBER(name) decltype(&::name) name = nullptr;
  HYALITE_CL_FUNCTIONS(HYALITE_MEMBER)
#undef HYALITE_MEMBER
};

/// The loader's functions; null where there is no loader, and why.
const Api* api(std::string* why = nullptr);

/// What a status means, as the standard spells it.
std::string status_name(cl_int status);

}  // namespace hyalite::opencl
