/// Kernels whose calls have paid for it are compiled by a thread in the background, and swapped in between two calls.
#include "compute/cpu/tiered.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "compute/blocking.h"
#include "compute/cpu/fused.h"
#include "compute/cpu/fused_product.h"
#include "compute/cpu/fused_rows.h"
#include "compute/cpu/generated.h"
#include "compute/jit/llvm.h"

namespace hyalite::cpu {
namespace {

using lazy::FusedKernel;
using lazy::Memory;
using lazy::Program;

// Of work in tier 0, in elements times steps: what some milliseconds of compiling cost. A call counts for as much as
// its overhead.
constexpr std::int64_t worth = 50'000'000, call_work = 20'000;
// Of one call: as much as printing the text again costs, where the code is there already.
constexpr std::int64_t worth_printing = 1'000'000;

std::unique_ptr<FusedKernel> build(const Program& p, Generator* generator) {
  if (p.pass.kind == lazy::Pass::product) return fuse_product(p, generator);
  if (p.pass.kind == lazy::Pass::flat) return fuse_flat(p, generator);
  return fuse_rows(p, generator);
}

/// What programs that differ in sizes and numbers only have in common: their generated code, and the work that paid for
/// it. So functions whose plans change from call to call come to it too.
struct ProgramKind {
  enum State : std::uint8_t { new_, asked, generated, not_generated };
  std::atomic<std::int64_t> work{0};
  std::atomic<State> state{new_};

  /// Two kinds with one hash are told apart by nobody: it only decides when code is asked for.
  static std::shared_ptr<ProgramKind> of(const Program& p) {
    std::size_t h = p.steps.size();
    const auto add = [&](std::size_t more) { h = (h ^ more) * 0x9e3779b97f4a7c15 + (h >> 29); };
    add(p.pass.kind);
    for (const TensorRef& t : p.in) add(static_cast<std::size_t>(t->dtype()));
    for (const Program::Step& s : p.steps) {
      add(static_cast<std::size_t>(s.node->kind) * 1024 + static_cast<std::size_t>(s.node->computed));
      add(reinterpret_cast<std::uintptr_t>(s.node->op));
      add(static_cast<std::size_t>(s.node->operand));
      for (const int r : s.from) add(static_cast<std::size_t>(r));
      for (const TensorRef& t : s.node->out) add(static_cast<std::size_t>(t->dtype()));
    }
    static std::mutex& mutex = *new std::mutex;
    static auto& all = *new std::unordered_map<std::size_t, std::shared_ptr<ProgramKind>>;
    const std::lock_guard lock(mutex);
    if (all.size() >= most) all.clear();  // what lives keeps its own
    std::shared_ptr<ProgramKind>& k = all[h];
    if (!k) k = std::make_shared<ProgramKind>();
    return k;
  }
  static constexpr std::size_t most = 4096;
};

/// A program on its way to generated code.
struct Job {
  Job(const Program& p, std::shared_ptr<ProgramKind> k) : program(p), kind(std::move(k)) {}
  Program program;
  std::shared_ptr<ProgramKind> kind;
  Generator generator;
  std::unique_ptr<FusedKernel> made;
  std::atomic<const FusedKernel*> ready{nullptr};
  std::string problem;  // why there is none; set before `done`
  std::atomic<bool> done{false};

  void run() noexcept {
    try {
      made = build(program, &generator);
      if (generator.texts().empty()) {
        problem = "no two steps of it can be generated as one";
        made.reset();
      }
    } catch (const std::exception& e) {
      problem = e.what();
      made.reset();
    }
    kind->state.store(made ? ProgramKind::generated : ProgramKind::not_generated, std::memory_order_relaxed);
    ready.store(made.get(), std::memory_order_release);
    done.store(true, std::memory_order_release);
  }
};

/// The thread that compiles, and what waits for it.
class Compiler {
 public:
  static Compiler& get() {
    static Compiler& c = *new Compiler;  // never destroyed: its thread may be at work when the process ends
    return c;
  }

  void ask(std::shared_ptr<Job> job) {
    const std::lock_guard lock(queue_mutex_);
    waiting_.push_back(std::move(job));
    if (!std::exchange(started_, true)) std::thread([this] { work(); }).detach();
    wake_.notify_one();
  }

  /// On this thread, now.
  void run(Job& job) {
    const Blocking released;
    const std::lock_guard lock(busy_);
    job.run();
  }

  /// The same, unless that would have to wait.
  bool run_if_free(Job& job) {
    const std::unique_lock lock(busy_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    job.run();
    return true;
  }

  /// Lets go of what the thread is done with: programs know lines of Python, which that thread must not touch.
  void tidy() {
    std::vector<std::shared_ptr<Job>> gone;
    const std::lock_guard lock(queue_mutex_);
    gone.swap(finished_);
    // Destroyed when the lock is not held any more: `gone` was made first.
  }

 private:
  Compiler() {
    pthread_atfork([] { get().hold(); }, [] { get().go_on(false); }, [] { get().go_on(true); });
  }

  void work() {
    for (;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock lock(queue_mutex_);
        wake_.wait(lock, [&] { return !waiting_.empty(); });
        job = std::move(waiting_.front());
        waiting_.pop_front();
      }
      {
        const std::lock_guard lock(busy_);
        job->run();
      }
      const std::lock_guard lock(queue_mutex_);
      finished_.push_back(std::move(job));
    }
  }

  // A fork waits for the job at hand; a child begins with a thread of its own when it asks for the first.
  void hold() {
    busy_.lock();
    queue_mutex_.lock();
    jit::hold_still();
  }
  void go_on(bool child) {
    jit::go_on();
    if (child) started_ = false;
    queue_mutex_.unlock();
    busy_.unlock();
  }

