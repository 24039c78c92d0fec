/// Compiled kernels of earlier processes, in files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hyalite::jit {

/// 32 digits that stand for a text.
std::string digest(std::string_view text);

/// A folder of this user alone: $HYALITE_CACHE_DIR, else hyalite/ in $XDG_CACHE_HOME or in ~/.cache. Files are written
/// beside and renamed, so that several processes may share it; those used least recently go when it grows beyond
/// $HYALITE_CACHE_MB (64). A file that is damaged, of another key, or of another user is as good as none.
class DiskCache {
 public:
  /// The cache of this process.
  static DiskCache& get();
  /// `folder` is made if it is not there; an empty one turns the cache off.
  DiskCache(std::string folder, std::int64_t most_bytes);

  /// What was kept under the key, which is the whole text that it was made from.
  std::optional<std::string> load(std::string_view key);
  void store(std::string_view key, std::string_view value);

  const std::string& folder() const { return folder_; }
  /// Why nothing is kept; empty where it is.
  const std::string& problem() const { return problem_; }

 private:
  std::string path_of(std::string_view key) const;
  bool is_ours(int fd) const;
  void trim();

  std::string folder_, problem_;
  std::int64_t most_bytes_;
  std::int64_t stored_ = 0;
};

}  // namespace hyalite::jit
