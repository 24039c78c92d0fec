/// The borders to Python: numbers, lists, buffers, NumPy and DLPack, in both directions.
/// Every function needs the GIL. Unless marked noexcept it throws: the library's errors, or PythonError when a Python
/// exception is set. NumPy is imported only by `to_numpy` and `array_protocol`.
#pragma once

#include "python/tensor_object.h"

#include <optional>

#include "hyalite/scalar.h"

namespace hyalite::python {

// ---- numbers ----

/// A Python bool, int, float or complex, or an instance of a subclass (np.float64 is one), as a weak scalar; false for
/// anything else. `beyond` is 0, or the sign of an int that 64 bits do not hold: then `to` is the nearest int64 or
/// uint64.
bool scalar_from(PyObject* o, Scalar& to, int& beyond) noexcept;

/// The double that rounds to the floating dtype `to` as the int itself would. Throws OverflowError as float() does.
double large_int(PyObject* i, Dtype to);

/// float32, int64 (uint64 where only that holds the value), complex64 or bool. Throws OverflowError beyond 64 bits.
Dtype default_dtype(const Scalar& s, int beyond, const char* op);

/// Writes a Python number as one element of `dtype`. Throws TypeError where the number is of a higher kind than the
/// dtype (bool excepted), OverflowError for an int outside it, or when `o` is no number TypeError.
void encode_number(PyObject* o, Dtype dtype, std::byte* to, const char* op);

// ---- into a tensor ----

/// A tensor of numbers, nested lists, a buffer, an array or a DLPack object. Memory is shared where possible; `copy`
/// true never shares, false throws ValueError instead of copying. A tensor that needs no change is returned as it is.
/// Throws ValueError (ragged lists), TypeError (not numbers), OverflowError (an int outside its dtype).
TensorRef asarray(PyObject* obj, std::optional<Dtype> dtype, std::optional<bool> copy);

/// A tensor over the memory of a DLPack object. Throws TypeError without `__dlpack__`, BufferError where the memory
/// cannot be taken over, and `copy_error_type` for `copy` false where a copy is needed.
TensorRef from_dlpack(PyObject* obj, std::optional<bool> copy);

// ---- out of a tensor ----

/// DLPack capsule, versioned when `max_version` is (1, 0) or above; the arguments are those of `__dlpack__`, or None.
/// Throws BufferError with the reason when it cannot be.
PyObject* to_dlpack(TensorImpl* t, PyObject* stream, PyObject* max_version, PyObject* dl_device, PyObject* copy);
/// (device type, device number) as DLPack counts them.
PyObject* dlpack_device(TensorImpl* t);

/// An ndarray over the same memory, read-only if the tensor is; bfloat16 and float8 in the dtypes of ml_dtypes.
/// Throws AutogradError for a tensor that requires a gradient.
PyObject* to_numpy(TensorImpl* t);
/// `Tensor.__array__(dtype, copy)`; the arguments may be None.
PyObject* array_protocol(TensorImpl* t, PyObject* dtype, PyObject* copy);

/// `Tensor.__array_interface__`, for libraries that read memory by it; bfloat16 and float8 have no code there. Throws
/// AttributeError where there is none, so that NumPy asks on.
PyObject* array_interface(TensorImpl* t);
/// The elements in row-major order.
PyObject* to_bytes(TensorImpl* t);

/// Arrow's PyCapsule interface: one axis as a column, more as lists of fixed size; in the element type of the schema
/// that is `requested`, or None, where there is such a dtype. Throws TypeError for 0-d tensors and dtypes that Arrow
/// lacks, ValueError for an element that the requested type does not hold.
PyObject* arrow_schema(TensorImpl* t);
PyObject* arrow_array(TensorImpl* t, PyObject* requested);

/// The slots of the buffer protocol for TensorObject.
int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept;
void release_buffer(PyObject* self, Py_buffer* view) noexcept;

/// Nested lists of Python numbers; one number for a tensor without dimensions.
PyObject* tolist(TensorImpl* t);
/// The only element as a Python number. Throws ValueError unless there is exactly one.
PyObject* item(TensorImpl* t);
/// The value of an int64 without dimensions, on the CPU.
std::int64_t whole_item(const TensorImpl& t);

// Tensors without dimensions only, else TypeError. Errors for NaN and infinity are Python's own.
bool to_bool(TensorImpl* t);
PyObject* to_int(TensorImpl* t);
PyObject* to_float(TensorImpl* t);
PyObject* to_complex(TensorImpl* t);
/// Integer dtypes only.
PyObject* to_index(TensorImpl* t);

/// The class of the error for `from_dlpack(copy=False)`: a BufferError and a ValueError, and an instance of `base` when
/// the first call gave one. Borrowed.
PyObject* copy_error_type(PyObject* base = nullptr);

}  // namespace hyalite::python
