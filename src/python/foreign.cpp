/// Sharing, checking and copying foreign memory, and letting go of it from any thread.
#include "python/foreign.h"

#include <atomic>
#include <bit>

#include "compute/backend.h"
#include "python/interop.h"
#include "record/autograd_meta.h"
#include "transfer.h"

namespace hyalite::python {
namespace {

// ---- letting go ----

std::atomic<Keeper*> waiting{nullptr};
std::atomic<bool> scheduled{false};

/// Destroys the keepers that wait; the caller holds the GIL.
void drop_waiting() noexcept {
  scheduled.store(false);
  Keeper* k = waiting.exchange(nullptr, std::memory_order_acquire);
  while (k != nullptr) {
    Keeper* next = k->next;
    delete k;
    k = next;
  }
}

int drop_when_called(void*) {
  drop_waiting();
  return 0;
}

/// This thread holds the GIL; false also after Python has ended.
bool holds_gil() noexcept { return PyGILState_GetThisThreadState() != nullptr && PyGILState_Check() != 0; }

/// The release callback of borrowed storage. Without the GIL it does not wait for it: the thread that holds it may be
/// waiting for this one. Python's main thread then does the work at its next safe point. After Python has ended the
/// object no longer exists.
void drop(void* context) noexcept {
  Keeper* k = static_cast<Keeper*>(context);
  if (holds_gil()) {
    DropKeeper()(k);
    return;
  }
  if (!Py_IsInitialized()) return;
  k->next = waiting.load(std::memory_order_relaxed);
  while (!waiting.compare_exchange_weak(k->next, k, std::memory_order_release, std::memory_order_relaxed)) {
  }
  if (!scheduled.exchange(true) && Py_AddPendingCall(drop_when_called, nullptr) != 0) scheduled.store(false);
}

// ---- looking at foreign memory ----

/// First and last byte, counted from the element at index 0.
struct Extent {
  std::int64_t low = 0, high = 0;
};

Extent extent_of(const ForeignMemory& m, std::int64_t numel, Border border) {
  if (numel == 0) return {};
  Extent e{0, static_cast<std::int64_t>(itemsize(m.dtype))};
  bool overflow = false;
  for (int i = 0; i < m.shape.size(); ++i) {
    std::int64_t reach;
    overflow |= __builtin_mul_overflow(m.strides[i], m.shape[i] - 1, &reach);
    overflow |=
        reach < 0 ? __builtin_add_overflow(e.low, reach, &e.low) : __builtin_add_overflow(e.high, reach, &e.high);
  }
  std::int64_t bytes;
  if (overflow || __builtin_sub_overflow(e.high, e.low, &bytes)) {
    throw ValueError(std::string(name(border)) + "(): shape " + to_string(m.shape) + " with byte strides " +
                         to_string(m.strides) + " spans more than 64 bits can count",
                     {{"shape", to_vector(m.shape)}});
  }
  return e;
}

/// Calls f(address, stride) for each run along the last axis, in row-major order; numel > 0.
template <class F>
void for_each_row(const ForeignMemory& m, F&& f) {
  const int outer = m.shape.size() - 1;
  if (outer < 0) return f(m.data, std::int64_t{0}, std::int64_t{1});
  DimList index(outer, 0);
  const std::byte* row = m.data;
  for (;;) {
    f(row, m.strides[outer], m.shape[outer]);
    int i = outer - 1;
    for (; i >= 0; --i) {
      row += m.strides[i];
      if (++index[i] < m.shape[i]) break;
      row -= m.strides[i] * m.shape[i];
      index[i] = 0;
    }
    if (i < 0) return;
  }
}

/// Copies elements of `parts` words each, in the other byte order where `swap` says so; nothing need be aligned.
template <class Word, bool swap>
void gather(const ForeignMemory& m, std::byte* to, int parts) {
  for_each_row(m, [&](const std::byte* row, std::int64_t stride, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      for (int p = 0; p < parts; ++p) {
        Word w;
        std::memcpy(&w, row + i * stride + p * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
        if constexpr (swap && sizeof(Word) == 2) w = __builtin_bswap16(w);
        if constexpr (swap && sizeof(Word) == 4) w = __builtin_bswap32(w);
        if constexpr (swap && sizeof(Word) == 8) w = __builtin_bswap64(w);
        std::memcpy(to, &w, sizeof(Word));
        to += sizeof(Word);
      }
    }
  });
}

TensorRef gathered(const ForeignMemory& m) {
  TensorRef t = host_empty(m.dtype, m.shape);
  if (t->numel() == 0) return t;
  const std::size_t word = itemsize(real_part(m.dtype));
  const int parts = static_cast<int>(itemsize(m.dtype) / word);
  const WithoutGil released(t->nbytes());
  const auto run = [&]<class Word>(Word) {
    m.swapped ? gather<Word, true>(m, host_address(*t), parts) : gather<Word, false>(m, host_address(*t), parts);
  };
  switch (word) {
    case 1:
      run(std::uint8_t{});
      break;
    case 2:
      run(std::uint16_t{});
      break;
    case 4:
      run(std::uint32_t{});
      break;
    default:
      run(std::uint64_t{});
      break;
  }
  return t;
}

/// Why the memory cannot be shared as it lies; empty when it can.
std::string why_not_shared(const ForeignMemory& m, std::int64_t numel) {
  if (numel == 0) return {};
  if (m.swapped) return "the elements are in the other byte order";
  const std::int64_t size = static_cast<std::int64_t>(itemsize(m.dtype));
  if (reinterpret_cast<std::uintptr_t>(m.data) % itemsize(real_part(m.dtype)) != 0) return "the data are not aligned";
  for (int i = 0; i < m.shape.size(); ++i) {
    if (m.shape[i] > 1 && m.strides[i] % size != 0) return "a stride is not a multiple of the element";
  }
  return {};
}

TensorRef shared(const ForeignMemory& m, KeeperPtr keeper, std::int64_t numel, Extent e) {
  const std::int64_t size = static_cast<std::int64_t>(itemsize(m.dtype));
  // Strides of axes without a second element say nothing, and need not even be multiples of the element.
  DimList strides = row_major(m.shape);
  for (int i = 0; numel > 0 && i < m.shape.size(); ++i) {
    if (m.shape[i] > 1) strides[i] = m.strides[i] / size;
  }
  Ref<Storage> storage =
      borrow(std::move(keeper), m.data + e.low, static_cast<std::size_t>(e.high - e.low), m.read_only);
  return TensorImpl::make(m.dtype, {}, m.shape, strides, std::move(storage), -e.low / size);
}

/// `gathered`, as a step of the trace.
TensorRef gathered_on_record(const ForeignMemory& m, Border border, const std::string& reason) {
  Recorder* rec = active_recorder(context());
  if (rec == nullptr) return gathered(m);
  Span span(rec, Phase::python, Who::slot, Who::binding, StepKind::self);
  TensorRef t;
  try {
    t = gathered(m);
  } catch (...) {
    if (span.over()) span.end(Event::import_failed, {{Fact::door, name(border)}});
    throw;
  }
  if (span.over()) {
    span.end(Event::imported, {{Fact::door, name(border)},
                               {Fact::dtype, m.dtype},
                               {Fact::swapped, m.swapped},
                               {Fact::shape, m.shape},
                               {Fact::reason, reason}});
  }
  return t;
}

}  // namespace

void DropKeeper::operator()(Keeper* k) const noexcept {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  delete k;
  if (waiting.load(std::memory_order_relaxed) != nullptr) drop_waiting();
  PyErr_Restore(type, value, trace);
}

void throw_copy_needed(Border border, const std::string& reason) {
  const std::string message =
      std::string(name(border)) + "(): copy=False, but " + reason + "; write copy=None or copy=True";
  if (border == Border::asarray) throw ValueError(message);
  PyErr_SetString(copy_error_type(), message.c_str());
  throw PythonError();
}

PyObject* copy_error_type(PyObject* base) {
  static PyObject* type = nullptr;
  if (type == nullptr) {
    const Owned bases(check(base != nullptr ? PyTuple_Pack(3, base, PyExc_BufferError, PyExc_ValueError)
                                            : PyTuple_Pack(2, PyExc_BufferError, PyExc_ValueError)));
    type = check(PyErr_NewExceptionWithDoc("hyalite.CopyNeeded", "copy=False was asked for, and a copy is needed.",
                                           bases.get(), nullptr));
  }
  return type;
}

Ref<Storage> borrow(KeeperPtr keeper, void* data, std::size_t bytes, bool read_only) {
  Ref<Storage> storage = Storage::borrow(data, bytes, read_only, drop, keeper.get());
  static_cast<void>(keeper.release());
  return storage;
}

bool read_only_outside(const TensorImpl& t) {
  bool repeats = false;
  for (std::size_t i = 0; i < t.shape().size(); ++i) repeats |= t.shape()[i] > 1 && t.strides()[i] == 0;
  return t.storage()->read_only() || (repeats && t.numel() != 0);
}

Loan::Loan(TensorRef t, bool may_write) : tensor_(std::move(t)), writable_(may_write && !read_only_outside(*tensor_)) {
  tensor_->storage()->lend(writable_);
}

Loan::~Loan() {
  if (tensor_ && writable_) tensor_->storage()->give_back();
}

void need_host(const TensorImpl& t, const char* op) {
  if (t.device().kind == DeviceKind::cpu) return;
  need_values(t, op);
  throw Unsupported(std::string(op) + "(): the tensor lies on " + to_string(t.device()) + "; write x.to(\"cpu\") first",
                    {{"device", to_string(t.device())}});
}

void need_no_gradient(TensorImpl& t, const char* op) {
  if (!wants_grad(t)) return;
  throw AutogradError(std::string(op) +
                      "(): the tensor requires a gradient, which NumPy would not carry on; write x.detach()." + op +
                      "()");
}

void copy_into(const TensorImpl& from, TensorImpl& to) {
  if (from.numel() == 0) return;
  const WithoutGil released(from.nbytes());
  for_device(context(), from.device()).copy(from, to);
}

TensorRef copy_of(const TensorImpl& t, Dtype dtype) {
  TensorRef to = for_device(context(), t.device()).empty(dtype, t.shape());
  copy_into(t, *to);
  return to;
}

TensorRef import_memory(const ForeignMemory& m, KeeperPtr keeper, std::optional<Dtype> dtype, std::optional<bool> copy,
                        Border border) {
  const std::int64_t numel = checked_numel(m.shape, itemsize(m.dtype));
  const Extent extent = extent_of(m, numel, border);
  const bool casts = dtype && *dtype != m.dtype;
  const std::string reason = why_not_shared(m, numel);
  if (copy == false) {
    if (casts) {
      throw_copy_needed(border, std::string(name(m.dtype)) + " has to become " + std::string(name(*dtype)));
    }
    if (!reason.empty()) throw_copy_needed(border, reason);
  }
  TensorRef t = reason.empty() ? shared(m, std::move(keeper), numel, extent) : gathered_on_record(m, border, reason);
  if (casts) return copy_of(*t, *dtype);
  return copy == true && reason.empty() ? copy_of(*t, m.dtype) : t;
}

}  // namespace hyalite::python
