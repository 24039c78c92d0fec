/// Runs every generated OpenCL kernel, forward and gradient, on PoCL and compares it with the CPU's kernel.
///
/// Kernels of exact operations must give the same bits (any NaN for a NaN, unless nothing is computed). The others are
/// evaluated in long double with a running bound of their error, from the ULP of primitives.h; the two results may
/// differ by the sum of their bounds, and the device's from the evaluation by one. The device's forward ops are also
/// held against the true value: within the op's declared ULP, for complex values within 4 of the norm.
/// HYALITE_SHOW_ULP=1 prints the worst of each.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "compute/codegen/registry.h"
#include "compute/cpu/kernels.h"
#include "expr_reference.h"
#include "ops/elementwise.h"
#include "ops/mark.h"
#include "tensor/float_formats.h"

namespace hyalite {
namespace {

using reference::Bounded;
using reference::Real;
using reference::Value;

constexpr std::size_t count = 3072;

/// `count` elements of one dtype, as bytes.
struct Column {
  Dtype dtype = Dtype::boolean;
  std::vector<std::uint8_t> bytes;

  Column() = default;
  explicit Column(Dtype t) : dtype(t), bytes(count * itemsize(t)) {}
  template <class T>
  T at(std::size_t i) const {
    T v;
    std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v);
    return v;
  }
  template <class T>
  void set(std::size_t i, T v) {
    std::memcpy(bytes.data() + i * sizeof v, &v, sizeof v);
  }
  std::uint64_t word(std::size_t i) const {
    std::uint64_t w = 0;
    std::memcpy(&w, bytes.data() + i * itemsize(dtype), std::min<std::size_t>(8, itemsize(dtype)));
    return w;
  }
  /// A floating or boolean element.
  Value value(std::size_t i) const {
    switch (dtype) {
      case Dtype::boolean:
        return at<std::uint8_t>(i);
      case Dtype::float16:
        return decode_float<Dtype::float16>(at<std::uint16_t>(i));
      case Dtype::bfloat16:
        return decode_float<Dtype::bfloat16>(at<std::uint16_t>(i));
      case Dtype::float32:
        return at<float>(i);
      case Dtype::float64:
        return at<double>(i);
      case Dtype::complex64:
        return {at<float>(2 * i), at<float>(2 * i + 1)};
      case Dtype::complex128:
        return {at<double>(2 * i), at<double>(2 * i + 1)};
      default:
        ADD_FAILURE() << "value() of an integer";
        return 0;
    }
  }
};

/// float16 and bfloat16 as the float32 the CPU computes in; others as they are.
Column widened(const Column& c) {
  if (computed_in(c.dtype) == c.dtype) return c;
  Column r(Dtype::float32);
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = c.at<std::uint16_t>(i);
    r.set(i, c.dtype == Dtype::float16 ? decode_float<Dtype::float16, float>(bits)
                                       : decode_float<Dtype::bfloat16, float>(bits));
  }
  return r;
}
Column narrowed(const Column& c, Dtype to) {
  if (c.dtype == to) return c;
  Column r(to);
  for (std::size_t i = 0; i < count; ++i) {
    const float x = c.at<float>(i);
    r.set(i, to == Dtype::float16 ? encode_float<Dtype::float16>(x) : encode_float<Dtype::bfloat16>(x));
  }
  return r;
}

// ---------------------------------------------------------------------------------------------------------- inputs

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double specials[] = {0.0,
                               -0.0,
                               1.0,
                               -1.0,
                               0.5,
                               -0.5,
                               2.0,
                               -2.0,
                               3.0,
                               -3.0,
                               inf,
                               -inf,
                               NAN,
                               1e-20,
                               -1e10,
                               88.5,
                               -88.5,
                               -103.7,
                               709.5,
                               -745.0,
                               3.14159265358979,
                               1.0000001,
                               0.9999999,
                               5.5,
                               -9.25,
                               1e300,
                               -1e-310,
                               16777216.0,
                               1.5707963267948966,
                               1e-3,
                               -17.5,
                               4.9e-324};

