/// Tests of the generated kernels' text: golden files, signatures, errors, and NVRTC compiling every CUDA kernel.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "compute/codegen/registry.h"
#include "hyalite/error.h"
#include "ops/elementwise.h"
#include "ops/mark.h"

namespace hyalite {
namespace {

/// Every kernel of a dtype.
std::vector<ExprKernel> kernels_of(Dtype dtype) {
  std::vector<ExprKernel> kernels;
  Elementwise::for_each([&]<class Op>() {
    if (!contains(Op::schema.types, dtype)) return;
    const int gradients = is_differentiable(dtype) ? Op::arity : 0;
    for (int i = forward_kernel; i < gradients; ++i) {
      if (auto k = elementwise_kernel(Op::schema.name, dtype, i)) kernels.push_back(*std::move(k));
    }
    for (int i = 0; Op::schema.real_with_complex && is_complex(dtype) && i < Op::arity; ++i) {
      kernels.push_back(real_operand_kernel(Op::schema.name, dtype, i));
    }
  });
  return kernels;
}

// ---------------------------------------------------------------------------------------------------------- golden

struct Golden {
  std::string_view op;
  Dtype dtype;
  int operand;
};

/// Each shows something no other does.
constexpr Golden golden[] = {
    {"add", Dtype::float32, -1},         // the simplest
    {"add", Dtype::int16, -1},           // wrapping
    {"multiply", Dtype::boolean, -1},    // booleans
    {"multiply", Dtype::complex64, -1},  // Annex G
    {"divmod", Dtype::float64, -1},      // two results
    {"floor_divide", Dtype::int32, -1},  // guarded division
    {"where", Dtype::float16, -1},       // a condition; float16 at both ends
    {"leaky_relu", Dtype::float32, -1},  // an attribute
    {"less", Dtype::uint64, -1},         // a boolean result
    {"sigmoid", Dtype::bfloat16, -1},    // values used twice; bfloat16
    {"maximum", Dtype::float32, 0},      // nested selects
    {"gelu", Dtype::float64, 0},         // constants
    {"pow", Dtype::complex128, 1},       // complex functions
    {"abs", Dtype::complex64, 0},        // real with complex
};

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class GoldenText : public testing::TestWithParam<Golden> {};

TEST_P(GoldenText, IsUnchanged) {
  const auto [op, dtype, operand] = GetParam();
  const std::string kernel = generated_signature(op, dtype, operand).name;
  for (const Language language : {Language::cuda, Language::opencl}) {
    const std::string path =
        std::string(HYALITE_SOURCE_DIR) + "/tests/golden/" + kernel + (language == Language::cuda ? ".cu" : ".cl");
    const std::string text = generated_source(op, dtype, language, operand);
    EXPECT_EQ(text, generated_source(op, dtype, language, operand));
    if (std::getenv("HYALITE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
    EXPECT_EQ(text, read(path)) << path << "; HYALITE_UPDATE_GOLDEN=1 rewrites it";
  }
}
INSTANTIATE_TEST_SUITE_P(Kernels, GoldenText, testing::ValuesIn(golden), [](const auto& given) {
  return generated_signature(given.param.op, given.param.dtype, given.param.operand).name;
});

// ------------------------------------------------------------------------------------------------------ signatures

TEST(Signature, OfForwardTakesAllOperandsThenAttributesThenOutputs) {
  const KernelSignature s = generated_signature("leaky_relu", Dtype::bfloat16);
  EXPECT_EQ(s.name, "hyalite_leaky_relu_bfloat16");
  ASSERT_EQ(s.arguments.size(), 3u);
  EXPECT_EQ(s.arguments[0].name, "x");
  EXPECT_EQ(s.arguments[0].dtype, Dtype::bfloat16);
  EXPECT_EQ(s.arguments[1].name, "slope");
  EXPECT_EQ(s.arguments[1].dtype, Dtype::float32);
  EXPECT_TRUE(s.arguments[1].is_attribute);
  EXPECT_EQ(s.arguments[2].name, "out");
  EXPECT_TRUE(s.arguments[2].is_output);
}

TEST(Signature, OfDivmodHasTwoOutputs) {
  const KernelSignature s = generated_signature("divmod", Dtype::int8);
  ASSERT_EQ(s.arguments.size(), 4u);
  EXPECT_TRUE(s.arguments[2].is_output && s.arguments[3].is_output);
  EXPECT_EQ(s.arguments[3].leaf, 1);
}

TEST(Signature, OfGradientsTakesTheLeavesThatMarkSays) {
  Elementwise::for_each([&]<class Op>() {
    constexpr auto reads = gradient_reads<Op>();
    for (const Dtype dtype : {Dtype::float32, Dtype::complex64}) {
      if (!contains(Op::schema.types, dtype)) continue;
      for (int i = 0; i < Op::arity; ++i) {
        const auto kernel = elementwise_kernel(Op::schema.name, dtype, i);
        ASSERT_EQ(kernel.has_value(), reads[i].exists) << Op::schema.name;
        std::uint32_t taken = 0;
        if (kernel) {
          for (const Argument& a : kernel->signature.arguments) {
            if (!a.is_output && !a.is_attribute) taken |= 1u << a.leaf;
          }
        }
        EXPECT_EQ(taken, reads[i].reads) << Op::schema.name << " operand " << i;
      }
    }
  });
}

template <class E>
std::string message(std::string_view op, Dtype dtype, int operand) {
  try {
    generated_source(op, dtype, Language::opencl, operand);
  } catch (const E& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Registry, NamesWhatIsWrong) {
  EXPECT_EQ(message<ValueError>("ad", Dtype::int8, -1), "generated_source(): no elementwise op is called ad");
  EXPECT_EQ(message<ValueError>("add", Dtype::float32, 2),
            "generated_source(): add has 2 operands, the first of them 0; got 2");
  EXPECT_EQ(message<ValueError>("less", Dtype::float32, 0), "generated_source(): less has no gradient for operand 0");
  EXPECT_EQ(message<DtypeMismatch>("sqrt", Dtype::int32, -1), "generated_source(): sqrt has no int32");
  EXPECT_EQ(message<DtypeMismatch>("add", Dtype::int32, 0), "generated_source(): add has no gradient of int32");
}

TEST(Registry, AllowsARealOperandBesideAComplexOneWhereTheOpDoes) {
  const KernelSignature s = real_operand_kernel("divide", Dtype::complex64, 0).signature;
  EXPECT_EQ(s.name, "hyalite_divide_real_x1_complex64");
  EXPECT_EQ(s.arguments[0].dtype, Dtype::float32);
  EXPECT_EQ(s.arguments[1].dtype, Dtype::complex64);
  EXPECT_THROW(real_operand_kernel("divide", Dtype::float32, 0), DtypeMismatch);
  EXPECT_THROW(real_operand_kernel("pow", Dtype::complex64, 0), DtypeMismatch);
  EXPECT_THROW(real_operand_kernel("add", Dtype::complex64, 2), ValueError);
}

TEST(Text, ComputesSharedValuesOnce) {
  const Expr x = Expr::leaf(0, Dtype::float32);
  // Two nodes of the same meaning, not one node twice.
  const Expr twice = (x * x) + (Expr::leaf(0, Dtype::float32) * x);
  const ExprKernel kernel{{"k", {{"x", Dtype::float32}, {"out", Dtype::float32, true}}}, {twice}};
  const std::string text = kernel_source(Language::opencl, kernel);
  EXPECT_NE(text.find("    const float t0 = x[i];\n    const float t1 = t0 * t0;\n    out[i] = t1 + t1;\n"),
            std::string::npos)
      << text;
}

TEST(Text, OfSeveralKernelsSharesHelpers) {
  const ExprKernel kernels[] = {*elementwise_kernel("maximum", Dtype::float32),
                                *elementwise_kernel("relu", Dtype::float32)};
  const std::string text = program_source(Language::cuda, kernels);
  const auto first = text.find("float hl_maximum_float32(");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("float hl_maximum_float32(", first + 1), std::string::npos);
}

// ----------------------------------------------------------------------------------------------------------- NVRTC

/// NVIDIA's compiler, opened at run time.
class Nvrtc {
 public:
  Nvrtc() {
    for (const char* path : {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so",
                             "/usr/local/cuda-13.0/lib/libnvrtc.so", "/usr/local/cuda-13.0/lib64/libnvrtc.so"}) {
      if (library_ = dlopen(path, RTLD_NOW | RTLD_LOCAL); library_ != nullptr) break;
    }
  }
  bool found() const { return library_ != nullptr; }

  /// Empty, or the compiler's messages.
  std::string compile(const std::string& text, std::string_view architecture) const {
    void* program = nullptr;
    const auto create =
        get<int(void**, const char*, const char*, int, const char* const*, const char* const*)>("nvrtcCreateProgram");
    if (create(&program, text.c_str(), "kernels.cu", 0, nullptr, nullptr) != 0) return "nvrtcCreateProgram failed";
    std::vector<std::string> options{"--gpu-architecture=" + std::string(architecture)};
    for (std::string_view o : compile_options(Language::cuda)) options.emplace_back(o);
    std::vector<const char*> pointers;
    for (const std::string& o : options) pointers.push_back(o.c_str());
    const int status = get<int(void*, int, const char* const*)>("nvrtcCompileProgram")(
        program, static_cast<int>(pointers.size()), pointers.data());
    std::size_t size = 0;
    get<int(void*, std::size_t*)>("nvrtcGetProgramLogSize")(program, &size);
    std::string log(size, '\0');
    get<int(void*, char*)>("nvrtcGetProgramLog")(program, log.data());
    get<int(void**)>("nvrtcDestroyProgram")(&program);
    while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
    return status == 0 && log.empty() ? "" : "status " + std::to_string(status) + "\n" + log;
  }

 private:
  template <class F>
  F* get(const char* name) const {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }
  void* library_ = nullptr;
};

class CudaText : public testing::TestWithParam<const char*> {};

TEST_P(CudaText, OfEveryKernelCompilesWithoutAWarning) {
  const Nvrtc nvrtc;
  ASSERT_TRUE(nvrtc.found()) << "libnvrtc.so is on no path";
  int count = 0;
  for (int t = 0; t < dtype_count; ++t) {
    const std::vector<ExprKernel> kernels = kernels_of(static_cast<Dtype>(t));
    if (kernels.empty()) continue;
    count += static_cast<int>(kernels.size());
    EXPECT_EQ(nvrtc.compile(program_source(Language::cuda, kernels), GetParam()), "");
  }
  RecordProperty("kernels", count);
  EXPECT_GT(count, 800);
}
INSTANTIATE_TEST_SUITE_P(Architectures, CudaText, testing::Values("sm_75", "sm_90"),
                         [](const auto& given) { return std::string(given.param); });

}  // namespace
}  // namespace hyalite
