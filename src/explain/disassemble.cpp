/// Finds where a function ends by its unwind table, and lets objdump read its bytes.
#include "explain/disassemble.h"

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

// libgcc's, which every C++ program on ELF systems carries (unwind-dw2-fde.h).
extern "C" {
struct dwarf_eh_bases {
  void* tbase;
  void* dbase;
  void* func;
};
const void* _Unwind_Find_FDE(void* pc, dwarf_eh_bases* bases);
}

namespace hyalite {
namespace {

constexpr std::size_t largest = 16 << 10;

#if defined(__aarch64__)
constexpr const char* machine = "aarch64";
#else
constexpr const char* machine = "i386:x86-64";
#endif

/// Bytes of the function that begins at `code`; 0 where the table does not say, or not in the usual encoding.
std::size_t size_of_function(const void* code) {
  dwarf_eh_bases bases{};
  const auto* entry = static_cast<const std::byte*>(_Unwind_Find_FDE(const_cast<void*>(code), &bases));
  if (entry == nullptr || bases.func != code) return 0;
  // Length and CIE, 4 bytes each; then the start, usually relative to its own place, and the size.
  std::int32_t start = 0;
  std::uint32_t size = 0;
  std::memcpy(&start, entry + 8, sizeof start);
  std::memcpy(&size, entry + 12, sizeof size);
  return entry + 8 + start == code ? size : 0;
}

/// What the program prints; empty where it cannot be run or fails.
std::string output_of(const char* const* command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const bool started =
      posix_spawnp(&child, command[0], &actions, nullptr, const_cast<char* const*>(command), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char piece[4096];
  for (ssize_t n; started && (n = read(ends[0], piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  while (started && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return started && status == 0 ? text : "";
}

}  // namespace

std::string disassemble(const void* code) {
  const std::size_t size = code != nullptr ? size_of_function(code) : 0;
  if (size == 0 || size > largest) return "";
  std::FILE* file = std::tmpfile();
  if (file == nullptr) return "";
  const bool written = std::fwrite(code, 1, size, file) == size && std::fflush(file) == 0;
  const std::string path = "/dev/fd/" + std::to_string(fileno(file));
  const char* const command[] = {"objdump", "-D",         "-b",   "binary", "-m", machine, "--no-show-raw-insn",
                                 "-w",      path.c_str(), nullptr};
  std::string text = written ? output_of(command) : "";
  std::fclose(file);
  constexpr std::string_view heading = "<.data>:\n";
  const std::size_t at = text.find(heading);
  return at == text.npos ? "" : text.substr(at + heading.size());
}

}  // namespace hyalite

#else

namespace hyalite {
std::string disassemble(const void*) { return ""; }
}  // namespace hyalite

#endif