class Inputs {
 public:
  explicit Inputs(unsigned seed) : random_(seed) {}

  Column column(Dtype t, int operand) {
    Column c(t);
    for (std::size_t i = 0; i < count; ++i) fill(c, i, operand);
    return c;
  }

 private:
  /// Pairs of specials come first in a grid over operands 0 and 1, then specials at random, then numbers at random.
  double number(std::size_t i, int operand, Dtype t) {
    const std::size_t n = std::size(specials);
    if (i < n * n) {
      if (operand == 0) return special(i % n, t);
      if (operand == 1) return special(i / n, t);
      return special((i * 7 + i / n) % n, t);
    }
    if (i < n * n + 512) return special(random_() % n, t);
    const double sign = random_() % 2 == 0 ? 1 : -1, unit = static_cast<double>(random_()) / 4294967296.0;
    switch (i % 4) {
      case 0:
        return sign * 4 * unit;
      case 1:
        return sign * 100 * unit;
      case 2:
        return sign * std::ldexp(1 + unit, static_cast<int>(random_() % 40) - 20);
      default:
        return sign * std::ldexp(1 + unit, static_cast<int>(random_() % exponents(t)) - exponents(t) / 2);
    }
  }
  static int exponents(Dtype t) { return real_part(t) == Dtype::float64 ? 2040 : t == Dtype::float16 ? 30 : 250; }
  /// The least subnormal and numbers near the largest, of the dtype itself.
  static double special(std::size_t k, Dtype t) {
    const bool wide = real_part(t) == Dtype::float64;
    const double s = specials[k];
    if (s == 4.9e-324) return wide ? s : t == Dtype::float16 ? 5.97e-8 : t == Dtype::bfloat16 ? 9.2e-41 : 1.4e-45;
    if (s == 1e300) return wide ? s : t == Dtype::float16 ? 65504.0 : 3.3e38;
    if (s == -1e-310) return wide ? s : t == Dtype::float16 ? -3e-6 : -1e-40;
    return s;
  }
  static constexpr std::int64_t integers[] = {0, 1, -1, 2, -2, 3, 7, -7, 8, 10, 15, 16, 31, 32, 63, 64, 100, -100};
  std::uint64_t integer(std::size_t i, int operand, int width) {
    const std::size_t n = std::size(integers) + 4;
    std::size_t k = i < n * n ? (operand == 0 ? i % n : operand == 1 ? i / n : (i * 5 + i / n) % n) : random_() % n;
    if (i >= n * n + 512) return (std::uint64_t{random_()} << 32 | random_()) >> (random_() % width);
    const std::uint64_t high = std::uint64_t{1} << (width - 1);
    const std::uint64_t edges[] = {high, high - 1, high + 1, ~std::uint64_t{0}};
    return k < 4 ? edges[k] : static_cast<std::uint64_t>(integers[k - 4]);
  }
  void fill(Column& c, std::size_t i, int operand) {
    const Dtype t = c.dtype;
    if (t == Dtype::boolean) return c.set(i, static_cast<std::uint8_t>((i >> operand & 1) ^ (i / 64 & 1)));
    if (kind(t) == Kind::integer) {
      const std::uint64_t v = integer(i, operand, static_cast<int>(8 * itemsize(t)));
      std::memcpy(c.bytes.data() + i * itemsize(t), &v, itemsize(t));
      return;
    }
    const double x = number(i, operand, t);
    // The two parts of one complex operand are the grid, if they are the first operand.
    const double y = is_complex(t) ? number(i, operand == 0 ? 1 : 2, t) : 0;
    switch (t) {
      case Dtype::float16:
        return c.set(i, encode_float<Dtype::float16>(x));
      case Dtype::bfloat16:
        return c.set(i, encode_float<Dtype::bfloat16>(x));
      case Dtype::float32:
        return c.set(i, static_cast<float>(x));
      case Dtype::float64:
        return c.set(i, x);
      case Dtype::complex64:
        c.set(2 * i, static_cast<float>(x));
        return c.set(2 * i + 1, static_cast<float>(y));
      default:
        c.set(2 * i, x);
        return c.set(2 * i + 1, y);
    }
  }
  std::mt19937 random_;
};

