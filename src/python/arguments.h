/// Arguments of functions that are no operands: integers, shapes, dtypes, devices, flags. What does not fit raises in
/// the house form: `zeros(): shape must be an integer or a tuple of integers, not float 2.0; write int(n)`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "hyalite/attribute.h"
#include "hyalite/device.h"
#include "ops/attributes.h"
#include "python/tensor_object.h"
#include "tensor/shape.h"

namespace hyalite::python {

/// The object as a message shows it: its type, and its value where that is short, such as "float 2.0".
std::string shown(PyObject* o);
/// An int of any size as text: its digits, or how many bits it has.
std::string int_text(PyObject* o);

/// Throws `op(): name must be wanted, not shown(o); advice`.
[[noreturn]] void throw_argument(std::string_view op, std::string_view name, std::string_view wanted, PyObject* o,
                                 std::string_view advice = {});

/// Throws `op(): what; the signature is op(x, ...)`.
[[noreturn]] void refuse_call(std::string_view op, std::string_view signature, const std::string& what);

/// Puts the arguments of a call into `slots`, which are null: `by_place` of them at most by their places, the others
/// where find(name) says, which is negative for a name that is none. passes(name, value) says whether to overlook one;
/// refused(what) throws.
template <class Find, class Passes, class Refused>
void sort_arguments(std::span<PyObject*> slots, std::size_t by_place, PyObject* const* args, Py_ssize_t n,
                    PyObject* names, Find find, Passes passes, Refused refused) {
  if (n > static_cast<Py_ssize_t>(by_place)) {
    refused("takes " + std::to_string(by_place) + (by_place == 1 ? " argument" : " arguments") +
            (by_place < slots.size() ? " by place" : "") + ", not " + std::to_string(n));
  }
  std::copy_n(args, n, slots.begin());
  const Py_ssize_t named = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t k = 0; k < named; ++k) {
    Py_ssize_t length;
    const char* text = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(names, k), &length);
    if (text == nullptr) throw PythonError();
    const std::string_view name(text, static_cast<std::size_t>(length));
    const std::ptrdiff_t at = find(name);
    if (at < 0 && passes(name, args[n + k])) continue;
    if (at < 0) refused("unknown argument " + std::string(name));
    PyObject*& place = slots[static_cast<std::size_t>(at)];
    if (place != nullptr) refused("repeated argument " + std::string(name));
    place = args[n + k];
  }
}

/// An object with `__index__`. Throws TypeError, or OverflowError beyond 64 bits.
std::int64_t integer_argument(PyObject* o, std::string_view op, std::string_view name,
                              std::string_view wanted = "an integer");
/// An integer, or any sequence of them.
Shape integers_argument(PyObject* o, std::string_view op, std::string_view name, std::string_view wanted);
/// The same as an attribute; an int, or a tuple of few, without a word to the allocator.
Ints ints_argument(PyObject* o, std::string_view op, std::string_view name, std::string_view wanted);
/// The same, as a shape.
Shape shape_argument(PyObject* o, std::string_view op);
/// True or False, NumPy's too, and 0 or 1.
bool flag_argument(PyObject* o, std::string_view op, std::string_view name);
/// A flag, or None.
std::optional<bool> optional_flag_argument(PyObject* o, std::string_view op, std::string_view name);
/// A real number. Throws TypeError, or OverflowError beyond a double.
double number_argument(PyObject* o, std::string_view op, std::string_view name);
Dtype dtype_argument(PyObject* o, std::string_view op, std::string_view name = "dtype");
/// A dtype, or None.
std::optional<Dtype> optional_dtype_argument(PyObject* o, std::string_view op);
/// The name of a device, or None for the CPU.
Device device_argument(PyObject* o, std::string_view op);

}  // namespace hyalite::python
