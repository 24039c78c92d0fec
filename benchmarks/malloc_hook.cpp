/// Counts the calls of the C allocator between two marks; benchmarks/counts.py compiles it and loads it by LD_PRELOAD.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

// glibc's own entry points: going through dlsym would allocate inside the allocator.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* block, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

/// The order is that of MALLOC_FIELDS in counts.py.
enum Field : int { f_malloc, f_calloc, f_realloc, f_aligned_alloc, f_posix_memalign, f_mmap, f_bytes, f_count };

std::atomic<std::uint64_t> counters[f_count];
std::atomic<bool> counting{false};

void count(Field field, std::size_t bytes) {
  if (!counting.load(std::memory_order_relaxed)) return;
  counters[field].fetch_add(1, std::memory_order_relaxed);
  counters[f_bytes].fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void* malloc(std::size_t size) {
  count(f_malloc, size);
  return __libc_malloc(size);
}

EXPORT void* calloc(std::size_t n, std::size_t size) {
  count(f_calloc, n * size);
  return __libc_calloc(n, size);
}

EXPORT void* realloc(void* block, std::size_t size) {
  count(f_realloc, size);
  return __libc_realloc(block, size);
}

EXPORT void* aligned_alloc(std::size_t alignment, std::size_t size) {
  count(f_aligned_alloc, size);
  return __libc_memalign(alignment, size);
}

EXPORT void* memalign(std::size_t alignment, std::size_t size) {
  count(f_aligned_alloc, size);
  return __libc_memalign(alignment, size);
}

EXPORT int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  count(f_posix_memalign, size);
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) return EINVAL;
  const int saved = errno;  // the standard leaves errno alone
  void* block = __libc_memalign(alignment, size);
  errno = saved;
  if (!block) return ENOMEM;
  *out = block;
  return 0;
}

EXPORT void* mmap(void* address, std::size_t length, int protection, int flags, int file, off_t offset) {
  count(f_mmap, length);
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, file, offset));
}

/// Sets every counter to zero and starts counting, on all threads.
EXPORT void hyalite_count_begin() {
  for (auto& counter : counters) counter.store(0, std::memory_order_relaxed);
  counting.store(true, std::memory_order_seq_cst);
}

/// Stops counting and writes the counters, in the order of `Field`.
EXPORT void hyalite_count_end(std::uint64_t* out) {
  counting.store(false, std::memory_order_seq_cst);
  for (int i = 0; i < f_count; ++i) out[i] = counters[i].load(std::memory_order_relaxed);
}