// ---------------------------------------------------------------------------------------------------------- OpenCL

void check(cl_int status, const char* call) {
  if (status != CL_SUCCESS) throw std::runtime_error(std::string(call) + ": OpenCL error " + std::to_string(status));
}

/// The first OpenCL device with float64.
class Device {
 public:
  Device() {
    cl_platform_id platforms[8];
    cl_uint found = 0;
    check(clGetPlatformIDs(8, platforms, &found), "clGetPlatformIDs");
    for (cl_uint p = 0; p < found && device_ == nullptr; ++p) {
      cl_device_fp_config wide = 0;
      if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 1, &device_, nullptr) != CL_SUCCESS) continue;
      check(clGetDeviceInfo(device_, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof wide, &wide, nullptr), "clGetDeviceInfo");
      if (wide == 0) device_ = nullptr;
    }
    if (device_ == nullptr) throw std::runtime_error("no OpenCL device with float64");
    cl_int status = 0;
    context_ = clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &status);
    check(status, "clCreateContext");
    queue_ = clCreateCommandQueue(context_, device_, 0, &status);
    check(status, "clCreateCommandQueue");
  }
  ~Device() {
    clReleaseCommandQueue(queue_);
    clReleaseContext(context_);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  cl_program build(const std::string& text) const {
    const char* pointer = text.c_str();
    cl_int status = 0;
    cl_program program = clCreateProgramWithSource(context_, 1, &pointer, nullptr, &status);
    check(status, "clCreateProgramWithSource");
    cl_device_fp_config single = 0;
    check(clGetDeviceInfo(device_, CL_DEVICE_SINGLE_FP_CONFIG, sizeof single, &single, nullptr), "clGetDeviceInfo");
    EXPECT_NE(single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, 0u) << "this device cannot divide correctly rounded";
    std::string options;
    for (std::string_view o : compile_options(Language::opencl)) options += std::string(o) + " ";
    if (clBuildProgram(program, 1, &device_, options.c_str(), nullptr, nullptr) != CL_SUCCESS) {
      std::string log(1 << 16, '\0');
      clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, log.size(), log.data(), nullptr);
      throw std::runtime_error("clBuildProgram: " + std::string(log.c_str()));
    }
    return program;
  }

  /// Runs a kernel of a program; `columns` are its arguments but attributes, outputs last.
  void run(cl_program program, const KernelSignature& signature, const std::vector<const Column*>& inputs,
           const std::vector<double>& attributes, std::vector<Column>& outputs) const {
    cl_int status = 0;
    cl_kernel kernel = clCreateKernel(program, signature.name.c_str(), &status);
    check(status, "clCreateKernel");
    const cl_long n = count;
    check(clSetKernelArg(kernel, 0, sizeof n, &n), "clSetKernelArg");
    std::vector<cl_mem> buffers;
    std::size_t input = 0, output = 0, attribute = 0;
    cl_uint place = 1;
    for (const Argument& a : signature.arguments) {
      if (a.is_attribute) {
        const double wide = attributes[attribute++];
        const float single = static_cast<float>(wide);
        const bool is_wide = a.dtype == Dtype::float64;
        check(clSetKernelArg(kernel, place++, itemsize(a.dtype), is_wide ? static_cast<const void*>(&wide) : &single),
              "clSetKernelArg");
        continue;
      }
      const Column& c = a.is_output ? outputs[output++] : *inputs[input++];
      buffers.push_back(clCreateBuffer(context_, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, c.bytes.size(),
                                       const_cast<std::uint8_t*>(c.bytes.data()), &status));
      check(status, "clCreateBuffer");
      check(clSetKernelArg(kernel, place++, sizeof(cl_mem), &buffers.back()), "clSetKernelArg");
    }
    // Two threads for all elements; a group of one compiles fastest.
    const std::size_t global = 2, local = 1;
    check(clEnqueueNDRangeKernel(queue_, kernel, 1, nullptr, &global, &local, 0, nullptr, nullptr),
          "clEnqueueNDRangeKernel");
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      check(clEnqueueReadBuffer(queue_, buffers[inputs.size() + k], CL_TRUE, 0, outputs[k].bytes.size(),
                                outputs[k].bytes.data(), 0, nullptr, nullptr),
            "clEnqueueReadBuffer");
    }
    for (cl_mem b : buffers) clReleaseMemObject(b);
    clReleaseKernel(kernel);
  }

 private:
  cl_device_id device_ = nullptr;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
};

