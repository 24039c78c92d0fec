/// LLVM 19 through its C interface, which is looked up by name.
#include "compute/jit/llvm.h"

#include <dlfcn.h>
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "compute/jit/disk_cache.h"
#include "hyalite/error.h"

#if defined(__x86_64__)
#define HYALITE_LLVM_TARGET X86
#else
#define HYALITE_LLVM_TARGET AArch64
#endif
#define HYALITE_LLVM_JOIN(a, b, c) a##b##c
#define HYALITE_LLVM_TEXT(name) #name
#define HYALITE_LLVM_INIT(target, what) HYALITE_LLVM_JOIN(LLVMInitialize, target, what)

namespace hyalite::jit {
namespace {

// clang-format off
#define HYALITE_LLVM_FUNCTIONS(F) \
  F(LLVMContextCreate) F(LLVMContextDispose) F(LLVMCreateMemoryBufferWithMemoryRangeCopy) \
  F(LLVMParseIRInContext) F(LLVMDisposeModule) F(LLVMDisposeMessage) F(LLVMSetTarget) \
  F(LLVMSetModuleDataLayout) F(LLVMCreateTargetDataLayout) F(LLVMDisposeTargetData) \
  F(LLVMGetDefaultTargetTriple) F(LLVMGetTargetFromTriple) F(LLVMCreateTargetMachine) \
  F(LLVMDisposeTargetMachine) F(LLVMTargetMachineEmitToMemoryBuffer) F(LLVMGetBufferStart) \
  F(LLVMGetBufferSize) F(LLVMDisposeMemoryBuffer) F(LLVMGetErrorMessage) F(LLVMDisposeErrorMessage) \
  F(LLVMGetVersion) F(LLVMOrcCreateLLJIT) F(LLVMOrcCreateLLJITBuilder) F(LLVMOrcLLJITGetMainJITDylib) \
  F(LLVMOrcLLJITMangleAndIntern) F(LLVMOrcAbsoluteSymbols) F(LLVMOrcJITDylibDefine) \
  F(LLVMOrcJITDylibCreateResourceTracker) F(LLVMOrcResourceTrackerRemove) F(LLVMOrcReleaseResourceTracker) \
  F(LLVMOrcLLJITAddObjectFileWithRT) F(LLVMOrcLLJITLookup) \
  F(HYALITE_LLVM_INIT(HYALITE_LLVM_TARGET, TargetInfo)) F(HYALITE_LLVM_INIT(HYALITE_LLVM_TARGET, Target)) \
  F(HYALITE_LLVM_INIT(HYALITE_LLVM_TARGET, TargetMC)) F(HYALITE_LLVM_INIT(HYALITE_LLVM_TARGET, AsmPrinter))
// clang-format on

constexpr unsigned version = 19;

/// The functions of LLVM that are used here.
struct Api {
#define HYALITE_MEMBER(name) decltype(&::name) name;
  HYALITE_LLVM_FUNCTIONS(HYALITE_MEMBER)
#undef HYALITE_MEMBER
};

std::mutex& compiling() {
  static std::mutex& m = *new std::mutex;  // never destroyed: threads may be waiting when the process ends
  return m;
}
std::atomic<bool> ending{false};
Counts total;  // guarded by compiling()

std::string message_of(const Api& api, LLVMErrorRef error) {
  char* const text = api.LLVMGetErrorMessage(error);
  const std::string s(text);
  api.LLVMDisposeErrorMessage(text);
  return s;
}

[[noreturn]] void refuse(const std::string& why) { throw Unsupported("LLVM: " + why, {{"reason", why}}); }

}  // namespace

/// LLVM, opened; its linker, and the functions that are in use.
class Library {
 public:
  /// The library, or null with the reason.
  static Library* get(std::string* reason = nullptr) {
    static std::string problem;
    static Library* const library = open(problem);
    if (reason != nullptr) *reason = problem;
    return library;
  }

  std::shared_ptr<const Function> find(const std::string& key) {
    const auto at = functions_.find(key);
    return at == functions_.end() ? nullptr : at->second.lock();
  }