  std::mutex busy_, queue_mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::vector<std::shared_ptr<Job>> finished_;
  bool started_ = false;
};

class Tiered final : public FusedKernel {
 public:
  Tiered(const Program& p, lazy::Tier tier)
      : program_(&p), first_(build(p, nullptr)), tier_(tier), kind_(is_single() ? nullptr : ProgramKind::of(p)) {
    std::int64_t elements = 1;
    for (const std::int64_t s : p.pass.shape) elements *= s;
    for (const TensorRef& t : p.out) elements = std::max(elements, t->numel());
    work_a_call_ = elements * static_cast<std::int64_t>(p.steps.size()) + call_work;
    if (tier == lazy::Tier::automatic && work_a_call_ >= worth_printing && kind_ &&
        kind_->state.load(std::memory_order_relaxed) == ProgramKind::generated) {
      auto job = std::make_shared<Job>(p, kind_);
      if (Compiler::get().run_if_free(*job)) {
        job_ = std::move(job);
        ready_.store(job_->ready.load(std::memory_order_acquire), std::memory_order_release);
      }
    }
  }
  ~Tiered() override {
    job_.reset();
    Compiler::get().tidy();
  }

  void run(std::span<const Memory> in, std::span<const Memory> out, Recorder* rec) const override {
    if (const FusedKernel* generated = ready_.load(std::memory_order_acquire)) return generated->run(in, out, rec);
    first_->run(in, out, rec);
    if (tier_ == lazy::Tier::automatic) count();
  }

  void generate() const override {
    if (is_single()) return;
    const std::lock_guard lock(mutex_);
    if (!job_) job_ = std::make_shared<Job>(*program_, kind_);
    if (!job_->done.load(std::memory_order_acquire)) Compiler::get().run(*job_);
    ready_.store(job_->ready.load(std::memory_order_acquire), std::memory_order_release);
    if (!jit::unavailable().empty()) throw Unsupported("compile(): tier 1 needs " + jit::unavailable());
  }

  TierText tier() const override {
    const std::lock_guard lock(mutex_);
    TierText t;
    t.language = "llvm";
    if (is_single()) {
      t.why = "one step, which is the eager kernel";
    } else if (!job_) {
      t.why = tier_ == lazy::Tier::first ? "tier 0 was asked for" : "not called enough yet to pay for compiling";
    } else if (!job_->done.load(std::memory_order_acquire)) {
      t.why = "being compiled";
    } else if (!job_->problem.empty()) {
      t.why = job_->problem;
    } else {
      t.tier = 1;
      for (const auto& f : job_->generator.functions()) {
        t.seconds += f->seconds;
        t.from_disk += f->from_disk ? 1 : 0;
        ++t.functions;
      }
      for (const std::string& text : job_->generator.texts()) t.source += (t.source.empty() ? "" : "\n") + text;
    }
    return t;
  }

  std::string machine_code() const override {
    std::vector<std::string> texts;
    {
      const std::lock_guard lock(mutex_);
      if (!job_ || !job_->done.load(std::memory_order_acquire)) return "";
      texts = job_->generator.texts();
    }
    std::string all;
    for (const std::string& text : texts) all += cpu::machine_code(text);
    return all;
  }

 private:
  bool is_single() const { return program_->steps.size() < 2; }

  void count() const {
    // Threads may lose some of each other's counts, which costs them less than a locked instruction.
    const std::int64_t now = work_.load(std::memory_order_relaxed) + work_a_call_;
    work_.store(now, std::memory_order_relaxed);
    if (now < 0 || !kind_) return;  // there is nothing more to ask
    const std::int64_t all = kind_->work.load(std::memory_order_relaxed) + work_a_call_;
    kind_->work.store(all, std::memory_order_relaxed);
    if (now >= worth || (all >= worth && others_have_paid(now))) ask();
  }

  /// Where plans are many, each called seldom: the first that comes asks; who is called again asks for what is there.
  [[gnu::noinline]] bool others_have_paid(std::int64_t now) const {
    ProgramKind::State state = ProgramKind::new_;
    if (kind_->state.compare_exchange_strong(state, ProgramKind::asked, std::memory_order_relaxed)) return true;
    return asked_.load(std::memory_order_relaxed) || (state == ProgramKind::generated && now >= 2 * work_a_call_);
  }

  [[gnu::noinline]] void ask() const {
    const std::lock_guard lock(mutex_);
    if (!job_) {
      job_ = std::make_shared<Job>(*program_, kind_);
      asked_.store(true, std::memory_order_relaxed);
      Compiler::get().ask(job_);
      return;
    }
    if (!job_->done.load(std::memory_order_acquire)) return;
    ready_.store(job_->ready.load(std::memory_order_acquire), std::memory_order_release);
    work_.store(std::numeric_limits<std::int64_t>::min() / 2, std::memory_order_relaxed);
  }

  const Program* program_;  // of the plan's step, which owns this kernel
  std::unique_ptr<FusedKernel> first_;
  lazy::Tier tier_;
  std::shared_ptr<ProgramKind> kind_;  // none where nothing can be generated
  std::int64_t work_a_call_ = 0;
  mutable std::atomic<std::int64_t> work_{0};
  mutable std::atomic<const FusedKernel*> ready_{nullptr};
  mutable std::atomic<bool> asked_{false};
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Job> job_;
};

}  // namespace

std::unique_ptr<FusedKernel> fuse(const Program& program, lazy::Tier tier) {
  auto kernel = std::make_unique<Tiered>(program, tier);
  if (tier == lazy::Tier::generated) kernel->generate();
  return kernel;
}

bool generates() { return jit::unavailable().empty(); }

}  // namespace hyalite::cpu