// ------------------------------------------------------------------------------------------------------------- ops

/// An op without its type.
struct Op {
  std::string_view name;
  OpSchema schema;
  int index, arity, outputs;
  std::vector<double> attributes;
  std::vector<GradientReads> reads;
};

template <class O>
Op described() {
  Op op{O::schema.name, O::schema, IndexIn<O, Elementwise>::value, O::arity, O::outputs, {}, {}};
  for (const GradientReads& r : gradient_reads<O>()) op.reads.push_back(r);
  if constexpr (HasAttr<O>) {
    const auto defaults = std::bit_cast<std::array<double, attr_count<O>>>(typename O::template Attr<double>{});
    op.attributes.assign(defaults.begin(), defaults.end());
  }
  return op;
}

std::vector<Op> ops_of(Dtype dtype) {
  std::vector<Op> ops;
  Elementwise::for_each([&]<class O>() {
    if (contains(O::schema.types, dtype)) ops.push_back(described<O>());
  });
  return ops;
}

/// One kernel, what it is of, and whether it must give the CPU's bits.
struct Case {
  Op op;
  int operand;  ///< of which it is the gradient, or forward_kernel
  ExprKernel kernel;
  int real_operand = -1;  ///< the operand that is real beside a complex one
  bool nothings = false;  ///< the incoming gradient may be nothing somewhere

  bool all(bool (*test)(const ExprNode&)) const {
    for (const Expr& r : kernel.results) {
      if (reference::any_node(r.node(), [&](const ExprNode& n) { return !test(n); })) return false;
    }
    return true;
  }
  bool exact() const {
    return all([](const ExprNode& n) { return !reference::is_inexact(n); });
  }
  /// Has a quotient of complex values.
  bool divides() const {
    return !all([](const ExprNode& n) { return n.op != ExprOp::divide || !is_complex(n.in[1]->dtype); });
  }
  /// Has a power of complex values.
  bool powers() const {
    return !all([](const ExprNode& n) { return n.op != ExprOp::power || !is_complex(n.dtype); });
  }
  /// Only moves values and signs: NaN keeps its bits.
  bool moves() const {
    return all([](const ExprNode& n) {
      return n.op <= ExprOp::negative || n.op == ExprOp::select || n.op == ExprOp::copysign || n.op == ExprOp::conj ||
             n.dtype == Dtype::boolean;
    });
  }
};

/// The worst errors seen of one kernel.
struct Worst {
  Real device = 0, cpu = 0;
  std::size_t skipped = 0;  ///< where a rounding decides between two results
};