  std::string emit(const std::string& text, std::string_view processor, std::string_view features,
                   LLVMCodeGenFileType kind) const {
    const LLVMTargetMachineRef machine =
        api_.LLVMCreateTargetMachine(target_, triple_, std::string(processor).c_str(), std::string(features).c_str(),
                                     LLVMCodeGenLevelDefault, LLVMRelocPIC, LLVMCodeModelDefault);
    const LLVMContextRef context = api_.LLVMContextCreate();
    LLVMModuleRef module = nullptr;
    char* error = nullptr;
    LLVMMemoryBufferRef made = nullptr;
    // The parser takes the buffer.
    bool failed = api_.LLVMParseIRInContext(
                      context, api_.LLVMCreateMemoryBufferWithMemoryRangeCopy(text.data(), text.size(), "hyalite"),
                      &module, &error) != 0;
    if (!failed) {
      const LLVMTargetDataRef layout = api_.LLVMCreateTargetDataLayout(machine);
      api_.LLVMSetTarget(module, triple_);
      api_.LLVMSetModuleDataLayout(module, layout);
      api_.LLVMDisposeTargetData(layout);
      failed = api_.LLVMTargetMachineEmitToMemoryBuffer(machine, module, kind, &error, &made) != 0;
      api_.LLVMDisposeModule(module);
    }
    api_.LLVMContextDispose(context);
    api_.LLVMDisposeTargetMachine(machine);
    if (failed) {
      const std::string why = error != nullptr ? error : "it could not compile the text";
      if (error != nullptr) api_.LLVMDisposeMessage(error);
      refuse(why);
    }
    std::string bytes(api_.LLVMGetBufferStart(made), api_.LLVMGetBufferSize(made));
    api_.LLVMDisposeMemoryBuffer(made);
    return bytes;
  }

  std::shared_ptr<Function> link(const std::string& key, const std::string& object, const std::string& symbol) {
    auto f = std::make_shared<Function>();
    const LLVMOrcResourceTrackerRef tracker = api_.LLVMOrcJITDylibCreateResourceTracker(dylib_);
    f->tracker_ = tracker;
    const LLVMMemoryBufferRef buffer =
        api_.LLVMCreateMemoryBufferWithMemoryRangeCopy(object.data(), object.size(), symbol.c_str());
    if (const LLVMErrorRef e = api_.LLVMOrcLLJITAddObjectFileWithRT(jit_, tracker, buffer)) refuse(message_of(api_, e));
    LLVMOrcExecutorAddress address = 0;
    if (const LLVMErrorRef e = api_.LLVMOrcLLJITLookup(jit_, &address, symbol.c_str())) refuse(message_of(api_, e));
    f->address = reinterpret_cast<const void*>(address);  // NOLINT: that is what it is
    std::erase_if(functions_, [](const auto& known) { return known.second.expired(); });
    functions_[key] = f;
    return f;
  }

  /// Makes the functions known that texts may call.
  void define(const std::vector<Symbol>& symbols) {
    std::vector<LLVMOrcCSymbolMapPair> pairs;
    for (const Symbol& s : symbols) {
      if (!defined_.emplace(s.name, s.address).second) continue;
      pairs.push_back({api_.LLVMOrcLLJITMangleAndIntern(jit_, s.name.c_str()),
                       {reinterpret_cast<LLVMOrcExecutorAddress>(s.address),
                        {LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0}}});
    }
    if (pairs.empty()) return;
    if (const LLVMErrorRef e =
            api_.LLVMOrcJITDylibDefine(dylib_, api_.LLVMOrcAbsoluteSymbols(pairs.data(), pairs.size())))
      refuse(message_of(api_, e));
  }

  void remove(void* tracker) const {
    const auto t = static_cast<LLVMOrcResourceTrackerRef>(tracker);
    if (const LLVMErrorRef e = api_.LLVMOrcResourceTrackerRemove(t)) message_of(api_, e);
    api_.LLVMOrcReleaseResourceTracker(t);
  }

  const std::string& identity() const { return identity_; }

