/// The exceptions Hyalite throws; each carries its values as attributes, not only as text.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "hyalite/export.h"

namespace hyalite {

/// What went wrong; the Python module maps each to a subclass of `hl.HyaliteError` and of the class a user would catch.
enum class ErrorKind : std::uint8_t {
  dtype_mismatch,     ///< TypeError
  device_mismatch,    ///< ValueError
  shape_mismatch,     ///< ValueError
  version_mismatch,   ///< RuntimeError
  out_of_memory,      ///< MemoryError
  not_deterministic,  ///< RuntimeError
  unsupported,        ///< NotImplementedError
  value,              ///< ValueError
  type,               ///< TypeError
  index,              ///< IndexError (Python's own)
  overflow,           ///< OverflowError (Python's own)
  autograd,           ///< RuntimeError
  buffer,             ///< BufferError
  interrupted,        ///< KeyboardInterrupt
};

using Shape64 = std::vector<std::int64_t>;
/// A value attached to an error: a number, a text, or a shape.
using ErrorValue = std::variant<std::int64_t, double, std::string, Shape64>;

/// Base of every exception that crosses the library's border.
class HYALITE_API Error : public std::runtime_error {
 public:
  using Attributes = std::vector<std::pair<std::string, ErrorValue>>;
  Error(ErrorKind kind, const std::string& message, Attributes attributes = {})
      : std::runtime_error(message), kind_(kind), attributes_(std::move(attributes)) {}
  ErrorKind kind() const noexcept { return kind_; }
  /// Names and values, for instance {"left_dtype", "float32"}.
  const Attributes& attributes() const noexcept { return attributes_; }

 private:
  ErrorKind kind_;
  Attributes attributes_;
};

#define HYALITE_ERROR(Name, kind_value)                          \
  class HYALITE_API Name : public Error {                        \
   public:                                                       \
    explicit Name(const std::string& message, Attributes a = {}) \
        : Error(ErrorKind::kind_value, message, std::move(a)) {} \
  }

HYALITE_ERROR(DtypeMismatch, dtype_mismatch);
HYALITE_ERROR(DeviceMismatch, device_mismatch);
HYALITE_ERROR(ShapeMismatch, shape_mismatch);
HYALITE_ERROR(VersionMismatch, version_mismatch);
HYALITE_ERROR(OutOfMemory, out_of_memory);
HYALITE_ERROR(NotDeterministic, not_deterministic);
HYALITE_ERROR(Unsupported, unsupported);
HYALITE_ERROR(ValueError, value);
HYALITE_ERROR(TypeError, type);
HYALITE_ERROR(IndexError, index);
HYALITE_ERROR(OverflowError, overflow);
HYALITE_ERROR(AutogradError, autograd);
HYALITE_ERROR(BufferError, buffer);
HYALITE_ERROR(Interrupted, interrupted);

#undef HYALITE_ERROR

}  // namespace hyalite
