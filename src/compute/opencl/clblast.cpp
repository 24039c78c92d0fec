/// The functions of CLBlast's C interface, by name.
#include "compute/opencl/clblast.h"

#include <dlfcn.h>

#include <cstdlib>

namespace hyalite::opencl {
namespace {

// Values of CLBlast's enumerations, which are those of CBLAS.
constexpr int row_major = 101, as_it_is = 111, transposed = 112;

template <class T>
using Gemm = int (*)(int layout, int a_transpose, int b_transpose, std::size_t m, std::size_t n, std::size_t k, T alpha,
                     cl_mem a, std::size_t a_offset, std::size_t a_lead, cl_mem b, std::size_t b_offset,
                     std::size_t b_lead, T beta, cl_mem c, std::size_t c_offset, std::size_t c_lead,
                     cl_command_queue* queue, cl_event* event);
template <class T>
using BatchedGemm = int (*)(int layout, int a_transpose, int b_transpose, std::size_t m, std::size_t n, std::size_t k,
                            T alpha, cl_mem a, std::size_t a_offset, std::size_t a_lead, std::size_t a_stride, cl_mem b,
                            std::size_t b_offset, std::size_t b_lead, std::size_t b_stride, T beta, cl_mem c,
                            std::size_t c_offset, std::size_t c_lead, std::size_t c_stride, std::size_t batches,
                            cl_command_queue* queue, cl_event* event);
template <class T>
struct Routines {
  Gemm<T> one = nullptr;
  BatchedGemm<T> many = nullptr;
};
struct Library {
  std::string problem;
  Routines<cl_float> s;
  Routines<cl_double> d;
  Routines<cl_float2> c;
  Routines<cl_double2> z;
};

const Library& library() {
  static const Library loaded = [] {
    Library l;
    const char* const named = std::getenv("HYALITE_CLBLAST");
    const char* const path = named != nullptr ? named : "libclblast.so.1";
    void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      l.problem = std::string("CLBlast did not open: ") + dlerror() + "; install libclblast1";
      return l;
    }
    const auto find = [&]<class T>(Routines<T>& r, const std::string& letter) {
      const std::string name = "CLBlast" + letter + "gemm";
      r.one = reinterpret_cast<Gemm<T>>(dlsym(handle, name.c_str()));
      r.many = reinterpret_cast<BatchedGemm<T>>(dlsym(handle, (name + "StridedBatched").c_str()));
      if (r.one == nullptr || r.many == nullptr) l.problem = std::string(path) + " lacks " + name;
    };
    find(l.s, "S");
    find(l.d, "D");
    find(l.c, "C");
    find(l.z, "Z");
    return l;
  }();
  return loaded;
}

template <class T>
bool ask(ClDevice& d, const Routines<T>& r, T one, T zero, const char* name, const Product& p) {
  const auto at = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const auto way = [](const Matrix& m) { return m.transposed ? transposed : as_it_is; };
  return d.ask_library(name, p.rows * p.cols * p.batches, [&](cl_command_queue* queue) {
    if (p.batches == 1) {
      return r.one(row_major, way(p.a), way(p.b), at(p.rows), at(p.cols), at(p.inner), one, p.a.memory, at(p.a.offset),
                   at(p.a.lead), p.b.memory, at(p.b.offset), at(p.b.lead), zero, p.out.memory, at(p.out.offset),
                   at(p.out.lead), queue, nullptr);
    }
    return r.many(row_major, way(p.a), way(p.b), at(p.rows), at(p.cols), at(p.inner), one, p.a.memory, at(p.a.offset),
                  at(p.a.lead), at(p.a.batch), p.b.memory, at(p.b.offset), at(p.b.lead), at(p.b.batch), zero,
                  p.out.memory, at(p.out.offset), at(p.out.lead), at(p.out.batch), at(p.batches), queue, nullptr);
  });
}

}  // namespace

const std::string& clblast_problem() { return library().problem; }

bool clblast_product(ClDevice& d, const Product& p) {
  const Library& l = library();
  if (!l.problem.empty()) return false;
  switch (p.dtype) {
    case Dtype::float32:
      return ask(d, l.s, 1.0F, 0.0F, "CLBlastSgemm", p);
    case Dtype::float64:
      return ask(d, l.d, 1.0, 0.0, "CLBlastDgemm", p);
    case Dtype::complex64:
      return ask(d, l.c, cl_float2{{1, 0}}, cl_float2{{0, 0}}, "CLBlastCgemm", p);
    case Dtype::complex128:
      return ask(d, l.z, cl_double2{{1, 0}}, cl_double2{{0, 0}}, "CLBlastZgemm", p);
    default:
      return false;
  }
}

}  // namespace hyalite::opencl