 private:
  static Library* open(std::string& problem) {
    const char* const named = std::getenv("HYALITE_LLVM");
    std::string why;
    for (const char* path : {named != nullptr ? named : "libLLVM.so.19.1", named != nullptr ? "" : "libLLVM-19.so"}) {
      if (*path == '\0') continue;
      if (void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return begin(handle, path, problem);
      why = dlerror();
    }
    problem = "LLVM 19 did not open: " + (why.empty() ? "HYALITE_LLVM is empty" : why) +
              "; install libllvm19, or name libLLVM-19.so in HYALITE_LLVM";
    return nullptr;
  }

  static Library* begin(void* handle, const char* path, std::string& problem) {
    auto library = std::make_unique<Library>();
    Api& api = library->api_;
#define HYALITE_LOOK_UP(name)                                                              \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(handle, HYALITE_LLVM_TEXT(name))); \
  if (api.name == nullptr) {                                                               \
    problem = std::string(path) + " lacks " HYALITE_LLVM_TEXT(name) "; it is not LLVM 19"; \
    return nullptr;                                                                        \
  }
    HYALITE_LLVM_FUNCTIONS(HYALITE_LOOK_UP)
#undef HYALITE_LOOK_UP
    unsigned major = 0, minor = 0, patch = 0;
    api.LLVMGetVersion(&major, &minor, &patch);
    if (major != version) {
      problem = std::string(path) + " is LLVM " + std::to_string(major) + ", and the kernels are written for 19";
      return nullptr;
    }
    library->identity_ = "LLVM " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
    problem = library->start();
    // Behind LLVM's own, so that it runs before them: whoever is compiling ends first, and nobody begins.
    std::atexit([] {
      ending.store(true);
      compiling().lock();
    });
    return problem.empty() ? library.release() : nullptr;  // never closed
  }

  std::string start() {
    api_.HYALITE_LLVM_INIT(HYALITE_LLVM_TARGET, TargetInfo)();
    api_.HYALITE_LLVM_INIT(HYALITE_LLVM_TARGET, Target)();
    api_.HYALITE_LLVM_INIT(HYALITE_LLVM_TARGET, TargetMC)();
    api_.HYALITE_LLVM_INIT(HYALITE_LLVM_TARGET, AsmPrinter)();
    char* error = nullptr;
    triple_ = api_.LLVMGetDefaultTargetTriple();
    if (api_.LLVMGetTargetFromTriple(triple_, &target_, &error) != 0) return error;
    if (const LLVMErrorRef e = api_.LLVMOrcCreateLLJIT(&jit_, api_.LLVMOrcCreateLLJITBuilder()))
      return message_of(api_, e);
    dylib_ = api_.LLVMOrcLLJITGetMainJITDylib(jit_);
    return "";
  }

  Api api_{};
  LLVMTargetRef target_ = nullptr;
  char* triple_ = nullptr;
  LLVMOrcLLJITRef jit_ = nullptr;
  LLVMOrcJITDylibRef dylib_ = nullptr;
  std::string identity_;
  std::unordered_map<std::string, std::weak_ptr<const Function>> functions_;
  std::map<std::string, const void*> defined_;
};

Function::~Function() {
  if (tracker_ == nullptr || ending.load()) return;
  Library::get()->remove(tracker_);
}

const std::string& unavailable() {
  static const std::string& reason = *[] {
    const std::lock_guard lock(compiling());
    auto* const why = new std::string;
    Library::get(why);
    return why;
  }();
  return reason;
}

std::shared_ptr<const Function> compile(const std::string& text, std::string_view processor, std::string_view features,
                                        const std::vector<Symbol>& symbols) {
  if (!unavailable().empty()) throw Unsupported(unavailable(), {{"reason", unavailable()}});
  Library& library = *Library::get();
  const std::lock_guard lock(compiling());
  if (ending.load()) refuse("the process ends");
  const auto begin = std::chrono::steady_clock::now();
  const std::string key = library.identity() + " " + std::string(processor) + " " + std::string(features) + "\n" + text;
  if (std::shared_ptr<const Function> known = library.find(key)) {
    ++total.in_memory;
    return known;
  }
  library.define(symbols);
  // A name of its own for the linker.
  const std::string symbol = std::string(function_name) + "_" + digest(key);
  std::string named = text;
  named.replace(named.find(function_name), function_name.size(), symbol);
  std::optional<std::string> object = DiskCache::get().load(key);
  bool from_disk = object.has_value();
  std::shared_ptr<Function> f;
  if (from_disk) {
    try {
      f = library.link(key, *object, symbol);
    } catch (const Unsupported&) {
      from_disk = false;  // a file that says what it should, and yet is none: made anew
    }
  }
  if (!from_disk) {
    object = library.emit(named, processor, features, LLVMObjectFile);
    f = library.link(key, *object, symbol);
    DiskCache::get().store(key, *object);
  }
  ++(from_disk ? total.from_disk : total.compiled);
  f->from_disk = from_disk;
  f->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  total.seconds += f->seconds;
  return f;
}

std::string assembly(const std::string& text, std::string_view processor, std::string_view features) {
  if (!unavailable().empty()) throw Unsupported(unavailable(), {{"reason", unavailable()}});
  const std::lock_guard lock(compiling());
  return Library::get()->emit(text, processor, features, LLVMAssemblyFile);
}

Counts counts() {
  const std::lock_guard lock(compiling());
  return total;
}

void hold_still() { compiling().lock(); }
void go_on() { compiling().unlock(); }

}  // namespace hyalite::jit
