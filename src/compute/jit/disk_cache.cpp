/// Files of a cache: written whole, read with suspicion.
#include "compute/jit/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

namespace hyalite::jit {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".kernel";
constexpr int stores_between_trims = 64;

struct Header {
  char magic[8] = {'h', 'y', 'a', 'l', 'i', 't', 'e', '1'};
  std::uint64_t key_bytes = 0, value_bytes = 0, check = 0;
};

/// FNV-1a.
std::uint64_t hash(std::string_view text, std::uint64_t h = 0xcbf29ce484222325u) {
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

std::string hexadecimal(std::uint64_t x) {
  std::string s(16, '0');
  for (int i = 15; i >= 0; --i, x >>= 4) s[static_cast<std::size_t>(i)] = "0123456789abcdef"[x & 15];
  return s;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string default_folder() {
  if (const char* named = std::getenv("HYALITE_CACHE_DIR")) return named;
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) return cache + "/hyalite";
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache/hyalite";
}

std::int64_t default_bytes() {
  const std::string named = environment("HYALITE_CACHE_MB");
  const long long mb = named.empty() ? 64 : std::atoll(named.c_str());
  return std::max<std::int64_t>(mb, 0) << 20;
}

/// Writes all of it, or says that it could not.
bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::optional<std::string> read_all(int fd) {
  std::string bytes;
  char part[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) return bytes;
    bytes.append(part, static_cast<std::size_t>(n));
  }
}

struct File {
  int fd;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

std::string digest(std::string_view text) {
  const std::uint64_t first = hash(text);
  return hexadecimal(first) + hexadecimal(hash(text, first ^ 0x9e3779b97f4a7c15u));
}

DiskCache& DiskCache::get() {
  static DiskCache& cache = *new DiskCache(default_folder(), default_bytes());
  return cache;
}

DiskCache::DiskCache(std::string folder, std::int64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {
  if (folder_.empty()) {
    problem_ = "HYALITE_CACHE_DIR is empty, or there is no home";
    return;
  }
  std::error_code error;
  fs::create_directories(fs::path(folder_).parent_path(), error);
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) {
    problem_ = folder_ + " cannot be made: " + std::strerror(errno);
    return;
  }
  struct stat s;
  if (::lstat(folder_.c_str(), &s) != 0) {
    problem_ = folder_ + " cannot be read: " + std::strerror(errno);
  } else if (!S_ISDIR(s.st_mode)) {
    problem_ = folder_ + " is no folder";
  } else if (s.st_uid != ::geteuid()) {
    problem_ = folder_ + " belongs to another user";
  } else if ((s.st_mode & 022) != 0) {
    problem_ = folder_ + " can be written by others; run chmod go-w " + folder_;
  } else if (::access(folder_.c_str(), W_OK) != 0) {
    problem_ = folder_ + " cannot be written";
  }
}

std::string DiskCache::path_of(std::string_view key) const { return folder_ + "/" + digest(key).append(suffix); }

bool DiskCache::is_ours(int fd) const {
  struct stat s;
  return ::fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == ::geteuid() && (s.st_mode & 022) == 0;
}

std::optional<std::string> DiskCache::load(std::string_view key) {
  if (!problem_.empty()) return std::nullopt;
  const std::string path = path_of(key);
  const File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
  if (file.fd < 0 || !is_ours(file.fd)) return std::nullopt;
  const std::optional<std::string> bytes = read_all(file.fd);
  Header h;
  const Header expected;
  if (!bytes || bytes->size() < sizeof h) return std::nullopt;
  std::memcpy(&h, bytes->data(), sizeof h);
  const std::string_view rest = std::string_view(*bytes).substr(sizeof h);
  const bool whole = std::memcmp(h.magic, expected.magic, sizeof h.magic) == 0 && h.key_bytes == key.size() &&
                     rest.size() - std::min(rest.size(), key.size()) == h.value_bytes && hash(rest) == h.check;
  if (!whole || rest.substr(0, key.size()) != key) return std::nullopt;
  ::futimens(file.fd, nullptr);  // used now
  return std::string(rest.substr(key.size()));
}

void DiskCache::store(std::string_view key, std::string_view value) {
  if (!problem_.empty()) return;
  std::string bytes(key);
  bytes += value;
  Header h;
  h.key_bytes = key.size();
  h.value_bytes = value.size();
  h.check = hash(bytes);
  if (static_cast<std::int64_t>(bytes.size() + sizeof h) > most_bytes_) return;
  std::string beside = folder_ + "/.writing-XXXXXX";
  File file{::mkostemp(beside.data(), O_CLOEXEC)};
  if (file.fd < 0) {
    problem_ = folder_ + " cannot be written: " + std::strerror(errno);
    return;
  }
  const bool written = write_all(file.fd, {reinterpret_cast<const char*>(&h), sizeof h}) && write_all(file.fd, bytes);
  if (!written || ::rename(beside.c_str(), path_of(key).c_str()) != 0) {
    ::unlink(beside.c_str());
    return;  // a full disk: the next process compiles once more
  }
  if (stored_++ % stores_between_trims == 0) trim();
}

void DiskCache::trim() {
  struct Entry {
    fs::path path;
    fs::file_time_type used;
    std::int64_t bytes;
  };
  std::vector<Entry> all;
  std::int64_t sum = 0;
  std::error_code error;
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    const auto used = at->last_write_time(gone);
    const auto bytes = gone ? 0 : at->file_size(gone);
    if (gone) continue;
    const std::string name = at->path().filename();
    if (name.starts_with(".writing-") && used < long_ago) fs::remove(at->path(), gone);  // of a process that died
    if (!name.ends_with(suffix)) continue;
    all.push_back({at->path(), used, static_cast<std::int64_t>(bytes)});
    sum += static_cast<std::int64_t>(bytes);
  }
  if (sum <= most_bytes_) return;
  std::ranges::sort(all, {}, &Entry::used);
  for (const Entry& e : all) {
    if (sum <= most_bytes_ / 4 * 3) break;
    fs::remove(e.path, error);
    sum -= e.bytes;
  }
}

}  // namespace hyalite::jit
