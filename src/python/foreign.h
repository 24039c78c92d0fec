/// Memory of another library as a tensor: what keeps it alive, whether it can be shared, and how it is copied if not.
#pragma once

#include <memory>
#include <optional>

#include "python/gil.h"
#include "python/tensor_object.h"

namespace hyalite::python {

/// Keeps foreign memory alive until it is destroyed, which happens with the GIL held.
struct Keeper {
  virtual ~Keeper() = default;
  Keeper* next = nullptr;  // in the list of those that wait for the GIL
};

/// Destroys a keeper without touching an exception that is on its way.
struct DropKeeper {
  DropKeeper() = default;
  template <class K>
  DropKeeper(std::default_delete<K>) {}
  void operator()(Keeper* k) const noexcept;
};
using KeeperPtr = std::unique_ptr<Keeper, DropKeeper>;

/// Keeps an object.
struct ObjectKeeper final : Keeper {
  explicit ObjectKeeper(PyObject* o) : object(Owned::borrow(o)) {}
  Owned object;
};

/// Keeps an export of the buffer protocol.
struct BufferKeeper final : Keeper {
  BufferKeeper() = default;
  ~BufferKeeper() override { PyBuffer_Release(&view); }
  Py_buffer view{};
};

/// Memory as another library describes it.
struct ForeignMemory {
  std::byte* data = nullptr;  ///< the element at index 0
  Dtype dtype = Dtype::uint8;
  bool swapped = false;  ///< in the other byte order
  bool read_only = false;
  DimList shape;
  DimList strides;  ///< bytes
};

/// Which function asks: it names itself in errors, and says with its own class that it would have to copy.
enum class Border : std::uint8_t { asarray, from_dlpack };
constexpr const char* name(Border b) { return b == Border::asarray ? "asarray" : "from_dlpack"; }

/// Throws the border's error for copy=False.
[[noreturn]] void throw_copy_needed(Border border, const std::string& reason);

/// The tensor over `m`: shared, or copied where `copy`, the dtype, the byte order or the alignment wants it.
/// Throws ValueError for sizes and strides that no memory has, and for bool bytes other than 0 and 1.
TensorRef import_memory(const ForeignMemory& m, KeeperPtr keeper, std::optional<Dtype> dtype, std::optional<bool> copy,
                        Border border);

/// Storage over memory that `keeper` keeps.
Ref<Storage> borrow(KeeperPtr keeper, void* data, std::size_t bytes, bool read_only);

/// Copies between tensors of one shape, outside the graph; it may let other Python threads run.
void copy_into(const TensorImpl& from, TensorImpl& to);
/// A writable row-major copy in `dtype`, outside the graph.
TensorRef copy_of(const TensorImpl& t, Dtype dtype);

/// The tensor of an object that exposes a buffer, an array interface or DLPack, or gives an array when asked; an empty
/// reference when it does none of that. Throws TypeError for elements that are no numbers.
TensorRef from_object(PyObject* obj, std::optional<Dtype> dtype, std::optional<bool> copy);
/// The tensor of an object with `__dlpack__`.
TensorRef import_dlpack(PyObject* obj, std::optional<Dtype> dtype, std::optional<bool> copy, Border border);

/// Whether others may only read the tensor's memory: also through a stride of 0, where one write would change many
/// elements.
bool read_only_outside(const TensorImpl& t);
/// A tensor whose memory somebody outside has; while that lives, others can write it without a version.
class Loan {
 public:
  Loan() = default;
  /// `may_write` false: for those who promise not to.
  explicit Loan(TensorRef t, bool may_write = true);
  Loan(Loan&& o) noexcept : tensor_(std::move(o.tensor_)), writable_(o.writable_) {}
  Loan& operator=(Loan&&) = delete;
  ~Loan();
  const TensorImpl& tensor() const { return *tensor_; }
  bool writable() const { return writable_; }

 private:
  TensorRef tensor_;
  bool writable_ = false;
};

/// Throws Unsupported unless the CPU can read the tensor's memory.
void need_host(const TensorImpl& t, const char* op);
/// Throws AutogradError for a tensor that requires a gradient: writes from outside would not be recorded.
void need_no_gradient(TensorImpl& t, const char* op);

/// Lets other Python threads run while a large copy takes its time.
class WithoutGil {
 public:
  explicit WithoutGil(std::int64_t bytes) : state_(bytes > (1 << 20) ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (state_ != nullptr) restore_thread(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace hyalite::python