class OpenclKernels : public testing::TestWithParam<Dtype> {
 protected:
  void SetUp() override {
    for (const Op& op : ops_of(dtype_)) {
      const int gradients = is_differentiable(dtype_) ? op.arity : 0;
      for (int i = forward_kernel; i < gradients; ++i) {
        if (auto k = elementwise_kernel(op.name, dtype_, i)) cases_.push_back({op, i, *std::move(k)});
        if (i == forward_kernel || op.reads[i].passes_g || op.reads[i].reads == 0) continue;
        cases_.push_back({op, i, *elementwise_kernel(op.name, dtype_, i, true), -1, true});
      }
      for (int i = 0; op.schema.real_with_complex && is_complex(dtype_) && i < op.arity; ++i) {
        cases_.push_back({op, forward_kernel, real_operand_kernel(op.name, dtype_, i), i});
      }
    }
    std::vector<ExprKernel> kernels;
    for (const Case& c : cases_) kernels.push_back(c.kernel);
    program_ = device_.build(program_source(Language::opencl, kernels));
  }
  void TearDown() override { clReleaseProgram(program_); }

  /// All leaves of a gradient (mark.h); of a forward kernel the operands are leaves 1, 2, ...
  std::vector<Column> leaves(const Op& op) {
    Inputs inputs(static_cast<unsigned>(op.index * 31 + static_cast<int>(dtype_)));
    const Dtype result = result_dtype(op);
    std::vector<Column> leaves{inputs.column(result, 2)};
    for (int i = 0; i < op.arity; ++i) {
      leaves.push_back(inputs.column(op.schema.is_condition(0) && i == 0 ? Dtype::boolean : dtype_, i));
    }
    if (op.schema.check == Check::integer_exponent && kind(dtype_) == Kind::integer) {
      for (std::size_t i = 0; i < count; ++i) leaves[2].bytes[(i + 1) * itemsize(dtype_) - 1] &= 0x7f;
    }
    for (int k = 0; k < op.outputs; ++k) leaves.emplace_back(result);
    std::vector<const Column*> in;
    std::vector<Column*> out;
    for (int i = 0; i < op.arity; ++i) in.push_back(&leaves[1 + i]);
    for (int k = 0; k < op.outputs; ++k) out.push_back(&leaves[1 + op.arity + k]);
    on_cpu(cpu::kernels().forward[op.index][kernel_dtype()], in, out, op.attributes);
    for (int k = 1; k < op.outputs; ++k) leaves.push_back(inputs.column(result, 1));
    return leaves;
  }

  Dtype result_dtype(const Op& op) const { return op.schema.result_dtype(dtype_); }
  int kernel_dtype() const { return static_cast<int>(computed_in(dtype_)); }

