/// What `explain` gives: a call's steps as text, page, picture or data.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "hyalite/export.h"

namespace hyalite {

struct TraceRecord;

/// What a call did, step by step. A value; copies share the record.
class HYALITE_API Trace {
 public:
  explicit Trace(std::shared_ptr<const TraceRecord> record) : record_(std::move(record)) {}
  /// For a terminal of `width` columns, with ANSI colours on request.
  std::string text(int width = 120, bool colour = false) const;
  /// The record itself; its form is named by the key "schema".
  std::string json() const;
  /// The trace as "html" (a page of its own), "svg", "json", "mmd" (Mermaid), "trace.json" (Chrome and Perfetto) or
  /// "txt". Throws ValueError for another format.
  std::string as(const std::string& format) const;
  /// Writes the format that the path's ending names. Throws ValueError for another ending or a file that cannot be
  /// written.
  void save(const std::string& path) const;
  const TraceRecord& record() const noexcept { return *record_; }

 private:
  std::shared_ptr<const TraceRecord> record_;
};

struct ExplainOptions {
  bool repeat = false;     ///< calling it again changes nothing: it may be called many times, for better times
  std::string why_once;    ///< for the trace, where `repeat` is false
  int rounds = 25;         ///< most timings of each step
  double seconds = 0.5;    ///< about the longest that repeated runs may take
  std::string expression;  ///< what is explained, for the heading; by default the names of the ops
  std::string where;       ///< file and line, for the heading
};

}  // namespace hyalite
