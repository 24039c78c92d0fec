/// From instructions over registers to LLVM's text, and from that to a kernel.
#include "compute/cpu/generated.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "compute/codegen/print_llvm.h"
#include "compute/codegen/registry.h"
#include "compute/cpu/loops.h"

namespace hyalite::cpu {
namespace {

/// An instruction set as LLVM names it.
struct Processor {
  std::string_view set;
  int bytes;  // of a vector
  bool has_float16;
  std::string_view name, tuning, features;
};

const Processor& processor() {
  static constexpr Processor all[] = {
      {"x86-64-v2", 16, false, "x86-64-v2", "generic", ""},
      {"avx2", 32, true, "x86-64-v2", "haswell", "+avx2,+fma,+f16c,+bmi,+bmi2"},
      {"avx512", 64, true, "x86-64-v2", "skylake-avx512",
       "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,+avx2,+fma,+f16c,+bmi,+bmi2,-prefer-256-bit"},
      {"neon", 16, true, "generic", "generic", "+neon"},
  };
  static const Processor& mine = *std::ranges::find(all, std::string_view(instruction_set().name), &Processor::set);
  return mine;
}

/// What generated text may call.
const std::vector<jit::Symbol>& symbols() {
  static const std::vector<jit::Symbol>& all = *[] {
    auto* list = new std::vector<jit::Symbol>;
    for (const VectorFunction& f : kernels().functions) list->push_back({llvm_function(f.name, f.dtype), f.address});
    list->push_back({"memcpy", reinterpret_cast<const void*>(&std::memcpy)});
    // Where the processor cannot round a product and a sum at once.
    list->push_back({"fma", reinterpret_cast<const void*>(static_cast<double (*)(double, double, double)>(&std::fma))});
    list->push_back({"fmaf", reinterpret_cast<const void*>(static_cast<float (*)(float, float, float)>(&std::fma))});
    return list;
  }();
  return all;
}

/// The expression of a kernel, if it can be printed.
std::optional<ExprKernel> expression(const Instruction& i) {
  const Formula& f = i.formula;
  if (f.op == nullptr || !f.plain || is_complex(f.dtype)) return std::nullopt;
  std::optional<ExprKernel> k = f.operand < 0
                                    ? elementwise_kernel(f.op->name(), f.dtype)
                                    : gradient_kernel(f.op->name(), f.dtype, f.operand, {f.from_nothings, f.tiny});
  if (k && !llvm_can(*k)) k.reset();
  return k;
}

bool can_move(Dtype t) { return !is_complex(t) && t != Dtype::float8_e4m3fn && t != Dtype::float8_e5m2; }

bool can_generate(const Instruction& i) {
  switch (i.kind) {
    case Instruction::kernel:
      return expression(i).has_value();
    case Instruction::cast:
      return llvm_can_cast(i.from, i.to) &&
             (processor().has_float16 || (i.from != Dtype::float16 && i.to != Dtype::float16));
    case Instruction::move:
      return can_move(i.from);
    default:
      return false;
  }
}

}  // namespace

Instruction Generator::generate(const std::vector<Instruction>& list, std::size_t begin, std::size_t end,
                                const Code& code, const std::function<bool(int, int)>& needed) {
  const auto dtype = [&](int r) { return code.dtype[static_cast<std::size_t>(r)]; };
  std::size_t narrowest = 8, widest = 1;
  bool any = false;
  for (std::size_t k = begin; k < end; ++k) {
    for (const std::vector<int>* registers : {&list[k].in, &list[k].out}) {
      for (const int r : *registers) {
        if (r < 0 || dtype(r) == Dtype::boolean) continue;
        widest = std::max(widest, itemsize(dtype(r)));
        if (list[k].kind != Instruction::kernel) continue;
        narrowest = std::min(narrowest, itemsize(dtype(r)));
        any = true;
      }
    }
  }
  LlvmLoop loop(processor().bytes, any ? narrowest : widest, widest);
  Instruction made;
  made.kind = Instruction::generated;
  made.streams = true;
  std::map<int, int> value;  // by register
  const auto value_of = [&](int r) {
    const auto [at, fresh] = value.try_emplace(r, 0);
    if (fresh) {
      const bool single = code.place[static_cast<std::size_t>(r)].kind == Place::number;
      at->second = loop.input(static_cast<int>(made.in.size()), dtype(r), single);
      made.in.push_back(r);
    }
    return at->second;
  };
  for (std::size_t k = begin; k < end; ++k) {
    const Instruction& i = list[k];
    if (i.kind != Instruction::kernel) {
      const int v = value_of(i.in[0]);
      value[i.out[0]] = i.kind == Instruction::cast ? loop.cast(v, i.to) : v;
      continue;
    }
    const ExprKernel kernel = *expression(i);
    std::vector<int> arguments;
    for (const Argument& a : kernel.signature.arguments) {
      if (a.is_output) continue;
      arguments.push_back(a.is_attribute ? static_cast<int>(made.numbers.size()) + a.leaf
                                         : value_of(i.in[static_cast<std::size_t>(a.leaf)]));
    }
    made.numbers.insert(made.numbers.end(), i.attr.begin(), i.attr.begin() + i.formula.attributes);
    const std::vector<int> results = loop.apply(kernel, arguments);
    for (std::size_t j = 0; j < results.size(); ++j) value[i.out[j]] = results[j];
  }
  for (std::size_t k = begin; k < end; ++k) {
    for (const int r : list[k].out) {
      const bool is_output = code.place[static_cast<std::size_t>(r)].kind == Place::output;
      const bool read = needed(r, static_cast<int>(end) - 1);
      if (!is_output && !read) continue;
      loop.output(static_cast<int>(made.out.size()), value.at(r));
      made.out.push_back(r);
      made.streams = made.streams && is_output && !read;
    }
  }
  texts_.push_back(loop.text(jit::function_name, processor().name, processor().tuning, processor().features));
  functions_.push_back(jit::compile(texts_.back(), processor().name, processor().features, symbols()));
  made.run = reinterpret_cast<ElementwiseFn>(const_cast<void*>(functions_.back()->address));
  return made;
}

void Generator::merge(std::vector<Instruction>& list, Code& code, const std::function<bool(int, int)>& needed) {
  std::vector<Instruction> merged;
  for (std::size_t begin = 0; begin < list.size();) {
    std::size_t end = begin;
    std::vector<int> operands;
    while (end < list.size() && can_generate(list[end])) {
      std::vector<int> more = operands;
      for (const std::vector<int>* registers : {&list[end].in, &list[end].out}) {
        for (const int r : *registers) {
          if (r >= 0 && std::ranges::find(more, r) == more.end()) more.push_back(r);
        }
      }
      // Registers that come in or leave; at most all of them.
      const auto crosses = [&](int r) {
        bool written = false;
        for (std::size_t k = begin; k <= end; ++k) written |= std::ranges::find(list[k].out, r) != list[k].out.end();
        return !written || needed(r, static_cast<int>(end)) ||
               code.place[static_cast<std::size_t>(r)].kind == Place::output;
      };
      if (std::ranges::count_if(more, crosses) > max_operands) break;
      operands = std::move(more);
      ++end;
    }
    if (end - begin >= 2) {
      merged.push_back(generate(list, begin, end, code, needed));
      ++code.generated;
      begin = end;
    } else {
      merged.push_back(list[begin++]);
    }
  }
  list = std::move(merged);
}

std::string machine_code(const std::string& text) {
  return jit::assembly(text, processor().name, processor().features);
}

}  // namespace hyalite::cpu
