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
#include <utility>

#include "compute/blocking.h"
#include "compute/cpu/fused.h"
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

std::unique_ptr<FusedKernel> build(const Program& p, Generator* generator) {
  return p.pass.kind == lazy::Pass::flat ? fuse_flat(p, generator) : fuse_rows(p, generator);
}

/// A program on its way to generated code.
struct Job {
  explicit Job(const Program& p) : program(p) {}
  Program program;
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
  Tiered(const Program& p, lazy::Tier tier) : program_(&p), first_(build(p, nullptr)), tier_(tier) {
    std::int64_t elements = 1;
    for (const std::int64_t s : p.pass.shape) elements *= s;
    for (const TensorRef& t : p.out) elements = std::max(elements, t->numel());
    work_a_call_ = elements * static_cast<std::int64_t>(p.steps.size()) + call_work;
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
    if (!job_) job_ = std::make_shared<Job>(*program_);
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
    if (now >= worth) ask();
  }

  [[gnu::noinline]] void ask() const {
    const std::lock_guard lock(mutex_);
    if (!job_ && !is_single()) {
      job_ = std::make_shared<Job>(*program_);
      Compiler::get().ask(job_);
      return;
    }
    if (job_ && !job_->done.load(std::memory_order_acquire)) return;
    if (job_) ready_.store(job_->ready.load(std::memory_order_acquire), std::memory_order_release);
    work_.store(std::numeric_limits<std::int64_t>::min() / 2,
                std::memory_order_relaxed);  // there is nothing more to ask
  }

  const Program* program_;  // of the plan's step, which owns this kernel
  std::unique_ptr<FusedKernel> first_;
  lazy::Tier tier_;
  std::int64_t work_a_call_ = 0;
  mutable std::atomic<std::int64_t> work_{0};
  mutable std::atomic<const FusedKernel*> ready_{nullptr};
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