  static void on_cpu(cpu::ElementwiseFn f, const std::vector<const Column*>& in, const std::vector<Column*>& out,
                     const std::vector<double>& attributes) {
    ASSERT_NE(f, nullptr);
    std::vector<Column> wide_in, wide_out;
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const Column* c : in) wide_in.push_back(c != nullptr ? widened(*c) : Column());
    for (const Column* c : out) wide_out.emplace_back(computed_in(c->dtype));
    for (const Column& c : wide_in) from.push_back(c.bytes.data());
    for (Column& c : wide_out) to.push_back(c.bytes.data());
    f(from.data(), to.data(), count, attributes.data(), false);
    for (std::size_t k = 0; k < out.size(); ++k) *out[k] = narrowed(wide_out[k], out[k]->dtype);
  }

  /// The result on the CPU. It has no kernel for a gradient that is a leaf or a constant.
  std::vector<Column> expected(const Case& c, const std::vector<Column>& leaves) {
    std::vector<Column> out;
    for (const Argument& a : c.kernel.signature.arguments) {
      if (a.is_output) out.emplace_back(a.dtype);
    }
    const auto& table = cpu::kernels();
    const cpu::ElementwiseFn f = c.real_operand >= 0 ? table.real_operand[c.op.index][c.real_operand][kernel_dtype()]
                                 : c.operand == forward_kernel ? table.forward[c.op.index][kernel_dtype()]
                                                               : table.gradient[c.op.index][c.operand][kernel_dtype()];
    if (f != nullptr) {
      std::vector<const Column*> in;
      std::vector<Column*> to;
      for (std::size_t i = c.operand == forward_kernel ? 1 : 0; i < leaves.size(); ++i) in.push_back(&leaves[i]);
      for (Column& column : out) to.push_back(&column);
      std::vector<double> attributes = c.op.attributes;
      if (c.operand != forward_kernel) {
        const double tiny = dtype_ == Dtype::float16 ? 0x1p-25 : dtype_ == Dtype::bfloat16 ? 0x1p-134 : 0;
        attributes.push_back(c.nothings || c.op.reads[c.operand].makes_nothing ? tiny : -1);
        attributes.push_back(c.nothings ? 1 : 0);
      }
      on_cpu(f, in, to, attributes);
    } else if (const ExprNode* n = core(c.kernel.results[0].node()); n->op == ExprOp::constant) {
      EXPECT_EQ(n->value, 0) << "a gradient that is a constant other than zero has a kernel";
    } else {
      EXPECT_EQ(n->op, ExprOp::leaf);
      out[0] = leaves[c.kernel.signature.arguments[n->index].leaf];
    }
    return out;
  }
  static const ExprNode* core(const ExprNode& n) {
    return n.op == ExprOp::encode || n.op == ExprOp::decode ? core(*n.in[0]) : &n;
  }

  Worst compare(const Case& c, const std::vector<const Column*>& inputs, const Column& device, const Column& cpu,
                const Expr& result);
  void compare_bits(const Case& c, const Column& device, const Column& cpu);

  const Dtype dtype_ = GetParam();
  Device device_;
  cl_program program_ = nullptr;
  std::vector<Case> cases_;
};

std::string text(Value v) {
  std::ostringstream s;
  s << std::hexfloat << static_cast<double>(v.real()) << ", " << static_cast<double>(v.imag()) << std::defaultfloat
    << " (" << v.real() << ", " << v.imag() << ")";
  return s.str();
}

bool same_real(Real a, Real b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}
bool same(Value a, Value b) { return same_real(a.real(), b.real()) && same_real(a.imag(), b.imag()); }

void OpenclKernels::compare_bits(const Case& c, const Column& device, const Column& cpu) {
  const bool may_differ_in_nan = kind(device.dtype) >= Kind::floating && !c.moves();
  int wrong = 0;
  for (std::size_t i = 0; i < count && wrong < 3; ++i) {
    const std::size_t size = itemsize(device.dtype);
    if (std::memcmp(device.bytes.data() + i * size, cpu.bytes.data() + i * size, size) == 0) continue;
    if (may_differ_in_nan && same(device.value(i), cpu.value(i))) continue;
    ++wrong;
    ADD_FAILURE() << c.kernel.signature.name << " element " << i << ": bits " << std::hex << device.word(i)
                  << ", on the CPU " << cpu.word(i);
  }
}

bool infinite(Value v) { return std::isinf(v.real()) || std::isinf(v.imag()); }

/// Distance in units in the last place of a result of that dtype.
Real ulps(Value a, Value truth, Dtype t) {
  if (!reference::finite(truth)) return 0;
  const Dtype r = real_part(t);
  const int digits = r == Dtype::float64 ? 53 : 24, smallest = r == Dtype::float64 ? -1074 : -149;
  const Real size = reference::norm(truth);
  const int exponent = size == 0 ? smallest : std::max(smallest, std::ilogb(size) - digits + 1);
  return reference::norm(a - truth) / std::ldexp(Real{1}, exponent);
}

/// Results of which one is not finite: equal by part, as far as parts are exact.
bool same_special(Value a, Value b, Dtype t) {
  auto same_part = [&](Real x, Real y) {
    return same_real(x, y) || x == y || std::fabs(x - y) <= 8 * reference::epsilon(t) * std::fabs(y);
  };
  return is_complex(t) ? same_part(a.real(), b.real()) && same_part(a.imag(), b.imag()) : same(a, b);
}

