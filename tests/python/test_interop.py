"""The section "Borders": NumPy, the buffer protocol and DLPack, both ways, and real signatures."""

import array
import ctypes
import gc
import inspect
import weakref

import ml_dtypes
import numpy as np
import pytest

import hyalite as hl

NUMPY_NAMES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
ML_NAMES = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
as_strided = np.lib.stride_tricks.as_strided


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name)) if name in ML_NAMES else np.dtype(name)


def sample(name, shape=(3, 4)):
    count = int(np.prod(shape))
    return (np.arange(count) % (2 if name == "bool" else 13)).reshape(shape).astype(numpy_dtype(name))


LAYOUTS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1],
    "reversed columns": lambda a: a[:, ::-1],
    "steps": lambda a: a[::2, ::-3],
    "one row": lambda a: a[1],
    "broadcast": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "0-d": lambda a: a[1, 2],
    "empty": lambda a: a[:0],
    "inner": lambda a: a[1:, 1:3],
}


# ---- NumPy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NUMPY_NAMES + ML_NAMES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_dtype_and_layout_goes_both_ways(name, layout):
    source = np.asarray(LAYOUTS[layout](sample(name)))
    x = hl.asarray(source)
    assert x.dtype == getattr(hl, name) and x.shape == source.shape
    for back in (x.numpy(), np.asarray(x)):
        assert back.dtype == source.dtype and back.shape == source.shape
        np.testing.assert_array_equal(back, source)
    assert x.tolist() == source.tolist()


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "reversed", "steps", "inner"])
def test_numpy_memory_is_shared_in_both_directions(layout):
    base = sample("float32")
    source = LAYOUTS[layout](base)
    x = hl.asarray(source)
    assert x.data_ptr() == source.__array_interface__["data"][0]
    assert tuple(4 * s for s in x.strides) == source.strides
    source[...] = 7
    assert set(np.ravel(x.tolist())) == {7.0}
    x += 1
    assert np.all(source == 8)
    back = x.numpy()
    assert back.__array_interface__["data"][0] == x.data_ptr() and back.strides == source.strides
    back[...] = 3
    assert np.all(source == 3) and set(np.ravel(x.tolist())) == {3.0}


def test_copy_argument_of_asarray():
    source = sample("float32")
    shared, copied = hl.asarray(source, copy=None), hl.asarray(source, copy=True)
    strict = hl.asarray(source, copy=False)
    source[0, 0] = 99
    assert shared[0, 0].item() == strict[0, 0].item() == 99 and copied[0, 0].item() == 0
    assert copied.numpy().flags.writeable
    x = hl.asarray([1.0, 2.0])
    assert hl.asarray(x).data_ptr() == x.data_ptr() and hl.asarray(x, copy=True).data_ptr() != x.data_ptr()


@pytest.mark.parametrize(
    "make",
    [
        lambda: hl.asarray([1.0, 2.0], copy=False),
        lambda: hl.asarray(1.0, copy=False),
        lambda: hl.asarray(sample("float32"), dtype=hl.float64, copy=False),
        lambda: hl.asarray(sample("float32").astype(">f4"), copy=False),
        lambda: hl.reshape(hl.asarray(sample("float32")).T, (12,), copy=False),
    ],
    ids=["list", "scalar", "another dtype", "another byte order", "reshape of a transposed tensor"],
)
def test_copy_false_that_cannot_share_raises(make):
    with pytest.raises(ValueError, match="copy"):
        make()


def test_reshape_shares_when_it_can_and_copies_when_told():
    x = hl.asarray(sample("float32"))
    assert hl.reshape(x, (2, 6), copy=False).data_ptr() == x.data_ptr()
    assert hl.reshape(x, (2, 6)).data_ptr() == x.data_ptr()
    assert hl.reshape(x, (2, 6), copy=True).data_ptr() != x.data_ptr()
    flat = hl.reshape(x.T, (12,))
    np.testing.assert_array_equal(flat.numpy(), sample("float32").T.reshape(12))


