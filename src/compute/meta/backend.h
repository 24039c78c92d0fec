/// The meta device: shapes, dtypes and strides without memory. What an op would give is known from the guard alone.
#pragma once

#include "compute/backend.h"

namespace hyalite::meta {

Backend& backend();

/// While one lives, it knows which memory the ops of this thread would have read, had there been any.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  bool reads(const TensorImpl& t) const;
  void clear() { read_.clear(); }
  void note(const TensorImpl& t);

 private:
  std::vector<const Storage*> read_;
  Watch* outer_;
};

}  // namespace hyalite::meta
