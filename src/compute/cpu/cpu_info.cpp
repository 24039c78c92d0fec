/// Reads the processor's name and cache sizes from cpuid, /proc, /sys and sysconf.
#include "compute/cpu/cpu_info.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hyalite {

namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string without_outer_spaces(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? std::string() : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// The brand string of cpuid leaves 0x80000002 to 0x80000004; empty elsewhere.
std::string name_from_cpuid() {
#if defined(__x86_64__)
  unsigned words[12] = {};
  if (static_cast<unsigned>(__get_cpuid_max(0x80000000u, nullptr)) < 0x80000004u) return {};
  for (unsigned i = 0; i < 3; ++i) {
    __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]);
  }
  char text[sizeof words + 1] = {};
  std::memcpy(text, words, sizeof words);
  return without_outer_spaces(text);
#else
  return {};
#endif
}

std::string name_from_proc() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.rfind("model name", 0) != 0) continue;
    return without_outer_spaces(line.substr(colon + 1));
  }
  return {};
}

std::string machine() {
  utsname name{};
  return uname(&name) == 0 ? name.machine : "unknown processor";
}

/// Bytes in sysfs's notation, "32K" or "8M".
std::size_t parse_size(const std::string& text) {
  std::size_t value = 0, i = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) value = value * 10 + (text[i] - '0');
  if (i < text.size() && text[i] == 'K') value <<= 10;
  if (i < text.size() && text[i] == 'M') value <<= 20;
  return value;
}

CacheSizes read_cache_sizes() {
  CacheSizes sizes;
  for (int i = 0; i < 10; ++i) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i);
    const std::string level = first_line(folder + "/level");
    if (level.empty()) break;
    if (first_line(folder + "/type") == "Instruction") continue;
    const std::size_t size = parse_size(first_line(folder + "/size"));
    if (level == "1") sizes.l1 = size;
    if (level == "2") sizes.l2 = size;
    if (level == "3") sizes.l3 = size;
  }
  const auto fill = [](std::size_t& size, int name) {
    if (size == 0) size = static_cast<std::size_t>(std::max(0L, sysconf(name)));
  };
  fill(sizes.l1, _SC_LEVEL1_DCACHE_SIZE);
  fill(sizes.l2, _SC_LEVEL2_CACHE_SIZE);
  fill(sizes.l3, _SC_LEVEL3_CACHE_SIZE);
  return sizes;
}

}  // namespace

const std::string& cpu_name() {
  static const std::string name = [] {
    for (std::string candidate : {name_from_cpuid(), name_from_proc()}) {
      if (!candidate.empty()) return candidate;
    }
    return machine();
  }();
  return name;
}

const CacheSizes& cache_sizes() {
  static const CacheSizes sizes = read_cache_sizes();
  return sizes;
}

std::size_t last_level_cache_bytes() {
  const CacheSizes& sizes = cache_sizes();
  const std::size_t largest = std::max({sizes.l1, sizes.l2, sizes.l3});
  return largest > 0 ? largest : std::size_t{8} << 20;
}

}  // namespace hyalite