@pytest.mark.parametrize("kind", ["i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_both_byte_orders_arrive_as_native_values(kind):
    values = sample("float64").astype(kind)
    for order in "<>":
        source = values.astype(order + kind)
        for view in (source, source[::-1, ::2]):
            x = hl.asarray(view)
            np.testing.assert_array_equal(x.numpy(), view.astype(kind))
            assert x.numpy().dtype.isnative


def test_memory_stays_alive_on_either_side():
    class Array(np.ndarray):
        """An ndarray that a weak reference can watch."""

    source = Array((1000,), dtype=np.float64)  # owns its memory, so it is the base of every view
    source[:] = np.arange(1000)
    watch = weakref.ref(source)
    x = hl.asarray(source)
    tail = x[500:]
    del source, x
    gc.collect()
    assert watch() is not None and tail.tolist() == list(range(500, 1000))
    del tail
    gc.collect()
    assert watch() is None
    back = (hl.arange(1000) + 1).numpy()
    gc.collect()
    junk = [hl.zeros((1000,), dtype=hl.int64) for _ in range(20)]
    assert back.tolist() == list(range(1, 1001)) and len(junk) == 20


def test_array_protocol_with_dtype_and_copy():
    x = hl.asarray([1.5, 2.5])
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    copy = np.array(x, copy=True)
    copy[0] = 9
    assert x.tolist() == [1.5, 2.5]
    shared = np.asarray(x, copy=False)
    shared[0] = 4
    assert x.tolist() == [4.0, 2.5]
    with pytest.raises(ValueError):
        np.asarray(x, dtype=np.int64, copy=False)


def test_ndarray_operators_reach_the_tensor():
    a, x = np.array([1.0, 2.0], dtype=np.float32), hl.asarray([10.0, 20.0])
    assert hl.Tensor.__array_ufunc__ is None
    for result, want in (
        (a + x, [11, 22]),
        (a - x, [-9, -18]),
        (a * x, [10, 40]),
        (x / a, [10, 10]),
        (a // x, [0, 0]),
        (a @ x, 50),
        (a**x, [1, 2.0**20]),
    ):
        assert isinstance(result, hl.Tensor) and result.dtype == hl.float32
        assert result.tolist() == want
    for result in (a < x, a <= x, a != x):
        assert isinstance(result, hl.Tensor) and result.tolist() == [True, True]


def test_numpy_scalars_and_zero_dimensions():
    assert hl.asarray(np.int16(5)).dtype == hl.int16 and hl.asarray(np.int16(5)).shape == ()
    assert hl.asarray(np.float32(0.1)).item() == float(np.float32(0.1))
    assert hl.asarray([np.float64(1.5), 2]).dtype in (hl.float32, hl.float64)
    for value in (True, 3, 2.5, 1 + 2j):
        item = hl.asarray(value).item()
        assert item == value and type(item) is type(value)


# ---- buffer protocol --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code, name",
    [
        ("b", "int8"),
        ("B", "uint8"),
        ("h", "int16"),
        ("H", "uint16"),
        ("i", "int32"),
        ("I", "uint32"),
        ("q", "int64"),
        ("Q", "uint64"),
        ("f", "float32"),
        ("d", "float64"),
    ],
)
def test_buffers_are_imported_and_shared(code, name):
    source = array.array(code, [1, 2, 3, 4, 5])
    x = hl.asarray(source)
    assert x.dtype == getattr(hl, name) and x.tolist() == [1, 2, 3, 4, 5]
    source[0] = 9
    assert x[0].item() == 9
    view = hl.asarray(memoryview(source)[::-2])
    assert view.tolist() == [5, 3, 9]
    assert hl.asarray(source, copy=True).data_ptr() != x.data_ptr()


def test_bytes_and_bytearrays():
    writable = bytearray(b"\x01\x02\xff")
    x = hl.asarray(writable)
    assert x.dtype == hl.uint8 and x.tolist() == [1, 2, 255]
    x += 1
    assert bytes(writable) == b"\x02\x03\x00"
    locked = hl.asarray(b"\x01\x02")
    assert locked.tolist() == [1, 2]
    with pytest.raises((ValueError, RuntimeError, BufferError), match="read-?only"):
        locked += 1
    assert locked.tolist() == [1, 2]


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_tensors_export_buffers(name):
    source = sample(name)
    x = hl.asarray(source)
    for tensor, want in ((x, source), (x[::-1, 1:], source[::-1, 1:]), (x.T, source.T)):
        view = memoryview(tensor)
        assert view.shape == want.shape and view.strides == want.strides and not view.readonly
        np.testing.assert_array_equal(np.asarray(view), want)
    locked = source.copy()
    locked.flags.writeable = False
    assert memoryview(hl.asarray(locked)).readonly


# ---- DLPack -----------------------------------------------------------------------------------------------------


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


def capsule_pointer(capsule, name):
    function = ctypes.pythonapi.PyCapsule_GetPointer
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return function(capsule, name)


def exported(tensor):
    """What an exported versioned capsule says: pointer, shape, element strides, type, flags."""
    capsule = tensor.__dlpack__(max_version=(1, 0))
    managed = ManagedVersioned.from_address(capsule_pointer(capsule, b"dltensor_versioned"))
    t = managed.tensor
    return {
        "capsule": capsule, "pointer": (t.data or 0) + t.byte_offset, "shape": [t.shape[i] for i in range(t.ndim)],
        "strides": [t.strides[i] for i in range(t.ndim)], "type": (t.code, t.bits, t.lanes), "flags": managed.flags,
        "major": managed.major, "device": (t.device_type, t.device_id),
    }  # fmt: skip


class Producer:
    """A foreign array that speaks the versioned protocol through NumPy."""

    def __init__(self, source):
        self.source = source

    def __dlpack__(self, **keywords):
        return self.source.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.source.__dlpack_device__()


class OldProducer(Producer):
    """A foreign array of the time before versions: only the keyword `stream`."""

    def __dlpack__(self, stream=None):
        return self.source.__dlpack__()


@pytest.mark.parametrize("name", NUMPY_NAMES)
@pytest.mark.parametrize("layout", [k for k in LAYOUTS if k != "broadcast"])
@pytest.mark.parametrize("producer", [Producer, OldProducer, lambda a: a])
def test_dlpack_import_shares_any_layout(name, layout, producer):
    source = np.asarray(LAYOUTS[layout](sample(name).copy()))
    x = hl.from_dlpack(producer(source))
    assert x.dtype == getattr(hl, name) and x.shape == source.shape
    np.testing.assert_array_equal(x.numpy(), source)
    if source.size:
        assert x.data_ptr() == source.__array_interface__["data"][0]


@pytest.mark.parametrize("name", NUMPY_NAMES)
@pytest.mark.parametrize("layout", [k for k in LAYOUTS if k != "broadcast"])
def test_dlpack_export_shares_any_layout(name, layout):
    source = np.asarray(LAYOUTS[layout](sample(name).copy()))
    x = hl.asarray(source)
    back = np.from_dlpack(x)
    assert back.dtype == source.dtype
    np.testing.assert_array_equal(back, source)
    if source.size:
        assert back.__array_interface__["data"][0] == x.data_ptr()
    assert x.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("name, code, bits", [
    ("bool", 6, 8), ("int8", 0, 8), ("int64", 0, 64), ("uint16", 1, 16), ("float16", 2, 16), ("float32", 2, 32),
    ("float64", 2, 64), ("bfloat16", 4, 16), ("complex64", 5, 64), ("complex128", 5, 128),
])  # fmt: skip
def test_exported_type_codes(name, code, bits):
    info = exported(hl.zeros((2,), dtype=getattr(hl, name)))
    assert info["type"] == (code, bits, 1)
    assert info["major"] == 1 and info["device"] == (1, 0)


def test_exported_strides_count_elements_and_the_pointer_is_the_first_logical_element():
    base = np.arange(16, dtype=np.int32)
    view = as_strided(base[3:], shape=(4, 3), strides=(-4, 16))
    x = hl.asarray(view)
    info = exported(x)
    assert info["shape"] == [4, 3] and info["strides"] == [-1, 4]
    assert info["pointer"] == view.__array_interface__["data"][0] == x.data_ptr()
    np.testing.assert_array_equal(np.from_dlpack(x), view)


@pytest.mark.parametrize("shape", [(0, 2048), (3, 0, 5), (1, 10), (1, 1, 1), (4, 1, 3), ()])
def test_exported_strides_are_canonical(shape):
    strides = [3 * 8] * len(shape) if 0 in shape else None
    source = np.zeros(shape) if strides is None else as_strided(np.zeros(50), shape=shape, strides=strides)
    if shape == (1, 10):
        source = as_strided(np.arange(10.0), shape=shape, strides=(4, 8))
    x = hl.asarray(source)
    want, step = [], 1
    for size in reversed(shape):
        want.insert(0, step)
        step *= max(size, 1)
    assert exported(x)["strides"] == want
    np.testing.assert_array_equal(np.from_dlpack(x), source)


def test_read_only_travels_as_a_flag_or_not_at_all():
    source = np.arange(4.0)
    source.flags.writeable = False
    x = hl.from_dlpack(Producer(source))
    with pytest.raises((ValueError, RuntimeError, BufferError), match="read-?only"):
        x += 1
    assert source.tolist() == x.tolist() == [0, 1, 2, 3]
    assert exported(x)["flags"] & 1
    assert not exported(hl.zeros((2,)))["flags"] & 1
    with pytest.raises(BufferError, match="read-?only"):
        x.__dlpack__()
    with pytest.raises(BufferError):
        hl.from_dlpack(OldProducer(source))
    assert np.from_dlpack(x).flags.writeable is False


def test_exported_copies():
    x = hl.asarray([1.0, 2.0])
    capsule = x.__dlpack__(max_version=(1, 0), copy=True)
    managed = ManagedVersioned.from_address(capsule_pointer(capsule, b"dltensor_versioned"))
    assert managed.tensor.data + managed.tensor.byte_offset != x.data_ptr()
    assert managed.flags & 2
    assert exported(x)["flags"] & 2 == 0
    copied = hl.from_dlpack(x, copy=True)
    copied += 1
    assert x.tolist() == [1.0, 2.0] and copied.tolist() == [2.0, 3.0]
    assert hl.from_dlpack(x, copy=False).data_ptr() == x.data_ptr()
    assert hl.from_dlpack(x).data_ptr() == x.data_ptr()


def test_unversioned_capsule_is_the_default():
    x = hl.asarray([1.0, 2.0])
    managed = Managed.from_address(capsule_pointer(capsule := x.__dlpack__(), b"dltensor"))
    assert managed.tensor.data + managed.tensor.byte_offset == x.data_ptr()
    assert "dltensor" in repr(capsule)
    for version in ((0, 8), None):
        assert capsule_pointer(x.__dlpack__(max_version=version), b"dltensor")


def test_an_export_that_cannot_be_says_why():
    x = hl.asarray([1.0, 2.0])
    with pytest.raises((BufferError, ValueError)):
        x.__dlpack__(dl_device=(2, 0), copy=False)
    with pytest.raises((BufferError, ValueError, RuntimeError, TypeError)):
        x.__dlpack__(stream=1)  # the CPU has no streams


def test_import_refuses_what_is_not_dlpack():
    for thing in (object(), 3, [1, 2], "text"):
        with pytest.raises((TypeError, AttributeError, BufferError)):
            hl.from_dlpack(thing)
    with pytest.raises(BufferError):
        hl.from_dlpack(np.arange(3, dtype=">f4"))


def test_dlpack_memory_is_released_once_by_whoever_ends_last():
    x = hl.asarray([1.0, 2.0, 3.0]) + 0
    back = np.from_dlpack(x)
    again = hl.from_dlpack(back)
    pointer = x.data_ptr()
    del x, back
    gc.collect()
    junk = [hl.zeros((3,)) for _ in range(50)]
    assert again.tolist() == [1.0, 2.0, 3.0] and again.data_ptr() == pointer and len(junk) == 50
    for _ in range(100):  # capsules that nobody consumes free their memory themselves
        hl.ones((100,)).__dlpack__()
        hl.ones((100,)).__dlpack__(max_version=(1, 0))


def test_writes_are_seen_on_both_sides_of_dlpack():
    source = np.zeros((2, 3), dtype=np.float32)
    x = hl.from_dlpack(source)
    x += 2
    assert source.tolist() == [[2.0] * 3] * 2
    back = np.from_dlpack(x[:, ::-1])
    source[:, 0] = 7
    assert back.tolist() == [[2.0, 2.0, 7.0]] * 2


# ---- signatures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, wanted", [
    ("add", ["x1", "x2"]), ("exp", ["x"]), ("sum", ["x", "axis", "dtype", "keepdims"]),
    ("reshape", ["x", "shape", "copy"]),
    ("clip", ["x", "min", "max"]), ("matmul", ["x1", "x2"]), ("where", ["condition", "x1", "x2"]),
    ("argmax", ["x", "axis", "keepdims"]), ("concat", ["arrays", "axis"]), ("stack", ["arrays", "axis"]),
    ("take", ["x", "indices", "axis"]), ("permute_dims", ["x", "axes"]), ("broadcast_to", ["x", "shape"]),
    ("arange", ["start", "stop", "step", "dtype", "device"]), ("asarray", ["obj", "dtype", "device", "copy"]),
    ("zeros", ["shape", "dtype", "device"]), ("leaky_relu", ["x", "slope"]), ("softmax", ["x", "axis"]),
])  # fmt: skip
def test_functions_carry_real_signatures(name, wanted):
    parameters = list(inspect.signature(getattr(hl, name)).parameters)
    assert parameters[: len(wanted)] == wanted
    assert getattr(hl, name).__doc__