/// Rounding to float16 and bfloat16 after different float32 results.
Real rounding_of(Dtype t, Value v) {
  if (computed_in(t) == t) return 0;
  const bool half = t == Dtype::float16;
  return std::max(std::ldexp(reference::norm(v), half ? -10 : -7), std::ldexp(Real{1}, half ? -24 : -133));
}

/// x / 2 erfc(-x / sqrt 2), with the rounding of erfc's argument made good to first order.
Real gelu(Real x) {
  const Real root = 0.70710678118654752440084436210484903928L, t = -root * x;
  const Real rest = std::fma(-root, x, -t), slope = -1.12837916709551257389615890312154517L * std::exp(-t * t);
  return x / 2 * (std::erfc(t) + slope * rest);
}
Real sigmoid(Real x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

/// Ops whose formula is more than one primitive, by their definition: a wrong constant in the formula must show.
struct Definition {
  std::string_view op;
  Real (*value)(Real);
};
constexpr Definition definitions[] = {{"gelu", gelu}, {"sigmoid", sigmoid}};

/// One part is the same infinity, and the other a number, of which a sum of products may have cancelled most.
bool number_beside_infinity(Value a, Value b) {
  if (std::isinf(a.real())) return a.real() == b.real() && std::isfinite(a.imag()) && std::isfinite(b.imag());
  return std::isinf(a.imag()) && a.imag() == b.imag() && std::isfinite(a.real()) && std::isfinite(b.real());
}

/// Why two results that may differ a little differ too much, or empty.
std::string disagreement(const Case& c, Value device, Value cpu, const Bounded& bound, Dtype result, Dtype dtype) {
  if (!reference::finite(cpu) || !reference::finite(device)) {
    // Of complex quotients Annex G says only that they are infinite, if any part is. libgcc's of complex128 is NaN
    // where a subnormal divisor should give infinity; long double's is not.
    const bool agree = same_special(device, cpu, dtype) ||
                       (is_complex(dtype) && same_special(device, bound.value, dtype)) ||
                       (is_complex(dtype) && number_beside_infinity(device, cpu)) ||
                       (c.divides() && infinite(device) && (infinite(cpu) || infinite(bound.value)));
    return agree ? "" : "another special value";
  }
  const Real room = bound.error + rounding_of(result, cpu);
  if (reference::norm(device - bound.value) > room) return "further from the truth than its bound";
  return reference::norm(device - cpu) > 2 * room ? "further apart than both may be from the truth" : "";
}

Worst OpenclKernels::compare(const Case& c, const std::vector<const Column*>& inputs, const Column& device,
                             const Column& cpu, const Expr& result) {
  Worst worst;
  const bool has_ulp = c.operand == forward_kernel && computed_in(dtype_) == dtype_;
  // b log a may have no correct digit in a power of complex numbers; where it has, the result does.
  const bool may_be_hopeless = has_ulp && c.powers();
  int wrong = 0;
  for (std::size_t i = 0; i < count && wrong < 3; ++i) {
    auto argument = [&](int index) -> Value {
      const Argument& a = c.kernel.signature.arguments[static_cast<std::size_t>(index)];
      if (!a.is_attribute) return inputs[static_cast<std::size_t>(index)]->value(i);
      const double v = c.op.attributes[static_cast<std::size_t>(a.leaf)];
      return a.dtype == Dtype::float64 ? v : static_cast<float>(v);
    };
    const Value d = device.value(i), h = cpu.value(i);
    const Bounded bound = reference::Evaluator(reference::Mode::rounded, argument)(result.node());
    if (!std::isfinite(bound.error)) {
      ++worst.skipped;
      continue;
    }
    const std::string problem = disagreement(c, d, h, bound, device.dtype, dtype_);
    if (!problem.empty()) {
      ++wrong;
      std::string given;
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        given += "\n  " + c.kernel.signature.arguments[k].name + " = " + text(inputs[k]->value(i));
      }
      ADD_FAILURE() << c.kernel.signature.name << " element " << i << ": " << problem << given << "\n  device "
                    << text(d) << "\n  CPU    " << text(h) << "\n  about  " << text(bound.value) << ", give or take "
                    << bound.error;
    } else if (has_ulp && reference::finite(d) && reference::finite(h)) {
      if (may_be_hopeless && bound.error > 8 * reference::epsilon(dtype_) * reference::norm(h)) continue;
      Value truth = reference::Evaluator(reference::Mode::exact, argument)(result.node()).value;
      for (const Definition& known : definitions) {
        if (known.op == c.op.name) truth = known.value(argument(0).real());
      }
      if (!(reference::norm(truth) < reference::greatest(dtype_))) continue;
      worst.device = std::max(worst.device, ulps(d, truth, device.dtype));
      worst.cpu = std::max(worst.cpu, ulps(h, truth, device.dtype));
    }
  }
  return worst;
}

TEST_P(OpenclKernels, AgreeWithTheCpu) {
  int exact = 0, inexact = 0;
  for (const Case& c : cases_) {
    std::vector<Column> all = leaves(c.op);
    if (c.real_operand >= 0) {
      all[1 + c.real_operand] = Inputs(static_cast<unsigned>(c.op.index)).column(real_part(dtype_), c.real_operand);
    }
    std::vector<const Column*> inputs;
    std::vector<Column> outputs;
    for (const Argument& a : c.kernel.signature.arguments) {
      if (a.is_output) outputs.emplace_back(a.dtype);
      if (!a.is_output && !a.is_attribute) inputs.push_back(&all[a.leaf + (c.operand == forward_kernel ? 1 : 0)]);
    }
    device_.run(program_, c.kernel.signature, inputs, c.op.attributes, outputs);
    const std::vector<Column> cpu = expected(c, all);
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      if (c.exact()) {
        ++exact;
        compare_bits(c, outputs[k], cpu[k]);
        continue;
      }
      ++inexact;
      const Worst worst = compare(c, inputs, outputs[k], cpu[k], c.kernel.results[k]);
      // Of powers of powers, which only gradients of gradients are, most leave the range.
      const std::size_t uncertain = c.op.name == "pow_term" ? count / 8 * 7 : count / 2;
      EXPECT_LT(worst.skipped, uncertain) << c.kernel.signature.name << ": too few comparisons are certain";
      // Of complex values the norm of the error counts, for which an op declares no number of its own.
      // The parts of gradients are of several steps each.
      const double complex_ulp = c.op.schema.internal ? 2 * reference::complex_ulp : reference::complex_ulp;
      const double declared = is_complex(dtype_) ? complex_ulp : c.op.schema.ulp;
      EXPECT_LE(worst.device, declared) << c.kernel.signature.name << "; the CPU's worst is " << worst.cpu << " ULP";
      if (std::getenv("HYALITE_SHOW_ULP") != nullptr) {
        std::printf("%-40s declared %4.1f  device %8.3f  CPU %8.3f  skipped %zu\n", c.kernel.signature.name.c_str(),
                    declared, static_cast<double>(worst.device), static_cast<double>(worst.cpu), worst.skipped);
      }
    }
  }
  RecordProperty("exact_kernels", exact);
  RecordProperty("other_kernels", inexact);
}

std::vector<Dtype> tested_dtypes() {
  std::vector<Dtype> t;
  for (int i = 0; i < dtype_count; ++i) {
    if (contains(all_types, static_cast<Dtype>(i))) t.push_back(static_cast<Dtype>(i));
  }
  return t;
}
INSTANTIATE_TEST_SUITE_P(Dtypes, OpenclKernels, testing::ValuesIn(tested_dtypes()),
                         [](const auto& given) { return std::string(name(given.param)); });

}  // namespace
}  // namespace hyalite
